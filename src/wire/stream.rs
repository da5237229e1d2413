//! What lines go over: a TCP connection, or TLS on one. Every wait has a deadline that is total.
//!
//! One thread at a time uses a stream, for either direction; a deadline is looked at before each wait, so a
//! peer that sends a byte now and then does not push it back.

use rustls::{AlertDescription, CertificateError, Connection};
use std::borrow::Borrow;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Why nothing was read.
#[derive(Debug)]
pub enum Trouble {
    /// The deadline passed.
    Late,
    /// The connection failed.
    Io(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Io(error)
    }
}

/// A connection, either way.
pub trait Stream {
    /// Reads what is there, or waits for it; 0: the peer sends no more. Leaves a read timeout set.
    ///
    /// # Errors
    /// The deadline passed, or the connection failed.
    fn read_before(&self, into: &mut [u8], deadline: Instant) -> Result<usize, Trouble>;

    /// Writes all of it. Leaves a write timeout set.
    ///
    /// # Errors
    /// The connection failed, or the deadline passed ([`ErrorKind::TimedOut`]); part of it may be written.
    fn write_before(&self, part: &[u8], deadline: Instant) -> io::Result<()>;

    /// Ends the writing side; the peer gets all that was written, and then the end.
    ///
    /// # Errors
    /// The connection has failed.
    fn finish(&self, deadline: Instant) -> io::Result<()>;

    /// The connection below.
    fn tcp(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn read_before(&self, into: &mut [u8], deadline: Instant) -> Result<usize, Trouble> {
        let mut stream = self;
        loop {
            let left = time_left(deadline).ok_or(Trouble::Late)?;
            self.set_read_timeout(Some(left))?;
            match stream.read(into) {
                Ok(count) => return Ok(count),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(Trouble::Io(error)),
            }
        }
    }

    fn write_before(&self, mut part: &[u8], deadline: Instant) -> io::Result<()> {
        let mut stream = self;
        while !part.is_empty() {
            let Some(left) = time_left(deadline) else {
                return Err(io::Error::new(ErrorKind::TimedOut, "the peer did not take the line in time"));
            };
            self.set_write_timeout(Some(left))?;
            match stream.write(part) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => part = &part[count..],
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn finish(&self, _deadline: Instant) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn tcp(&self) -> &TcpStream {
        self
    }
}

/// TLS on a TCP connection, after its handshake. Its memory has a bound of its own, some 100 KB: what has
/// come is handed out before more is read, and what is written is on its way before more is taken.
pub struct TlsStream<T> {
    tcp: T,
    session: RefCell<Connection>,
}

/// Why there is no TLS on a connection.
#[derive(Debug)]
pub enum Handshake {
    /// The deadline passed.
    Late,
    /// The peer closed the connection.
    Closed,
    /// The connection failed.
    Io(io::Error),
    /// One of the two did not want what the other offered, or who it is.
    Failed(rustls::Error),
}

impl fmt::Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use rustls::Error;
        match self {
            Handshake::Late => f.write_str("the TLS handshake was not done in time"),
            Handshake::Closed => f.write_str("the connection was closed in the TLS handshake"),
            Handshake::Io(error) => write!(f, "the TLS handshake: {error}"),
            // Ours, from the checking of a certificate.
            Handshake::Failed(Error::InvalidCertificate(CertificateError::Other(why))) => why.0.fmt(f),
            Handshake::Failed(Error::InvalidMessage(_)) => {
                f.write_str("what came is not TLS: the other side probably speaks plain TCP")
            }
            Handshake::Failed(Error::AlertReceived(alert)) => {
                write!(f, "the other side ended the TLS handshake: {}", said_by(*alert))
            }
            Handshake::Failed(error) => write!(f, "the TLS handshake: {error}"),
        }
    }
}

/// What an alert means, as far as it is about certificates; else its name.
pub(super) fn said_by(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => "it wants a client certificate".into(),
        AlertDescription::UnknownCA => "it does not know who signed our certificate".into(),
        AlertDescription::CertificateExpired => "our certificate has expired".into(),
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "it does not accept our certificate".into()
        }
        other => format!("{other:?}"),
    }
}

impl<T: Borrow<TcpStream>> TlsStream<T> {
    /// Carries the handshake out, all of it before the deadline. Where it fails the peer has been sent an
    /// alert that says why.
    ///
    /// # Errors
    /// Why there is no TLS.
    pub fn shake_hands(tcp: T, session: impl Into<Connection>, deadline: Instant) -> Result<Self, Handshake> {
        let mut session = session.into();
        let pipe = Pipe { tcp: tcp.borrow(), deadline };
        let io = |trouble| match trouble {
            Trouble::Late => Handshake::Late,
            Trouble::Io(error) => Handshake::Io(error),
        };
        loop {
            pipe.flush(&mut session).map_err(|error| io(late(error)))?;
            if !session.is_handshaking() {
                break;
            }
            if pipe.fill(&mut session).map_err(io)? == 0 {
                return Err(Handshake::Closed);
            }
            if let Err(wrong) = session.process_new_packets() {
                let _ = pipe.flush(&mut session); // the alert
                return Err(Handshake::Failed(wrong));
            }
        }
        Ok(TlsStream { tcp, session: RefCell::new(session) })
    }
}

impl<T: Borrow<TcpStream>> Stream for TlsStream<T> {
    fn read_before(&self, into: &mut [u8], deadline: Instant) -> Result<usize, Trouble> {
        let mut session = self.session.borrow_mut();
        let pipe = Pipe { tcp: self.tcp(), deadline };
        loop {
            match session.reader().read(into) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Cut off, perhaps by somebody else: the peer has not said that it sends no more.
                Err(error) => return Err(Trouble::Io(error)),
            }
            pipe.flush(&mut session).map_err(late)?;
            pipe.fill(&mut session)?;
            if let Err(wrong) = session.process_new_packets() {
                let _ = pipe.flush(&mut session); // the alert
                return Err(Trouble::Io(io::Error::new(ErrorKind::InvalidData, wrong)));
            }
        }
    }

    fn write_before(&self, mut part: &[u8], deadline: Instant) -> io::Result<()> {
        let mut session = self.session.borrow_mut();
        let pipe = Pipe { tcp: self.tcp(), deadline };
        while !part.is_empty() {
            let taken = session.writer().write(part)?;
            part = &part[taken..];
            pipe.flush(&mut session)?;
        }
        Ok(())
    }

    fn finish(&self, deadline: Instant) -> io::Result<()> {
        let mut session = self.session.borrow_mut();
        session.send_close_notify();
        Pipe { tcp: self.tcp(), deadline }.flush(&mut session)?;
        self.tcp().shutdown(Shutdown::Write)
    }

    fn tcp(&self) -> &TcpStream {
        self.tcp.borrow()
    }
}

/// The connection below, with a deadline, as the library reads and writes it.
struct Pipe<'a> {
    tcp: &'a TcpStream,
    deadline: Instant,
}

impl Pipe<'_> {
    fn fill(&self, session: &mut Connection) -> Result<usize, Trouble> {
        session.read_tls(&mut { self }).map_err(late)
    }

    fn flush(&self, session: &mut Connection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut { self })?;
        }
        Ok(())
    }
}

impl Read for &Pipe<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.tcp.read_before(into, self.deadline).map_err(|trouble| match trouble {
            Trouble::Late => io::Error::new(ErrorKind::TimedOut, Overdue),
            Trouble::Io(error) => error,
        })
    }
}

impl Write for &Pipe<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.tcp.write_before(part, self.deadline).map(|()| part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Marks a deadline of ours, which the system's own timeouts are not.
#[derive(Debug)]
struct Overdue;

impl fmt::Display for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing came in time")
    }
}

impl std::error::Error for Overdue {}

fn late(error: io::Error) -> Trouble {
    match error.get_ref().is_some_and(|inner| inner.is::<Overdue>()) {
        true => Trouble::Late,
        false => Trouble::Io(error),
    }
}

/// What remains until the deadline; nothing if it is over. Never zero, which would mean "no timeout".
fn time_left(deadline: Instant) -> Option<Duration> {
    // The kernel counts these in microseconds.
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| left.as_micros() > 0)
}

/// Worth another look at the clock and another try. A timeout of ours comes as `WouldBlock`; `TimedOut`
/// means that the connection is dead, after which a read would look like the peer's orderly end.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
