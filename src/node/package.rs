//! The form in which an agent comes in a message: its source, or a capsule that holds it.

use super::messages::StateFile;
use super::Node;
use crate::agent::Manifest;
use crate::base64;
use crate::capsule::{self, agent, Payload, Policy, Registry, Signer};
use crate::wire::{self, Code, Failure};
use serde_json::Value;
use std::sync::Arc;

/// An agent, taken out of its message.
pub struct Package {
    /// What its source says about itself.
    pub manifest: Manifest,
    /// Its source.
    pub source: Arc<str>,
    /// The capsule that it came in.
    pub sealed: Option<Arc<Sealed>>,
    /// The memory that the capsule holds.
    pub memory: Option<Arc<str>>,
    /// The files that the capsule holds.
    pub files: Vec<StateFile>,
}

/// A capsule that was checked when it came, kept as it is: its signature must survive the journey.
pub struct Sealed {
    /// The capsule alone, without the text that was around it.
    pub text: String,
    /// What the agent may call at most, by its capsule; none named: what its source asks for.
    pub requested: Option<Vec<String>>,
    /// Who signed it with a key pair.
    pub signer: Option<Signer>,
}

impl Sealed {
    /// The signer, as `list_agents` and `describe_container` tell it.
    pub fn signer_json(&self) -> Value {
        self.signer.as_ref().map_or(Value::Null, Signer::to_json)
    }
}

impl Node {
    /// Takes an agent out of its message. A capsule is checked under this node's policy and trust
    /// registry before anything in it is looked at.
    ///
    /// # Errors
    /// `bad_payload`: neither a source nor a capsule, or both; no manifest in a plain source.
    /// `rejected`: the capsule breaks a rule, or holds no agent.
    pub fn open_package(&self, source: Option<&str>, capsule: Option<&str>) -> Result<Package, Failure> {
        match (source, capsule) {
            (Some(source), None) => {
                let manifest = Manifest::read(source)
                    .map_err(|why| Failure::new(Code::BadPayload, format!("the source: {why}")))?;
                Ok(Package { manifest, source: source.into(), sealed: None, memory: None, files: Vec::new() })
            }
            (None, Some(text)) => self.open_capsule(text),
            (None, None) => {
                Err(Failure::new(Code::BadPayload, "the payload has neither source_code nor capsule"))
            }
            (Some(_), Some(_)) => {
                Err(Failure::new(Code::BadPayload, "the payload has both source_code and capsule"))
            }
        }
    }

    fn open_capsule(&self, text: &str) -> Result<Package, Failure> {
        let registry = self.trust_registry()?;
        open(text, &self.config().capsule_policy, registry.as_ref())
            .map_err(|why| Failure::new(Code::Rejected, format!("the capsule: {why}")))
    }

    /// The registry as it is now: a key that was revoked a moment ago counts as revoked.
    fn trust_registry(&self) -> Result<Option<Registry>, Failure> {
        let Some(file) = &self.config().keys.trust_registry else { return Ok(None) };
        capsule::registry_file::read(file)
            .map(Some)
            .map_err(|error| Failure::new(Code::Internal, format!("the trust registry: {error}")))
    }
}

/// Whether a text holds a capsule.
pub fn is_capsule(text: &str) -> bool {
    // A quoted one is meant as one too: its own error says what is wrong with it.
    text.lines().any(|line| {
        line.trim_start_matches(['>', ' ', '\t', '\u{feff}']).trim_end() == capsule::envelope::BEGIN
    })
}

/// Checks a capsule and takes the agent out of it.
///
/// # Errors
/// The rule that it breaks, or that it holds no agent.
pub fn open(text: &str, policy: &Policy, registry: Option<&Registry>) -> Result<Package, String> {
    let opened = capsule::open(text, policy, registry).map_err(|error| error.to_string())?;
    let (source, memory, files) = contents(&opened.payload)?;
    let manifest = Manifest::read(source).map_err(|why| format!("{}: {why}", agent::SOURCE))?;
    let source = source.into();
    let requested = opened.manifest.map(|manifest| manifest.requested_capabilities);
    let sealed = Sealed {
        requested: requested.filter(|requested| !requested.is_empty()),
        signer: opened.signer,
        text: opened.text,
    };
    Ok(Package { manifest, source, sealed: Some(Arc::new(sealed)), memory, files })
}

type Contents<'a> = (&'a str, Option<Arc<str>>, Vec<StateFile>);

/// The source, the memory and the files in a payload.
fn contents(payload: &Payload) -> Result<Contents<'_>, String> {
    let text = |name: &str, bytes| {
        std::str::from_utf8(bytes)
            .map_err(|error| format!("{name} is not UTF-8 (byte {})", error.valid_up_to()))
    };
    let files = match payload {
        Payload::File { name, bytes } if name.ends_with(".py") => {
            return Ok((text(name, bytes)?, None, Vec::new()))
        }
        Payload::File { name, .. } => return Err(format!("it holds {name:?} and no agent")),
        Payload::Bundle(files) => files,
    };
    let (mut source, mut memory, mut state) = (None, None, Vec::new());
    for (path, bytes) in files {
        if path == agent::SOURCE {
            source = Some(text(path, bytes)?);
        } else if path == agent::MEMORY {
            let json = text(path, bytes)?;
            let parsed = wire::parse(json).map_err(|wrong| format!("{path}: {wrong}"))?;
            if !parsed.is_object() {
                return Err(format!("{path} is {}, not an object", parsed.kind()));
            }
            memory = Some(one_line(json));
        } else if let Some(path) = path.strip_prefix(agent::STATE) {
            state.push(StateFile { path: path.to_owned(), content_base64: base64::encode(bytes) });
        } else {
            return Err(format!("it holds {path:?}, which no agent has"));
        }
    }
    Ok((source.ok_or_else(|| format!("it holds no {}", agent::SOURCE))?, memory, state))
}

/// The bridge is lines; a file may hold a text of several.
fn one_line(json: &str) -> Arc<str> {
    match json.contains(['\n', '\r']) {
        true => wire::parse(json)
            .map_or_else(|_| json.into(), |parsed| wire::canonical(&parsed, wire::Form::Ascii, None).into()),
        false => json.into(),
    }
}
