//! Where a node listens: `HOST:PORT`; or, where it speaks TLS, `tls://HOST:PORT#FINGERPRINT`.

use super::certificate::Fingerprint;
use super::tls::Tls;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How an address begins whose node speaks TLS.
const SCHEME: &str = "tls://";

/// A host, by name or number, and a port. It is the same place however one speaks to it.
#[derive(Clone, Debug)]
pub struct Address {
    /// A name, an IPv4 or an IPv6 address (without brackets).
    pub host: String,
    /// 1 to 65535; 0, "any free port", only where one listens.
    pub port: u16,
    /// That TLS is spoken there, and how the node is known; none: plain TCP.
    pub tls: Option<Box<Tls>>,
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

impl Eq for Address {}

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.host, self.port).hash(state);
    }
}

impl Address {
    /// An address from its parts, as a configuration or a hop of a trace names them. Brackets around an
    /// IPv6 address are taken off.
    pub fn new(host: &str, port: u16) -> Result<Address, AddressError> {
        let wrong = |why: &str| Err(AddressError(format!("the host {host:?} {why}")));
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let name = bare.unwrap_or(host);
        if name.is_empty() {
            return wrong("is empty");
        }
        if bare.is_some() || name.contains(':') {
            let without_zone = name.split_once('%').map_or(name, |(address, _)| address);
            if without_zone.parse::<Ipv6Addr>().is_err() {
                return wrong("is not an IPv6 address");
            }
        }
        if name.chars().any(|c| c.is_whitespace() || c.is_control() || "[]/@?#\"\\".contains(c)) {
            return wrong("has a character that no host name has");
        }
        if name.len() > 255 {
            return wrong("has more than 255 bytes");
        }
        Ok(Address { host: name.into(), port, tls: None })
    }

    /// The same place, spoken to in this way.
    pub fn with_tls(self, tls: Option<Tls>) -> Address {
        Address { tls: tls.map(Box::new), ..self }
    }

    fn parse_known(text: &str) -> Result<Address, AddressError> {
        let address = Address::parse_listening(text)?;
        if address.port == 0 {
            return Err(AddressError(format!("the address {text:?} has a port out of the range 1 to 65535")));
        }
        Ok(address)
    }

    /// Reads `HOST:PORT` where port 0, "any free port", is meant to be possible.
    pub fn parse_listening(text: &str) -> Result<Address, AddressError> {
        let wrong = |why: &str| Err(AddressError(format!("the address {text:?} {why}")));
        let (host, port) = match text.rsplit_once(':') {
            None => return wrong("has no port; it is written HOST:PORT"),
            // The colon belonged to a bracketed address: `[::1]`.
            Some((_, tail)) if tail.ends_with(']') => return wrong("has no port; it is written [IPv6]:PORT"),
            Some((host, port)) => (host, port),
        };
        if host.is_empty() {
            return wrong("has no host before the port");
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            let numbers = [text, host].iter().any(|part| part.parse::<Ipv6Addr>().is_ok());
            return wrong(if numbers {
                "has an IPv6 address without brackets; it is written [IPv6]:PORT"
            } else {
                "has more than one colon; it is written HOST:PORT"
            });
        }
        if port.is_empty() {
            return wrong("has no port after the colon");
        }
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return wrong("has a port that is not a number");
        }
        let Ok(port) = port.parse() else {
            return wrong("has a port out of the range 1 to 65535");
        };
        Address::new(host, port)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `HOST:PORT`, `127.0.0.1:7000`, `[::1]:7000`, `tls://node.example:7000`, and with the SHA-256 of
    /// the node's certificate `tls://node.example:7000#5f0c…`.
    fn from_str(text: &str) -> Result<Address, AddressError> {
        if let Some(place) = text.strip_prefix(SCHEME) {
            let (place, pin) = place.split_once('#').map_or((place, None), |(place, pin)| (place, Some(pin)));
            let pins = pin.map(Fingerprint::parse).transpose();
            let pins = pins.map_err(|why| AddressError(format!("the address {text:?}: {why}")))?;
            let address = Address::parse_known(place)?;
            return Ok(address.with_tls(Some(Tls::pinned(pins.into_iter().collect()))));
        }
        Address::parse_known(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tls.is_some() {
            f.write_str(SCHEME)?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What is wrong with an address, as a sentence that quotes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(pub String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

/// Why no connection came about.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name is not known, or the resolver failed; with its reason.
    NotResolved(Address, String),
    /// The deadline passed, while resolving the name or while connecting.
    TimedOut(Address),
    /// No address of the host took the connection; the last one's reason.
    Failed(Address, io::Error),
    /// A connection came about, and no TLS on it; the reason.
    Secured(Address, String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::NotResolved(address, why) => {
                write!(f, "the host name of {address} does not resolve: {why}")
            }
            ConnectError::TimedOut(address) => write!(f, "connecting to {address} took too long"),
            ConnectError::Secured(address, why) => write!(f, "connecting to {address}: {why}"),
            ConnectError::Failed(address, error) => write!(f, "connecting to {address}: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Connects to the first address of the host that takes the connection, with `TCP_NODELAY`. One that
/// does not answer gets its share of the time and not all of it.
pub fn connect(address: &Address, deadline: Instant) -> Result<TcpStream, ConnectError> {
    let found = resolve(address, deadline)?;
    let mut last = ConnectError::NotResolved(address.clone(), "it has no address".into());
    for (n, socket) in found.iter().enumerate() {
        let share = left(deadline) / (found.len() - n) as u32;
        if share.is_zero() {
            return Err(ConnectError::TimedOut(address.clone()));
        }
        match TcpStream::connect_timeout(socket, share) {
            Ok(stream) => {
                // Without it the last packet of a long line may wait for an acknowledgement.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                last = ConnectError::TimedOut(address.clone());
            }
            Err(error) => last = ConnectError::Failed(address.clone(), error),
        }
    }
    Err(last)
}

fn resolve(address: &Address, deadline: Instant) -> Result<Vec<SocketAddr>, ConnectError> {
    if let Ok(number) = address.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(number, address.port)]);
    }
    // The system's resolver takes no deadline, so it is asked by a thread that is left to itself if it
    // takes too long; it ends when the resolver gives up.
    let (sender, receiver) = mpsc::sync_channel(1);
    let asked = address.clone();
    let not_resolved = |error: io::Error| ConnectError::NotResolved(address.clone(), error.to_string());
    thread::Builder::new()
        .name("resolve".into())
        .spawn(move || {
            let found = (&*asked.host, asked.port).to_socket_addrs().map(|found| found.take(16).collect());
            let _ = sender.send(found);
        })
        .map_err(not_resolved)?;
    match receiver.recv_timeout(left(deadline)) {
        Ok(found) => found.map_err(not_resolved),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(ConnectError::TimedOut(address.clone())),
        Err(_) => Err(ConnectError::NotResolved(address.clone(), "the resolver failed".into())),
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn what_is_well_written_reads_back() {
        for text in
            ["127.0.0.1:7000", "[::1]:7000", "node-a.example:1", "localhost:65535", "[fe80::1%eth0]:7"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!(Address::new("[::1]", 7).unwrap(), "[::1]:7".parse().unwrap());
        assert_eq!(Address::new("::1", 7).unwrap().to_string(), "[::1]:7");
        assert_eq!(Address::parse_listening("127.0.0.1:0").unwrap().port, 0);
    }

    #[test]
    fn an_address_says_that_tls_is_spoken_and_whose_certificate_is_awaited() {
        let pin = "ab".repeat(32);
        let address: Address = format!("tls://[::1]:7000#{pin}").parse().unwrap();
        assert_eq!(address.to_string(), "tls://[::1]:7000");
        assert_eq!(address.tls.as_ref().unwrap().fingerprints, [Fingerprint::parse(&pin).unwrap()]);
        let address: Address = "tls://node:1".parse().unwrap();
        assert!(address.tls.as_ref().unwrap().fingerprints.is_empty());
        assert_eq!(address, "node:1".parse().unwrap(), "the same place");
        for (text, said) in [
            ("tls://node:1#", "64 hexadecimal digits"),
            ("tls://node:1#abc", "64 hexadecimal digits"),
            ("tls://node", "has no port"),
            ("tls://tls://node:1", "more than one colon"),
            ("node:1#ab", "not a number"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("localhost", "has no port; it is written HOST:PORT"),
            ("", "has no port"),
            ("[::1]", "has no port; it is written [IPv6]:PORT"),
            ("localhost:", "has no port after the colon"),
            (":7000", "has no host"),
            ("localhost:0", "out of the range 1 to 65535"),
            ("localhost:65536", "out of the range 1 to 65535"),
            ("localhost:99999999999999999999", "out of the range"),
            ("localhost:http", "not a number"),
            ("localhost:-1", "not a number"),
            ("localhost:+1", "not a number"),
            ("::1:7000", "without brackets"),
            ("[localhost]:7000", "is not an IPv6 address"),
            ("[]:7000", "is empty"),
            ("a b:7000", "no host name has"),
            ("http://a:7000", "more than one colon"),
            ("::1", "without brackets"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_leads_to_its_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::new("localhost", listener.local_addr().unwrap().port()).unwrap();
        let stream = connect(&address, Instant::now() + Duration::from_secs(10)).unwrap();
        assert!(stream.nodelay().unwrap());
    }

    #[test]
    fn refused_and_late_are_told_apart() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = Address::new("127.0.0.1", port).unwrap();
        let refused = connect(&address, Instant::now() + Duration::from_secs(10)).unwrap_err();
        assert!(matches!(refused, ConnectError::Failed(..)));
        assert!(refused.to_string().starts_with(&format!("connecting to 127.0.0.1:{port}: ")), "{refused}");
        assert!(matches!(connect(&address, Instant::now()).unwrap_err(), ConnectError::TimedOut(_)));
    }
}
