//! Packing: a file or a directory into a capsule.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::bundle::{check_path, Writer};
use super::envelope::{BEGIN, END, PAYLOAD, VERSION};
use super::manifest::{self, ManifestFile, DEFAULT_TYPE};
use super::signature::{self, ED25519, HMAC, NONE};
use super::{codec, walk, CapsuleError, Headers, HmacKey, PrivateKey, BUNDLE_TYPE, FILE_TYPE};
use crate::carrier::{Model, NGram};
use crate::wire::{hex, unix_now};
use crate::{base64, clock};

/// How many bytes are packed at most. A capsule is for chat and mail; the default policy of a receiver
/// takes 16 MiB.
pub const MAX_PACKED_BYTES: u64 = 512 << 20;

/// What goes into a capsule.
#[derive(Clone, Debug)]
pub struct Content {
    content_type: &'static str,
    filename: Option<String>,
    payload: Vec<u8>,
    sha256: [u8; 32],
    files: Vec<ManifestFile>,
}

impl Content {
    /// One file.
    ///
    /// # Errors
    /// Its name is one that no receiver would create.
    pub fn file(name: &str, payload: Vec<u8>) -> Result<Content, CapsuleError> {
        if name.contains('/') || check_path(name).is_err() {
            return Err(CapsuleError::Filename(name.into()));
        }
        let sha256 = Sha256::digest(&payload).into();
        let file = ManifestFile { path: name.into(), bytes: payload.len() as u64, sha256 };
        let filename = Some(name.into());
        Ok(Content { content_type: FILE_TYPE, filename, payload, sha256, files: vec![file] })
    }

    /// A bundle.
    pub fn bundle(writer: Writer) -> Content {
        let (payload, files) = writer.finish();
        let sha256 = Sha256::digest(&payload).into();
        Content { content_type: BUNDLE_TYPE, filename: None, payload, sha256, files }
    }

    /// The file or directory at that path.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read(path: &Path) -> Result<Content, CapsuleError> {
        if path.is_dir() {
            let mut writer = Writer::default();
            walk::add_directory(&mut writer, path, "")?;
            return Ok(Content::bundle(writer));
        }
        if !path.is_file() {
            let what = format!("input path is not a file or directory: {}", path.display());
            return Err(CapsuleError::Pack(what));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| CapsuleError::Pack("the file's name is not UTF-8".into()))?;
        Content::file(name, walk::read_file(path, MAX_PACKED_BYTES)?)
    }

    /// The payload's size.
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }
}

/// How a capsule is signed.
#[derive(Clone, Debug, Default)]
pub enum Signing {
    /// Not at all.
    #[default]
    None,
    /// With a shared key.
    Hmac(HmacKey),
    /// With a key pair.
    Ed25519 {
        /// The key.
        key: Box<PrivateKey>,
        /// Whether the public key travels in the capsule.
        inline: bool,
    },
}

/// What the sender says besides the content.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// A codec of [`codec::CODECS`].
    pub codec: String,
    /// The model of `lmcodec-ngram-v2`, which goes into the headers.
    pub model: Option<Box<NGram>>,
    /// Manifest: what kind of capsule it is.
    pub capsule_type: String,
    /// Manifest and header: who made it.
    pub created_by: String,
    /// Header: when, `2026-05-09T00:00:00Z`.
    pub created_at: String,
    /// Manifest: the task it belongs to.
    pub task_id: String,
    /// Manifest: one of [`manifest::DELIVERY_MODES`].
    pub delivery_mode: String,
    /// Manifest: where it is to be found.
    pub delivery_uri: Option<String>,
    /// Manifest: what the sender wants to be allowed.
    pub requested_capabilities: Vec<String>,
    /// Manifest: added to the default hints, or instead of them.
    pub policy_hints: BTreeMap<String, bool>,
    /// How it is signed.
    pub signing: Signing,
    /// What the signing key is called; not written without a signature.
    pub key_id: Option<String>,
}

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions {
            codec: codec::BASE64.into(),
            model: None,
            capsule_type: DEFAULT_TYPE.into(),
            created_by: "local".into(),
            created_at: clock::utc(unix_now()),
            task_id: String::new(),
            delivery_mode: "inline".into(),
            delivery_uri: None,
            requested_capabilities: Vec::new(),
            policy_hints: BTreeMap::new(),
            signing: Signing::None,
            key_id: None,
        }
    }
}

/// What was packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The codec's name.
    pub codec: String,
    /// The content type.
    pub content_type: &'static str,
    /// The payload's size.
    pub payload_bytes: u64,
    /// The payload's hash, in hexadecimal digits.
    pub payload_sha256: String,
}

/// Writes a capsule.
///
/// # Errors
/// An option that cannot be written, or `out` fails.
pub fn pack(content: &Content, options: &PackOptions, out: &mut dyn Write) -> Result<Packed, CapsuleError> {
    let payload_sha256 = hex::encode(&content.sha256);
    let mut headers = headers(content, options, &payload_sha256)?;
    let payload = &content.payload;
    let carrier = carrier_text(payload, options, &mut headers)?;
    let io = |error: std::io::Error| CapsuleError::Io(format!("writing the capsule: {error}"));
    match &options.signing {
        Signing::Ed25519 { key, .. } => {
            // The algorithm goes through the message twice.
            let text = carrier.unwrap_or_else(|| base64::encode(payload));
            let value = signature::sign_ed25519(&headers, key, &text)?;
            headers.set("signature_value", &value)?;
            begin(&headers, out).and_then(|()| out.write_all(text.as_bytes())).map_err(io)?;
        }
        signing => {
            if let Signing::Hmac(key) = signing {
                let value = signature::sign_hmac(&headers, key, |update| {
                    if let Some(text) = &carrier {
                        return update(text.as_bytes());
                    }
                    let fed: Result<(), ()> = base64::encode_parts(payload, |part| {
                        update(part);
                        Ok(())
                    });
                    debug_assert_eq!(fed, Ok(()));
                });
                headers.set("signature_value", &value)?;
            }
            begin(&headers, out).map_err(io)?;
            match carrier {
                Some(text) => out.write_all(text.as_bytes()),
                // Coded on the way out: the text is never in memory as a whole.
                None => base64::encode_parts(payload, |part| out.write_all(part)),
            }
            .map_err(io)?;
        }
    }
    out.write_all(format!("\n{END}\n").as_bytes()).and_then(|()| out.flush()).map_err(io)?;
    Ok(Packed {
        codec: options.codec.clone(),
        content_type: content.content_type,
        payload_bytes: payload.len() as u64,
        payload_sha256,
    })
}

/// The text of a carrier codec, whose model goes into the headers; none of base64.
fn carrier_text(
    payload: &[u8],
    options: &PackOptions,
    headers: &mut Headers,
) -> Result<Option<String>, CapsuleError> {
    let model = match (&*options.codec, &options.model) {
        (codec::NGRAM, Some(model)) => {
            codec::set_model(headers, model)?;
            Model::NGram(model.clone())
        }
        (codec::NGRAM, None) => {
            return Err(CapsuleError::Pack(format!("{} requires --model", codec::NGRAM)));
        }
        (codec, Some(_)) => {
            return Err(CapsuleError::Pack(format!("--model is not supported for codec: {codec}")));
        }
        (codec::FIXED, None) => Model::Fixed,
        _ => return Ok(None),
    };
    codec::encode_carrier(payload, &model).map(Some)
}

/// Everything up to the payload text.
fn begin(headers: &Headers, out: &mut dyn Write) -> std::io::Result<()> {
    out.write_all(format!("{BEGIN}\n{}{PAYLOAD}\n", headers.lines()).as_bytes())
}

/// All headers but the signature's value.
fn headers(content: &Content, options: &PackOptions, sha256: &str) -> Result<Headers, CapsuleError> {
    if codec::named(&options.codec).is_none() {
        let known: Vec<_> = codec::CODECS.iter().map(|codec| codec.name).collect();
        let what = format!("unknown capsule codec: {} (there are: {})", options.codec, known.join(", "));
        return Err(CapsuleError::Pack(what));
    }
    let mut headers = Headers::default();
    headers.set("capsule_version", VERSION)?;
    headers.set("codec", &options.codec)?;
    headers.set("content_type", content.content_type)?;
    headers.set("capsule_manifest", &manifest::write(options, &content.files)?)?;
    headers.set("payload_sha256", sha256)?;
    headers.set("compression", "none")?;
    headers.set("encryption", "none")?;
    headers.set("created_by", &options.created_by)?;
    headers.set("created_at", &options.created_at)?;
    headers.set("policy", "inspect-before-use")?;
    if let Some(name) = &content.filename {
        headers.set("filename", name)?;
    }
    let mode = match &options.signing {
        Signing::None => NONE,
        Signing::Hmac(_) => HMAC,
        Signing::Ed25519 { key, inline } => {
            let public = key.public();
            headers.set("signature_public_key_fingerprint", &public.fingerprint())?;
            headers.set("signature_value_encoding", "base64")?;
            if *inline {
                headers.set("signature_public_key_encoding", "base64")?;
                headers.set("signature_public_key", &public.text())?;
            }
            ED25519
        }
    };
    headers.set("signature", mode)?;
    match &options.key_id {
        Some(key_id) if mode != NONE && !key_id.is_empty() => headers.set("signature_key_id", key_id)?,
        _ => {}
    }
    Ok(headers)
}
