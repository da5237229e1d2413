//! A generation on disk, `agents/<id>/harness/<generation>/`: `agent.py` (and `agent.capsule`, if it
//! came in one), `meta.json`, `memory.json`, for a while `resume.json`. A directory without `meta.json` was never committed.

use super::package::Sealed;
use super::record::Origin;
use crate::agent::Keep;
use crate::capsule::Signer;
use crate::crash;
use crate::state::{self, Syncer};
use crate::sync::lock;
use crate::wire::hex;
use serde_json::{json, Map, Value};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The form of `meta.json`; a later one may need to know what it reads.
const VERSION: u64 = 1;

/// The folder of an agent's generations, in its home.
pub(super) const HARNESS: &str = "harness";
const SOURCE: &str = "agent.py";
const CAPSULE: &str = "agent.capsule";
const META: &str = "meta.json";
const MEMORY: &str = "memory.json";
/// What an interrupted activation was given, until `on_resume` is about to get it.
const RESUME: &str = "resume.json";
/// `meta.json` before the commit.
const PREPARED: &str = "meta.json.prepared";

/// Where a generation is kept.
pub(super) struct Harness {
    dir: PathBuf,
    syncer: Arc<Syncer>,
    /// It was discarded: nothing is written there any more.
    gone: Mutex<bool>,
}

/// What is kept of a generation beside its source and its memory.
#[derive(Clone)]
pub(super) struct Meta {
    pub(super) sequence: u64,
    pub(super) origin: Origin,
    /// Unix seconds.
    pub(super) registered_at: i64,
    pub(super) metadata: Map<String, Value>,
    pub(super) trace: Vec<Value>,
    /// The name of its own directory, beside the harness.
    pub(super) state_dir: String,
    /// The transfer that brought it, as long as only the ledger says whether it was accepted.
    pub(super) transfer: Option<String>,
}

/// A generation as it was found on disk.
pub(super) struct Stored {
    pub(super) meta: Meta,
    pub(super) source: String,
    pub(super) sealed: Option<Sealed>,
    pub(super) memory: Option<String>,
    /// `memory.json`, if it was there and did not parse.
    pub(super) damaged_memory: Option<PathBuf>,
    /// What `on_resume` is to get, if it has not yet.
    pub(super) resume: Option<String>,
}

impl Harness {
    pub(super) fn new(home: &Path, generation: u64, syncer: &Arc<Syncer>) -> Self {
        let dir = home.join(HARNESS).join(generation.to_string());
        Harness { dir, syncer: Arc::clone(syncer), gone: Mutex::new(false) }
    }

    /// Makes its directory, before anything else of the generation is there: at the next start it says
    /// that the files beside it are a node's to remove, if no record speaks for them.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn make(&self) -> io::Result<()> {
        for _ in 0..100 {
            match state::make_durable_dir(&self.dir) {
                // The last of an older generation went, and the folders above with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
        state::make_durable_dir(&self.dir)
    }

    /// Writes everything but the memory, durably, and commits nothing.
    ///
    /// # Errors
    /// What the system says; [`Harness::discard`] removes what was written.
    pub(super) fn prepare(&self, source: &str, sealed: Option<&Sealed>, meta: &Meta) -> io::Result<()> {
        write_new(&self.dir.join(SOURCE), source.as_bytes())?;
        crash::point("source-written");
        if let Some(sealed) = sealed {
            write_new(&self.dir.join(CAPSULE), sealed.text.as_bytes())?;
        }
        write_new(&self.dir.join(PREPARED), meta_text(meta, source, sealed).as_bytes())
    }

    /// Makes what was prepared the agent's generation, with the memory that it begins with.
    ///
    /// # Errors
    /// What the system says; then nothing is committed.
    pub(super) fn commit(&self, memory: Option<&str>) -> io::Result<()> {
        if let Some(memory) = memory {
            write_new(&self.dir.join(MEMORY), memory.as_bytes())?;
        }
        crash::point("first-memory-written");
        fs::rename(self.dir.join(PREPARED), self.dir.join(META))?;
        state::sync_dir(&self.dir)
    }

    /// Replaces `meta.json`.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn rewrite(&self, source: &str, sealed: Option<&Sealed>, meta: &Meta) -> io::Result<()> {
        let gone = lock(&self.gone);
        if *gone {
            return Ok(());
        }
        state::write_durably(&self.dir.join(META), meta_text(meta, source, sealed).as_bytes())
    }

    /// Removes the generation alone: the directory above it, which goes with the agent's files, says at
    /// the next start that those are nobody's. A kill in the middle leaves what was never committed.
    ///
    /// # Errors
    /// What makes it a generation can't be removed: at the next start it is one again, unless a later one
    /// or a transfer says otherwise.
    pub(super) fn discard(&self) -> io::Result<()> {
        let mut gone = lock(&self.gone);
        *gone = true;
        if self.dir.exists() {
            state::remove_durably(&self.dir.join(META))?;
            crash::point("record-uncommitted");
            // One by one first: listing a directory takes a descriptor, and the want of one may be why.
            for name in [SOURCE, CAPSULE, PREPARED, MEMORY] {
                let _ = fs::remove_file(self.dir.join(name));
            }
            if fs::remove_dir(&self.dir).is_err() {
                let _ = state::remove_tree(&self.dir); // the next start tries again
            }
            crash::point("record-removed");
        }
        Ok(())
    }

    /// Syncs the memory, if that is due: before a transfer, say.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn sync_memory(&self) -> io::Result<()> {
        if *lock(&self.gone) {
            return Ok(());
        }
        self.syncer.force(&self.dir.join(MEMORY))
    }

    /// Notes what `on_resume` is to get, durably.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn note_resume(&self, payload: &str) -> io::Result<()> {
        state::write_durably(&self.dir.join(RESUME), payload.as_bytes())
    }

    /// `on_resume` is about to get it: no later run gives it once more.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn take_resume(&self) -> io::Result<()> {
        state::remove_durably(&self.dir.join(RESUME))
    }

    /// Reads a generation; `None` if it was never committed.
    ///
    /// # Errors
    /// The file that is damaged, and how.
    pub(super) fn read(&self) -> Result<Option<Stored>, String> {
        let text = |name: &str| read_text(&self.dir.join(name));
        let Some(meta) = text(META)? else { return Ok(None) };
        let wrong = |why: &str| format!("{}: {why}", self.dir.join(META).display());
        let (parsed, meta) = parse_meta(&meta).map_err(|why| wrong(&why))?;
        let source = text(SOURCE)?.ok_or_else(|| wrong("agent.py is missing beside it"))?;
        let capsule = text(CAPSULE)?;
        for (name, content) in [("source_sha256", Some(&source)), ("capsule_sha256", capsule.as_ref())] {
            // An earlier version noted none.
            let noted = parsed[name].as_str();
            if noted.is_some() && noted != content.map(|content| digest(content)).as_deref() {
                return Err(wrong(&format!("{name} is another than that of the file beside it")));
            }
        }
        let sealed = capsule.map(|capsule| read_sealed(capsule, &parsed));
        let (memory, damaged_memory) = match text(MEMORY) {
            Ok(Some(memory)) if crate::wire::parse(&memory).is_ok() => (Some(memory), None),
            Ok(None) => (None, None),
            _ => (None, Some(self.dir.join(MEMORY))),
        };
        let resume = text(RESUME).ok().flatten().filter(|payload| crate::wire::parse(payload).is_ok());
        Ok(Some(Stored { meta, source, sealed, memory, damaged_memory, resume }))
    }
}

impl Keep for Harness {
    fn keep(&self, memory: &str) -> io::Result<()> {
        let gone = lock(&self.gone);
        if *gone {
            return Ok(());
        }
        let file = self.dir.join(MEMORY);
        state::write(&file, memory.as_bytes())?;
        crash::point("memory-kept");
        self.syncer.written(&file)
    }
}

/// Writes a file into a directory that nobody reads yet, durably but for the directory's own entry.
fn write_new(file: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let mut out = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
    out.write_all(content)?;
    out.sync_all()
}

fn read_text(file: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

fn meta_text(meta: &Meta, source: &str, sealed: Option<&Sealed>) -> String {
    json!({
        "version": VERSION,
        // A source that was cut may well load, as another agent.
        "source_sha256": digest(source),
        "capsule_sha256": sealed.map(|sealed| digest(&sealed.text)),
        "sequence": meta.sequence,
        "origin": meta.origin.as_str(),
        "registered_at": meta.registered_at,
        "metadata": meta.metadata,
        "trace": meta.trace,
        "state_dir": meta.state_dir,
        "transfer": meta.transfer,
        "requested_capabilities": sealed.and_then(|sealed| sealed.requested.clone()),
        "signer": sealed.map(Sealed::signer_json),
    })
    .to_string()
}

fn digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text))
}

/// Reads what [`meta_text`] wrote; the first is the whole of it.
///
/// # Errors
/// It is no JSON, or the member that is wrong.
pub(super) fn parse_meta(text: &str) -> Result<(Value, Meta), String> {
    let parsed: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let meta = read_meta(&parsed).map_err(|name| format!("{name:?} is missing or no such thing"))?;
    Ok((parsed, meta))
}

/// The error is the member that is wrong.
fn read_meta(meta: &Value) -> Result<Meta, &'static str> {
    let own_name = |name: &&str| *name == "state" || name.strip_prefix("state.").is_some_and(is_number);
    Ok(Meta {
        sequence: meta["sequence"].as_u64().ok_or("sequence")?,
        origin: meta["origin"].as_str().and_then(Origin::named).ok_or("origin")?,
        registered_at: meta["registered_at"].as_i64().ok_or("registered_at")?,
        metadata: meta["metadata"].as_object().cloned().ok_or("metadata")?,
        trace: meta["trace"].as_array().cloned().ok_or("trace")?,
        state_dir: meta["state_dir"].as_str().filter(own_name).ok_or("state_dir")?.to_owned(),
        transfer: meta["transfer"].as_str().map(str::to_owned),
    })
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn read_sealed(text: String, meta: &Value) -> Sealed {
    let texts = |value: &Value| {
        let list = value.as_array()?;
        Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    Sealed {
        text,
        requested: texts(&meta["requested_capabilities"]),
        signer: Signer::from_json(&meta["signer"]),
    }
}
