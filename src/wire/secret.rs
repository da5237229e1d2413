//! Shared secrets and the signatures they make.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::json::{write_canonical, Form, Order};

/// The longest secret taken, in bytes; a file that is longer was hardly meant.
pub const MAX_SECRET_BYTES: usize = 64 << 10;

/// A shared secret: not empty, UTF-8, and never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: Box<str>,
}

impl Secret {
    /// The secret that is exactly this text.
    pub fn new(text: &str) -> Result<Secret, SecretError> {
        match text.len() {
            0 => Err(SecretError::Empty),
            1..=MAX_SECRET_BYTES => Ok(Secret { text: text.into() }),
            _ => Err(SecretError::TooLong),
        }
    }

    /// The secret that is exactly these bytes, which have to be UTF-8.
    pub fn from_bytes(bytes: &[u8]) -> Result<Secret, SecretError> {
        Secret::new(std::str::from_utf8(bytes).map_err(|_| SecretError::NotUtf8)?)
    }

    /// Reads a secret file. One line end (`\n` or `\r\n`) at its end is not part of the secret.
    pub fn from_file(path: &Path) -> Result<Secret, SecretError> {
        let failed = |error| SecretError::Unreadable(path.to_owned(), error);
        let bytes =
            crate::input::read(path, MAX_SECRET_BYTES as u64 + 2).map_err(|error| match error.kind() {
                io::ErrorKind::Other => SecretError::InFile(path.to_owned(), Box::new(SecretError::TooLong)),
                _ => failed(error),
            })?;
        let bytes =
            bytes.strip_suffix(b"\n").map_or(&*bytes, |rest| rest.strip_suffix(b"\r").unwrap_or(rest));
        Secret::from_bytes(bytes).map_err(|fault| SecretError::InFile(path.to_owned(), Box::new(fault)))
    }

    /// The secret itself, to be written where secrets are kept.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// HMAC-SHA256 of a text.
    pub fn sign(&self, text: &str) -> [u8; 32] {
        self.mac().chain_update(text).finalize().into_bytes().into()
    }

    /// Whether `signature` is this secret's for `text`; in constant time.
    pub fn verify(&self, text: &str, signature: &[u8; 32]) -> bool {
        self.mac().chain_update(text).verify_slice(signature).is_ok()
    }

    /// Whether `signature` is this secret's over the object `text` without its member `signature`, in
    /// any of the forms that a verifier accepts. `order` came from scanning `text`. The canonical text
    /// is never built.
    pub(super) fn verify_signed(&self, text: &str, order: &Order, signature: &[u8; 32]) -> bool {
        let valid = |form| {
            let mut mac = self.mac();
            write_canonical(text, order, form, Some("signature"), &mut |part| mac.update(part.as_bytes()));
            mac.verify_slice(signature).is_ok()
        };
        // The forms differ only where a string means something else than printable ASCII, so that a
        // forged line of plain text costs one pass and not three.
        let has_del = text.contains('\u{7f}') || text.contains("\\u007");
        let has_more = has_del || !text.is_ascii() || text.contains("\\u");
        valid(Form::Ascii)
            || (has_more && valid(Form::Utf8 { escape_del: false }))
            || (has_del && valid(Form::Utf8 { escape_del: true }))
    }

    fn mac(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(self.text.as_bytes()).expect("HMAC takes a key of any length")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why there is no secret.
#[derive(Debug)]
#[non_exhaustive]
pub enum SecretError {
    /// It has no bytes.
    Empty,
    /// It is longer than [`MAX_SECRET_BYTES`].
    TooLong,
    /// It is not UTF-8.
    NotUtf8,
    /// The file cannot be opened or read.
    Unreadable(PathBuf, io::Error),
    /// The file was read, but what it holds is no secret.
    InFile(PathBuf, Box<SecretError>),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretError::Empty => f.write_str("the secret is empty"),
            SecretError::TooLong => write!(f, "the secret is longer than {MAX_SECRET_BYTES} bytes"),
            SecretError::NotUtf8 => f.write_str("the secret is not UTF-8 text"),
            SecretError::Unreadable(path, error) => {
                write!(f, "reading the secret file {}: {error}", path.display())
            }
            SecretError::InFile(path, fault) => write!(f, "the secret file {}: {fault}", path.display()),
        }
    }
}

impl std::error::Error for SecretError {}

#[cfg(test)]
mod tests {
    use super::super::hex;
    use super::*;

    #[test]
    fn signs_as_rfc_4231_says() {
        let secret = Secret::new("Jefe").unwrap();
        let text = "what do ya want for nothing?";
        let signature = secret.sign(text);
        assert_eq!(
            hex::encode(&signature),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(secret.verify(text, &signature));
        assert!(!secret.verify("what do you want for nothing?", &signature));
        assert!(!Secret::new("jefe").unwrap().verify(text, &signature));
    }

    #[test]
    fn debug_hides_it() {
        assert_eq!(format!("{:?}", Secret::new("hunter2").unwrap()), "Secret(…)");
    }

    #[test]
    fn a_file_loses_one_line_end_and_only_one() {
        let path = std::env::temp_dir().join(format!("wire-secret-{}", std::process::id()));
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Secret::from_file(&path).map(|secret| secret.expose().to_owned()).map_err(|e| e.to_string())
        };
        assert_eq!(read(b"top").unwrap(), "top");
        assert_eq!(read(b"top\n").unwrap(), "top");
        assert_eq!(read(b"top\r\n").unwrap(), "top");
        assert_eq!(read(b" top \n\n").unwrap(), " top \n");
        assert_eq!(read(b"top\r").unwrap(), "top\r");
        assert_eq!(read("schlüssel\n".as_bytes()).unwrap(), "schlüssel");
        for empty in [&b""[..], b"\n", b"\r\n"] {
            assert!(read(empty).unwrap_err().ends_with("the secret is empty"));
        }
        assert!(read(b"\xff\n").unwrap_err().ends_with("not UTF-8 text"));
        assert!(read(&[b'x'; MAX_SECRET_BYTES + 9]).unwrap_err().contains("longer than 65536"));
        std::fs::remove_file(&path).unwrap();
        let missing = Secret::from_file(&path).unwrap_err().to_string();
        assert!(missing.contains("reading the secret file /"), "{missing}");
    }
}
