//! Keys: what they are in memory, and how they lie in files.
//!
//! A key file holds the base64 of the 32 raw bytes and a newline; blanks around it do no harm. A private
//! one is created with mode 0600. Neither is overwritten unless asked to.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rustix::fs::{renameat_with, RenameFlags, CWD};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::CapsuleError;
use crate::base64::{self, is_space};
use crate::input;
use crate::wire::hex;

/// The longest key file that is read; a key has 45 bytes.
const MAX_KEY_FILE: u64 = 4096;

/// An Ed25519 public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey {
    bytes: [u8; 32],
}

/// An Ed25519 private key; never shown by `Debug`.
#[derive(Clone)]
pub struct PrivateKey {
    pub(super) key: Box<SigningKey>,
}

/// The bytes of a shared key; never shown by `Debug`.
#[derive(Clone)]
pub struct HmacKey {
    pub(super) bytes: Vec<u8>,
}

impl PublicKey {
    /// The key that is this text.
    ///
    /// # Errors
    /// It is not the base64 of 32 bytes.
    pub fn parse(text: &str) -> Result<PublicKey, CapsuleError> {
        let bytes = key_bytes(text).ok_or_else(|| CapsuleError::Key("invalid Ed25519 public key".into()))?;
        Ok(PublicKey { bytes })
    }

    /// The key in this file.
    ///
    /// # Errors
    /// The file cannot be read or holds no key.
    pub fn read(path: &Path) -> Result<PublicKey, CapsuleError> {
        PublicKey::parse(&read_key(path, "public")?)
    }

    /// As it stands in files and headers.
    pub fn text(&self) -> String {
        base64::encode(&self.bytes)
    }

    /// The SHA-256 of the raw key, in lower-case hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        hex::encode(&Sha256::digest(self.bytes))
    }

    /// Whether `signature`, the base64 of 64 bytes, is this key's over `text`.
    pub fn verifies(&self, text: &str, signature: &str) -> bool {
        let value = base64::decode(signature).ok().and_then(|bytes| Signature::from_slice(&bytes).ok());
        let key = self.verifying();
        value.zip(key).is_some_and(|(value, key)| key.verify_strict(text.as_bytes(), &value).is_ok())
    }

    /// The key to check signatures with. One of the few weak ones, with which a signature can be valid
    /// for any message, is none.
    pub(super) fn verifying(&self) -> Option<VerifyingKey> {
        VerifyingKey::from_bytes(&self.bytes).ok().filter(|key| !key.is_weak())
    }

    /// The key, if signatures can be checked with it.
    ///
    /// # Errors
    /// It is no point of the curve, or a weak one.
    pub fn usable(self) -> Result<PublicKey, CapsuleError> {
        match self.verifying() {
            Some(_) => Ok(self),
            None => Err(CapsuleError::Key("invalid Ed25519 public key".into())),
        }
    }
}

impl PrivateKey {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn generate() -> Result<PrivateKey, CapsuleError> {
        let mut bytes = [0; 32];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| CapsuleError::Io(format!("drawing random bytes: {error}")))?;
        if filled != bytes.len() {
            return Err(CapsuleError::Io("drawing random bytes: too few".into()));
        }
        Ok(PrivateKey { key: Box::new(SigningKey::from_bytes(&bytes)) })
    }

    /// The key that is this text, as [`PrivateKey::text`] says it.
    ///
    /// # Errors
    /// It is not the base64 of 32 bytes.
    pub fn parse(text: &str) -> Result<PrivateKey, CapsuleError> {
        let bytes = key_bytes(text).ok_or_else(|| CapsuleError::Key("invalid Ed25519 private key".into()))?;
        Ok(PrivateKey { key: Box::new(SigningKey::from_bytes(&bytes)) })
    }

    /// The secret itself, as it stands in files.
    pub fn text(&self) -> String {
        base64::encode(self.key.as_bytes())
    }

    /// The key in this file.
    ///
    /// # Errors
    /// The file cannot be read or holds no key.
    pub fn read(path: &Path) -> Result<PrivateKey, CapsuleError> {
        let bytes = key_bytes(&read_key(path, "private")?);
        let bytes = bytes.ok_or_else(|| CapsuleError::Key("invalid Ed25519 private key".into()))?;
        Ok(PrivateKey { key: Box::new(SigningKey::from_bytes(&bytes)) })
    }

    /// Its signature over `text`, in base64. Whoever signs texts of several kinds sees to it that none can be
    /// taken for another.
    pub fn sign_text(&self, text: &str) -> String {
        base64::encode(&self.key.sign(text.as_bytes()).to_bytes())
    }

    /// The key that checks what this one signs.
    pub fn public(&self) -> PublicKey {
        PublicKey { bytes: self.key.verifying_key().to_bytes() }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

impl HmacKey {
    /// The key that is these bytes.
    ///
    /// # Errors
    /// There are none: a signature with an empty key is anyone's.
    pub fn new(bytes: &[u8]) -> Result<HmacKey, CapsuleError> {
        if bytes.is_empty() {
            return Err(CapsuleError::Key("the HMAC key is empty".into()));
        }
        Ok(HmacKey { bytes: bytes.to_vec() })
    }
}

impl fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HmacKey(…)")
    }
}

/// Writes a new pair.
///
/// # Errors
/// A file is there already and `force` is not set, both paths are the same, or writing failed.
pub fn generate(private: &Path, public: &Path, force: bool) -> Result<PublicKey, CapsuleError> {
    if private == public {
        return Err(CapsuleError::Key("the two keys need two files".into()));
    }
    for path in [private, public] {
        if !force && path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
    }
    let key = PrivateKey::generate()?;
    let text = base64::encode(key.key.as_bytes());
    // Both are written before one is put in its place, so that an old pair stays a pair.
    let private = KeyFile::write(private, &text, 0o600)?;
    let public = KeyFile::write(public, &key.public().text(), 0o644)?;
    private.place(force)?;
    public.place(force).inspect_err(|_| {
        if !force {
            let _ = fs::remove_file(private.path); // Half a pair is of no use to anyone.
        }
    })?;
    Ok(key.public())
}

/// A key file beside its place; dropped, it leaves nothing there.
struct KeyFile<'a> {
    path: &'a Path,
    new: PathBuf,
}

impl<'a> KeyFile<'a> {
    fn write(path: &'a Path, text: &str, mode: u32) -> Result<KeyFile<'a>, CapsuleError> {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(path.file_name().unwrap_or_default());
        hidden.push(format!(".{}", std::process::id()));
        let mut options = OpenOptions::new();
        let failed =
            |error: io::Error| CapsuleError::Io(format!("writing the key file {}: {error}", path.display()));
        let new = path.with_file_name(hidden);
        let mut file = options.write(true).create_new(true).mode(mode).open(&new).map_err(failed)?;
        let key_file = KeyFile { path, new };
        file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(key_file)
    }

    /// An old file is replaced and not overwritten, so that its mode and other names do not stay.
    fn place(&self, force: bool) -> Result<(), CapsuleError> {
        let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &self.new, CWD, self.path, flags) {
            // A file system without such flags; it was looked whether one is there.
            Err(Errno::INVAL) if !force => fs::rename(&self.new, self.path),
            placed => placed.map_err(io::Error::from),
        }
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(self.path),
            _ => CapsuleError::Io(format!("writing the key file {}: {error}", self.path.display())),
        })
    }
}

impl Drop for KeyFile<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.new); // Not there any more if all went well.
    }
}

fn exists(path: &Path) -> CapsuleError {
    CapsuleError::Key(format!("key file already exists: {}", path.display()))
}

fn read_key(path: &Path, kind: &str) -> Result<String, CapsuleError> {
    match input::read_text(path, MAX_KEY_FILE) {
        Ok(text) => Ok(text),
        // Too long, or not UTF-8.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::Other) => {
            Err(CapsuleError::Key(format!("invalid Ed25519 {kind} key")))
        }
        Err(_) => Err(CapsuleError::Key(format!("failed to read Ed25519 {kind} key: {}", path.display()))),
    }
}

fn key_bytes(text: &str) -> Option<[u8; 32]> {
    base64::decode(text.trim_matches(is_space)).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_base64_of_32_bytes_and_nothing_else() {
        let text = "jK0yAtNOa9xBujtMQgt+giqxwaSToGF4/r2zI/c0NAk=";
        let key = PublicKey::parse(&format!(" {text}\r\n")).unwrap();
        assert_eq!(key.text(), text);
        assert_eq!(key.fingerprint(), "c3456750de1904cf63fac17135fe9dd68482f3edc7ddf73cd1f5dc09a6814979");
        for wrong in ["", "AAAA", "jK0yAtNOa9xBujtMQgt+giqxwaSToGF4/r2zI/c0NAk", "!!"] {
            assert!(PublicKey::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_key_that_signs_anything_is_no_key() {
        let zero = PublicKey::parse("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap();
        assert!(zero.verifying().is_none());
        assert!(zero.usable().is_err());
        assert!(PrivateKey::generate().unwrap().public().usable().is_ok());
    }

    #[test]
    fn debug_hides_secrets() {
        assert_eq!(format!("{:?}", HmacKey::new(b"hunter2").unwrap()), "HmacKey(…)");
        assert_eq!(format!("{:?}", PrivateKey::generate().unwrap()), "PrivateKey(…)");
        assert!(HmacKey::new(b"").is_err());
    }
}
