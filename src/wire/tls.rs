//! Who is at the other end: TLS 1.3 for both sides, by rustls and ring.
//!
//! Whoever connects knows the node by the fingerprint of its certificate (then nothing else of it counts: not
//! its name, not its dates), or by an authority that has signed it for the host's name. A certificate that
//! stands itself in a file of authorities is accepted as it is, within its dates: those that
//! `openssl req -x509` makes.
//!
//! Sessions are not resumed: a client certificate is looked at on each connection, and none keeps memory.

use super::address::{connect, Address, ConnectError};
use super::certificate::{check_time, read_certificates, read_key, Fingerprint};
use super::request::unix_now;
use super::stream::{Handshake, Stream, TlsStream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{ring, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error,
    OtherError, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};
use std::fmt;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The first byte of a TLS connection: that a record of a handshake follows. No line of text begins so.
pub const HELLO: u8 = 0x16;

/// That a node speaks TLS, and how it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Its certificate is one of these; none: [`Tls::authorities`] decides.
    pub fingerprints: Vec<Fingerprint>,
    /// A file with the certificates of those who may have signed its own.
    pub authorities: Option<PathBuf>,
    /// What we show it if it asks: the files of a certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Connects, and where the address says so speaks TLS: its handshake is done before the deadline, too.
///
/// # Errors
/// Not one byte of a line was written.
pub fn open(address: &Address, deadline: Instant) -> Result<Box<dyn Stream>, ConnectError> {
    let Some(tls) = &address.tls else {
        return Ok(Box::new(connect(address, deadline)?));
    };
    let wrong = |why: String| ConnectError::Secured(address.clone(), why);
    let config = tls.client().map_err(wrong)?;
    let session = ClientConnection::new(config, name_of(address).map_err(wrong)?)
        .map_err(|error| wrong(error.to_string()))?;
    let tcp = connect(address, deadline)?;
    match TlsStream::shake_hands(tcp, session, deadline) {
        Ok(stream) => Ok(Box::new(stream)),
        Err(Handshake::Late) => Err(ConnectError::TimedOut(address.clone())),
        Err(why) => Err(wrong(why.to_string())),
    }
}

fn name_of(address: &Address) -> Result<ServerName<'static>, String> {
    let host = address.host.split_once('%').map_or(&*address.host, |(host, _)| host);
    ServerName::try_from(host.to_owned()).map_err(|_| format!("no certificate can be for the host {host:?}"))
}

impl Tls {
    /// By the fingerprint alone.
    pub fn pinned(fingerprints: Vec<Fingerprint>) -> Tls {
        Tls { fingerprints, ..Tls::default() }
    }

    fn client(&self) -> Result<Arc<ClientConfig>, String> {
        let authorities = match (&self.authorities, self.fingerprints.is_empty()) {
            (Some(file), true) => Some(Authorities::read(file)?),
            (None, true) => {
                return Err(
                    "it speaks TLS, and neither its certificate's fingerprint nor an authority is given"
                        .into(),
                )
            }
            _ => None,
        };
        let verifier = match &authorities {
            Some(authorities) => Some(authorities.of_servers()?),
            None => None,
        };
        let check = KnownServer { pins: self.fingerprints.clone(), authorities, verifier };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(check));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(read_certificates(certificate)?, read_key(key)?)
                .map_err(|error| does_not_fit(certificate, key, &error))?,
        };
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// Whether a certificate and a key can be used, by whoever shows them.
///
/// # Errors
/// What is wrong with which file.
pub fn check_identity(certificate: &Path, key: &Path) -> Result<Fingerprint, String> {
    let identity = Some((certificate.to_owned(), key.to_owned()));
    let chain = read_certificates(certificate)?;
    let fingerprint = Fingerprint::of(&chain[0]);
    Tls { fingerprints: vec![fingerprint], authorities: None, identity }.client()?;
    Ok(fingerprint)
}

/// Whether a file of authorities can be used.
///
/// # Errors
/// What is wrong with it.
pub fn check_authorities(file: &Path) -> Result<(), String> {
    Authorities::read(file)?.of_servers().map(drop)
}

fn does_not_fit(certificate: &Path, key: &Path, error: &Error) -> String {
    match error {
        Error::InconsistentKeys(_) => {
            format!(
                "the private key in {} is not that of the certificate in {}",
                key.display(),
                certificate.display()
            )
        }
        error => format!("{} with {}: {error}", certificate.display(), key.display()),
    }
}

/// Whose certificates are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Nobody without one gets in.
    Required,
    /// One that is shown has to be good.
    Optional,
}

/// What a node that speaks TLS shows and asks for.
pub struct Acceptor {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    clients: Option<Clients>,
    /// Of everything that it was made of.
    contents: Fingerprint,
}

impl Acceptor {
    /// Reads the files: a certificate with what leads to its authority, its key, and who may have signed
    /// the certificates of clients.
    ///
    /// # Errors
    /// Names the file and says what is wrong with it: it can't be read, the key is not the certificate's,
    /// the certificate has expired.
    pub fn read(
        certificate: &Path,
        key: &Path,
        clients: Option<(&Path, Clients)>,
    ) -> Result<Acceptor, String> {
        let chain = read_certificates(certificate)?;
        let secret = read_key(key)?;
        let first = chain.first().map(|first| first.as_ref()).unwrap_or_default();
        check_time(first, unix_now()).map_err(|why| format!("{}: {why}", certificate.display()))?;
        let fingerprint = Fingerprint::of(first);
        let mut contents: Vec<u8> = chain.iter().flat_map(|one| one.as_ref()).copied().collect();
        contents.extend(Fingerprint::of(secret.secret_der()).to_string().bytes());
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some((file, wanted)) => {
                let authorities = Authorities::read(file)?;
                contents.extend(authorities.all.iter().flat_map(|one| one.as_ref()));
                contents.push(u8::from(wanted == Clients::Required));
                builder.with_client_cert_verifier(authorities.of_clients(wanted)?)
            }
        };
        let mut config = builder
            .with_single_cert(chain, secret)
            .map_err(|error| does_not_fit(certificate, key, &error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let clients = clients.map(|(_, wanted)| wanted);
        let contents = Fingerprint::of(&contents);
        Ok(Acceptor { config: Arc::new(config), fingerprint, clients, contents })
    }

    /// That of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// What the node tells of it: `{"fingerprint","client_certificates"}`.
    pub fn told(&self) -> serde_json::Value {
        let clients = match self.clients {
            None => "none",
            Some(Clients::Optional) => "optional",
            Some(Clients::Required) => "required",
        };
        serde_json::json!({"fingerprint": self.fingerprint.to_string(), "client_certificates": clients})
    }

    /// Speaks TLS on a connection that was accepted.
    ///
    /// # Errors
    /// Why not; the peer has been sent an alert.
    pub fn accept<'s>(
        &self,
        tcp: &'s TcpStream,
        deadline: Instant,
    ) -> Result<TlsStream<&'s TcpStream>, Handshake> {
        let session = ServerConnection::new(Arc::clone(&self.config)).map_err(Handshake::Failed)?;
        TlsStream::shake_hands(tcp, session, deadline)
    }
}

impl PartialEq for Acceptor {
    fn eq(&self, other: &Self) -> bool {
        self.contents == other.contents
    }
}

/// Hidden: it holds a key.
impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acceptor({})", self.fingerprint)
    }
}

/// The one that is in the program anyway; the library must not look for another.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(ring::default_provider())))
}

/// The certificates of a file: those of authorities, and those that are accepted themselves.
#[derive(Debug)]
struct Authorities {
    file: PathBuf,
    all: Vec<CertificateDer<'static>>,
}

impl Authorities {
    fn read(file: &Path) -> Result<Authorities, String> {
        Ok(Authorities { file: file.to_owned(), all: read_certificates(file)? })
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, String> {
        let mut roots = RootCertStore::empty();
        for certificate in &self.all {
            roots.add(certificate.clone()).map_err(|error| format!("{}: {error}", self.file.display()))?;
        }
        Ok(Arc::new(roots))
    }

    fn of_servers(&self) -> Result<Arc<WebPkiServerVerifier>, String> {
        let built = WebPkiServerVerifier::builder_with_provider(self.roots()?, provider()).build();
        built.map_err(|error| format!("{}: {error}", self.file.display()))
    }

    fn of_clients(self, wanted: Clients) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let builder = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider());
        let builder = match wanted {
            Clients::Required => builder,
            Clients::Optional => builder.allow_unauthenticated(),
        };
        let signed = builder.build().map_err(|error| format!("{}: {error}", self.file.display()))?;
        Ok(Arc::new(KnownClient { authorities: self, signed }))
    }

    /// Whether this very certificate stands in the file.
    fn hold(&self, certificate: &CertificateDer<'_>) -> bool {
        self.all.iter().any(|known| known.as_ref() == certificate.as_ref())
    }
}

fn listed(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    check_time(certificate, now).map_err(|_| CertificateError::Expired.into())
}

/// Our own sentence on why a certificate does not do.
#[derive(Debug)]
struct NotKnown(String);

impl fmt::Display for NotKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotKnown {}

fn refused(why: String) -> Error {
    CertificateError::Other(OtherError(Arc::new(NotKnown(why)))).into()
}

/// How a node is known to whoever connects.
#[derive(Debug)]
struct KnownServer {
    pins: Vec<Fingerprint>,
    authorities: Option<Authorities>,
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for KnownServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (Some(authorities), Some(verifier)) = (&self.authorities, &self.verifier) else {
            let shown = Fingerprint::of(end_entity);
            return match self.pins.contains(&shown) {
                true => Ok(ServerCertVerified::assertion()),
                false => Err(refused(format!(
                    "its certificate has the fingerprint {shown}, and another one is pinned ({})",
                    self.pins.iter().map(Fingerprint::to_string).collect::<Vec<_>>().join(", ")
                ))),
            };
        };
        if authorities.hold(end_entity) {
            return listed(end_entity, now).map(|()| ServerCertVerified::assertion());
        }
        let checked = verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        checked.map_err(|error| {
            refused(format!("its certificate is not good by {}: {error}", authorities.file.display()))
        })
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 alone is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Who is let in: what an authority has signed, or what stands in the file itself.
#[derive(Debug)]
struct KnownClient {
    authorities: Authorities,
    signed: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for KnownClient {
    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.authorities.hold(end_entity) {
            true => listed(end_entity, now).map(|()| ClientCertVerified::assertion()),
            false => self.signed.verify_client_cert(end_entity, intermediates, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
