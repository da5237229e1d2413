//! Agent Capsule V0: exact bytes as one block of text that survives chat, tickets and mail.
//!
//! Anyone reads the headers of a capsule; a receiver checks hash, signature and a policy of its own
//! before it unpacks. Nothing here ever runs what a capsule carries.
//!
//! ```text
//! -----BEGIN AGENT CAPSULE-----
//! capsule_version: 0.1                          one header a line
//! codec: base64
//! content_type: application/octet-stream
//! capsule_manifest: {"capsule_type":"agent_handoff",…}
//! payload_sha256: 1e4e935febd33df1abc05eac4cc6b2c05da9a522d5cac4aeff634dbe2b7fa25e
//! compression: none
//! encryption: none
//! signature: none
//! created_by: local
//! created_at: 2026-05-09T00:00:00Z
//! policy: inspect-before-use
//! filename: payload.txt
//! -----PAYLOAD-----
//! YWdlbnQgaGFuZG9mZiBzdGF0ZQo=
//! -----END AGENT CAPSULE-----
//! ```
//!
//! Who reads a capsule goes through these, in this order, and stops at the first that refuses:
//!
//! 1. [`envelope`]: the markers and the header lines; [`manifest`]: what the sender says is inside.
//! 2. [`policy`], as far as the headers tell: codec, signature mode, keys, content type.
//! 3. [`signature`] over every header and the payload text, and what a [`trust`] registry says of its key.
//! 4. [`codec`], the payload's size and its SHA-256.
//! 5. [`bundle`], if it is a directory: each path, size and hash; and only then [`unpack`].
//!
//! # Where this is stricter than the reference implementation
//!
//! What that packs is read here and the other way round, byte for byte; but a capsule is refused here, and
//! taken there, that
//!
//! * has its header lines in another order than the written one, or END twice;
//! * is HMAC-signed with a public key that is known here;
//! * has an END marker within its headers, or a compression or encryption that V0 does not have;
//! * has spare bits in its base64, a key twice in a JSON object, or a boolean for a size;
//! * names a file with a slash, a backslash, NUL, `.` or `..`, or has a bundle with such a path, a path
//!   twice, a wrong hash anywhere (there, what stands before it is written), or a file that is there already;
//! * is unsigned and leaves a trusted key's id in place for the policy, or names a key that one of several
//!   entries of the registry revokes.
//!
//! `inspect` and `scan` report a signature that is wrong or of an unknown mode, and a policy that wants a
//! registry and is not met, as failures; audit events of failures hold the policy in force, not the
//! default. A signature over base64 holds if lines got blanks at their ends. An empty HMAC key is none.
//!
//! # An example
//!
//! ```
//! use agentcontainer::capsule::{self, pack::Content, PackOptions, Payload, Policy};
//!
//! let content = Content::file("note.txt", b"agent handoff state\n".to_vec())?;
//! let options = PackOptions { created_at: "2026-05-09T00:00:00Z".into(), ..PackOptions::default() };
//! let mut text = Vec::new();
//! capsule::pack(&content, &options, &mut text)?;
//! let text = format!("As agreed:\n\n{}\nRegards", String::from_utf8(text)?);
//!
//! let opened = capsule::open(&text, &Policy::default(), None)?;
//! assert!(opened.signer.is_none());
//! let Payload::File { name, bytes } = opened.payload else { panic!("a directory") };
//! assert_eq!((&*name, &*bytes), ("note.txt", &b"agent handoff state\n"[..]));
//!
//! let forged = text.replace("YWdl", "YWdm");
//! let refused = capsule::open(&forged, &Policy::default(), None).unwrap_err();
//! assert_eq!(refused.to_string(), "payload SHA256 mismatch (the payload at line 17 was changed, or its header)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod agent;
pub mod audit;
pub mod bundle;
pub mod codec;
pub mod envelope;
pub mod error;
pub mod headers;
pub mod inspect;
pub mod json;
pub mod keys;
pub mod manifest;
pub mod open;
pub mod pack;
pub mod policy;
pub mod reference;
pub mod registry_file;
pub mod report;
pub mod scan;
pub mod signature;
pub mod snapshot;
pub mod trust;
pub mod unpack;
pub mod verify;
pub mod walk;
pub mod whole_file;

pub use agent::{pack_agent, Agent};
pub use envelope::{normalized, Envelope};
pub use error::CapsuleError;
pub use headers::Headers;
pub use keys::{HmacKey, PrivateKey, PublicKey};
pub use manifest::Manifest;
pub use open::{open, Opened, Payload, Signer};
pub use pack::{pack, PackOptions, Packed, Signing};
pub use policy::Policy;
pub use trust::{Registry, Trust, TrustStatus};
pub use verify::{verify, Keys, Verified};

/// The content type of one file.
pub const FILE_TYPE: &str = "application/octet-stream";

/// The content type of a directory.
pub const BUNDLE_TYPE: &str = "application/vnd.agent.bundle+json";

/// The longest text that is read as one that may hold capsules, in bytes. A policy that allows a larger
/// payload raises it; the default policy's 16 MiB need some 23 MiB.
pub const MAX_TEXT_BYTES: u64 = 256 << 20;
