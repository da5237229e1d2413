//! The outbox: transfers of this node's agents whose end is not known yet, and those whose end the
//! destination has not been told to forget.
//!
//! Moves and queued clones have a file each, `outbox/<transfer>`: a line of JSON, then the request's
//! payload. Once the outcome is known the line stands alone.

use super::federation::{Destination, Pinned};
use super::messages::Mode;
use super::Record;
use crate::agent::Manifest;
use crate::crash;
use crate::state;
use crate::sync::lock;
use crate::wire::{Address, Secret};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The shortest wait before a transfer is tried or asked about again.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest, of one whose destination may have it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest, of one that is queued: its destination may be up for a minute only.
const QUEUED_WAIT: Duration = Duration::from_secs(5);
/// When no copy of a request can be on its way any more that its destination would still find fresh.
const STALE: Duration = Duration::from_secs(3600);

/// Who travels: what a transfer needs of an agent that may be gone from this node.
pub(super) struct Traveller {
    pub(super) id: String,
    /// The generation that goes or is copied; none, if the agent never lived here.
    pub(super) generation: Option<u64>,
    /// What its messages are signed with.
    pub(super) secret: Secret,
    /// A source of which only the manifest is left: it tells a destination the secret.
    pub(super) head: String,
    /// The generation itself, as long as it is here.
    pub(super) record: Mutex<Option<Arc<Record>>>,
}

impl Traveller {
    pub(super) fn of(record: &Arc<Record>) -> Self {
        Traveller {
            generation: Some(record.generation),
            record: Mutex::new(Some(Arc::clone(record))),
            ..Traveller::stranger(record.manifest())
        }
    }

    /// One that never lived here.
    pub(super) fn stranger(manifest: &Manifest) -> Self {
        Traveller {
            id: manifest.id.clone(),
            generation: None,
            secret: manifest.secret.clone(),
            head: manifest.head(),
            record: Mutex::default(),
        }
    }

    /// The generation itself, as long as it is here.
    pub(super) fn record(&self) -> Option<Arc<Record>> {
        lock(&self.record).clone()
    }

    /// The generation has gone, also from the disk: its files may go.
    pub(super) fn release(&self) {
        drop(lock(&self.record).take());
    }
}

/// One transfer, from the call that began it until it can be forgotten.
pub(super) struct Transfer {
    /// Its id, random.
    pub(super) id: String,
    pub(super) mode: Mode,
    pub(super) destination: Destination,
    pub(super) traveller: Traveller,
    /// It stays until it is decided, also when its destination can't be reached.
    pub(super) queued: bool,
    /// Unix seconds.
    created: i64,
    /// The request's payload without its closing brace, so that `timeout` can be added; none: in the
    /// file.
    body: Mutex<Option<Arc<str>>>,
    state: Mutex<State>,
}

struct State {
    /// An attempt may have reached the destination.
    unclear: bool,
    /// Something may have been written to it, as far as the record says.
    tried: bool,
    /// A thread is at it.
    attended: bool,
    outcome: Option<Outcome>,
    /// The outcome is on disk.
    recorded: bool,
    /// From when on the destination may be told to forget; and the same in Unix seconds.
    forget_at: Instant,
    forget_after: i64,
    attempts: u32,
    /// How many of them may have been written to the destination.
    sent: u32,
    wait: Duration,
    next: Instant,
    last_error: String,
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Arrived,
    Refused,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Arrived => "arrived",
            Outcome::Refused => "refused",
        }
    }
}

impl Transfer {
    pub(super) fn new(
        id: String,
        mode: Mode,
        destination: Destination,
        traveller: Traveller,
        queued: bool,
        body: String,
    ) -> Arc<Self> {
        let state = State {
            unclear: false,
            // What is not queued is sent as soon as it is written down.
            tried: !queued,
            attended: true,
            outcome: None,
            recorded: false,
            forget_at: Instant::now(),
            forget_after: 0,
            attempts: 0,
            sent: 0,
            wait: FIRST_WAIT,
            next: Instant::now(),
            last_error: String::new(),
        };
        Arc::new(Transfer {
            id,
            mode,
            destination,
            traveller,
            queued,
            created: crate::wire::unix_now(),
            body: Mutex::new(Some(body.into())),
            state: Mutex::new(state),
        })
    }

    pub(super) fn is_unclear(&self) -> bool {
        lock(&self.state).unclear
    }

    pub(super) fn set_unclear(&self, why: &str) {
        let mut state = lock(&self.state);
        state.unclear = true;
        state.last_error = why.to_owned();
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        lock(&self.state).outcome
    }

    /// Whether nothing was ever written to the destination, in earlier runs neither.
    pub(super) fn is_untried(&self) -> bool {
        !lock(&self.state).tried
    }

    /// Whether the outcome is on disk.
    pub(super) fn is_recorded(&self) -> bool {
        lock(&self.state).recorded
    }

    /// Notes an attempt that begins.
    pub(super) fn begin_attempt(&self) {
        lock(&self.state).attempts += 1;
    }

    /// Notes that it is about to be written to the destination.
    pub(super) fn begin_sending(&self) {
        lock(&self.state).sent += 1;
    }

    /// Why the last attempt brought nothing, for people.
    pub(super) fn set_error(&self, why: &str) {
        lock(&self.state).last_error = why.to_owned();
    }

    /// How long to wait before the next question; longer each time.
    pub(super) fn back_off(&self) -> Duration {
        let mut state = lock(&self.state);
        let wait = state.wait;
        let most = match (state.outcome, self.queued) {
            (Some(_), _) if state.recorded => STALE,
            (Some(_), _) => LONGEST_WAIT,
            (None, true) => QUEUED_WAIT,
            (None, false) => LONGEST_WAIT,
        };
        state.wait = (wait * 2).min(most);
        wait
    }

    /// The thread that attended to it leaves it to the timers.
    pub(super) fn leave(&self) {
        let wait = self.back_off();
        let mut state = lock(&self.state);
        state.attended = false;
        state.next = Instant::now() + wait;
    }

    /// It is due at once.
    pub(super) fn hurry(&self) {
        let mut state = lock(&self.state);
        state.next = Instant::now();
        state.wait = FIRST_WAIT;
    }

    /// Takes it up again, now, if nobody is at it.
    pub(super) fn take(&self) -> bool {
        let mut state = lock(&self.state);
        !std::mem::replace(&mut state.attended, true)
    }

    /// Takes it up again if it is due and nobody is at it.
    fn take_up(&self) -> bool {
        let mut state = lock(&self.state);
        let due = !state.attended && state.next <= Instant::now();
        state.attended |= due;
        due
    }

    /// Notes the outcome, and when the destination may be told to forget: at once, if it answered the
    /// only attempt there was (`direct`), else when no copy of another can still come.
    fn conclude(&self, outcome: Outcome, direct: bool) {
        let mut state = lock(&self.state);
        let only = direct && outcome == Outcome::Arrived && state.sent == 1 && !state.unclear;
        state.outcome = Some(outcome);
        state.attended = false;
        state.wait = FIRST_WAIT;
        let wait = if only { Duration::ZERO } else { STALE };
        state.forget_at = Instant::now() + wait;
        state.next = state.forget_at;
        state.forget_after = crate::wire::unix_now() + i64::try_from(wait.as_secs()).unwrap_or(i64::MAX / 2);
    }

    /// Leaves it until its destination may be told to forget. False: it may be already.
    pub(super) fn leave_until_forgotten(&self) -> bool {
        let mut state = lock(&self.state);
        let early = state.forget_at > Instant::now();
        if early {
            state.attended = false;
            state.wait = FIRST_WAIT;
            state.next = state.forget_at;
        }
        early
    }

    /// How it stands, for people.
    pub(super) fn summary(&self) -> Value {
        let state = lock(&self.state);
        let word = match state.outcome {
            Some(outcome) => outcome.as_str(),
            None if state.unclear => "unclear",
            None => "waiting",
        };
        json!({
            "transfer_id": self.id,
            "agent_id": self.traveller.id,
            "mode": self.mode.as_str(),
            "destination": self.destination.name,
            "address": self.destination.address.to_string(),
            "state": word,
            "queued": self.queued,
            "attempts": state.attempts,
            "created": self.created,
            "last_error": state.last_error,
        })
    }

    fn head(&self) -> Value {
        let (outcome, forget_after, tried) = {
            let state = lock(&self.state);
            (state.outcome, state.forget_after, state.tried)
        };
        let address = &self.destination.address;
        let tls = address.tls.as_ref().map(|tls| Pinned(tls.fingerprints.clone()).to_json());
        json!({
            "transfer": self.id,
            "mode": self.mode.as_str(),
            "agent": self.traveller.id,
            "generation": self.traveller.generation,
            "secret": self.traveller.secret.expose(),
            "head": self.traveller.head,
            "queued": self.queued,
            "created": self.created,
            "destination": {
                "name": self.destination.name,
                "host": address.host,
                "port": address.port,
                "tls": tls,
            },
            "outcome": outcome.map(Outcome::as_str),
            "forget_after": forget_after,
            "tried": tried,
        })
    }
}

/// Transfers under way, by id.
pub(super) struct Outbox {
    dir: PathBuf,
    open: Mutex<HashMap<String, Arc<Transfer>>>,
}

impl Outbox {
    /// The outbox in `dir`, with what earlier runs left there; the second are the files that could not
    /// be read, set aside, each with what is wrong with it. The generations of moves are not known yet.
    ///
    /// # Errors
    /// The directory can't be made or read.
    pub(super) fn open_dir(dir: &Path) -> io::Result<(Self, Vec<Transfer>, Vec<String>)> {
        state::make_durable_dir(dir)?;
        let (mut found, mut damaged) = (Vec::new(), Vec::new());
        for file in state::entries(dir)?.into_iter().filter(|path| !path.is_dir()) {
            let read = fs::read_to_string(&file).map_err(|error| error.to_string());
            match read.and_then(|text| read_transfer(&text)) {
                Ok(transfer) => found.push(transfer),
                Err(why) => {
                    damaged.push(state::set_aside_for(&file, &why));
                }
            }
        }
        Ok((Outbox { dir: dir.to_owned(), open: Mutex::default() }, found, damaged))
    }

    pub(super) fn add(&self, transfer: &Arc<Transfer>) {
        lock(&self.open).insert(transfer.id.clone(), Arc::clone(transfer));
    }

    /// Writes a transfer down, so that it outlives the node.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn store(&self, transfer: &Transfer) -> io::Result<()> {
        let body = self.body(transfer)?;
        let text = format!("{}\n{body}", transfer.head());
        state::write_durably(&self.file(transfer), text.as_bytes())
    }

    /// Writes down that something is about to be written to the destination, before that is done.
    ///
    /// # Errors
    /// What the system says; then nothing may be written to it.
    pub(super) fn try_now(&self, transfer: &Transfer) -> io::Result<()> {
        lock(&transfer.state).tried = true;
        self.store(transfer).inspect_err(|_| lock(&transfer.state).tried = false)
    }

    /// Whether it outlives the node.
    pub(super) fn is_stored(&self, transfer: &Transfer) -> bool {
        self.file(transfer).exists()
    }

    /// The request's payload without its closing brace.
    ///
    /// # Errors
    /// Its file can't be read, or does not hold it whole.
    pub(super) fn body(&self, transfer: &Transfer) -> io::Result<Arc<str>> {
        if let Some(body) = &*lock(&transfer.body) {
            return Ok(Arc::clone(body));
        }
        let text = fs::read_to_string(self.file(transfer))?;
        let body = text.split_once('\n').map_or("", |(_, body)| body);
        match crate::wire::parse(&format!("{body}}}")) {
            Ok(_) => Ok(body.into()),
            Err(wrong) => Err(io::Error::other(format!("it holds no whole request: {}", wrong.what))),
        }
    }

    /// Leaves a stored transfer's payload to its file: it may be long, and wait for days.
    pub(super) fn rest(&self, transfer: &Transfer) {
        if self.is_stored(transfer) {
            *lock(&transfer.body) = None;
        }
    }

    /// Writes the outcome down, in place of the request.
    ///
    /// # Errors
    /// What the system says: the transfer stays open on disk, and after a restart its destination, which
    /// must not be told to forget before this has succeeded, is asked again and says the same.
    pub(super) fn conclude(&self, transfer: &Transfer, outcome: Outcome, direct: bool) -> io::Result<()> {
        transfer.conclude(outcome, direct);
        *lock(&transfer.body) = None;
        // The timers try that again.
        self.record(transfer).inspect_err(|_| transfer.hurry())
    }

    /// Writes the outcome down, if that has not succeeded yet.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn record(&self, transfer: &Transfer) -> io::Result<()> {
        if !transfer.is_recorded() {
            state::write_durably(&self.file(transfer), format!("{}\n", transfer.head()).as_bytes())?;
            lock(&transfer.state).recorded = true;
        }
        Ok(())
    }

    /// Puts the record of an agent that was refused, and whose id a newer arrival has taken, where a
    /// person can find it. Returns where.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn supersede(&self, transfer: &Transfer) -> io::Result<PathBuf> {
        let aside = self.dir.join("superseded");
        state::make_durable_dir(&aside)?;
        let to = aside.join(&transfer.id);
        fs::rename(self.file(transfer), &to)?;
        crash::point("superseded");
        state::sync_dir(&aside)?;
        lock(&self.open).remove(&transfer.id);
        Ok(to)
    }

    /// The transfer is over, and nobody needs to be told.
    ///
    /// # Errors
    /// Its file can't be removed: after a restart its destination is asked again.
    pub(super) fn close(&self, transfer: &Transfer) -> io::Result<()> {
        lock(&self.open).remove(&transfer.id);
        state::remove_durably(&self.file(transfer))
    }

    /// Those that are due; whoever gets one attends to it.
    pub(super) fn due(&self) -> Vec<Arc<Transfer>> {
        lock(&self.open).values().filter(|transfer| transfer.take_up()).cloned().collect()
    }

    /// A transfer by its id.
    pub(super) fn transfer(&self, id: &str) -> Option<Arc<Transfer>> {
        lock(&self.open).get(id).cloned()
    }

    /// Those whose end is not known, the oldest first.
    pub(super) fn undecided(&self) -> Vec<Arc<Transfer>> {
        let open = lock(&self.open);
        let mut undecided: Vec<_> =
            open.values().filter(|transfer| transfer.outcome().is_none()).cloned().collect();
        undecided.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        undecided
    }

    fn file(&self, transfer: &Transfer) -> PathBuf {
        self.dir.join(&transfer.id)
    }
}

pub(super) fn read_transfer(text: &str) -> Result<Transfer, String> {
    let (head, _) = text.split_once('\n').ok_or("its first line has no end")?;
    let head: Value = serde_json::from_str(head).map_err(|error| error.to_string())?;
    let word = |value: &Value, name: &str| {
        value[name].as_str().map(str::to_owned).ok_or_else(|| format!("{name:?} is missing or no text"))
    };
    let mode = Mode::named(&word(&head, "mode")?).ok_or("\"mode\" is neither clone nor move")?;
    let place = &head["destination"];
    let port = place["port"].as_u64().and_then(|port| u16::try_from(port).ok()).ok_or("\"port\" is none")?;
    let address = Address::new(&word(place, "host")?, port).map_err(|why| why.to_string())?;
    let tls = place.get("tls").filter(|tls| !tls.is_null()).cloned();
    let tls = tls.map(serde_json::from_value::<Pinned>).transpose().map_err(|why| why.to_string())?;
    let address = address.with_tls(tls.as_ref().map(Pinned::tls));
    let outcome = match head["outcome"].as_str() {
        None => None,
        Some("arrived") => Some(Outcome::Arrived),
        Some("refused") => Some(Outcome::Refused),
        Some(other) => return Err(format!("no transfer ends {other:?}")),
    };
    let id = word(&head, "transfer")?;
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(format!("{id:?} is no id of a transfer of this node"));
    }
    let tried = head["tried"].as_bool().unwrap_or(true);
    let now = crate::wire::unix_now();
    let longest = i64::try_from(STALE.as_secs()).unwrap_or(i64::MAX);
    let forget_after = head["forget_after"].as_i64().unwrap_or(now.saturating_add(longest));
    let wait = match outcome {
        // Not longer than ever, if the clock was set back meanwhile.
        Some(_) => forget_after.saturating_sub(now).clamp(0, longest),
        None => 0,
    };
    let next = Instant::now() + Duration::from_secs(wait.unsigned_abs());
    let state = State {
        // How far the last attempt of the run before came, nobody knows.
        unclear: tried,
        tried,
        attended: false,
        outcome,
        recorded: outcome.is_some(),
        forget_at: next,
        forget_after,
        attempts: 0,
        sent: 0,
        wait: FIRST_WAIT,
        next,
        last_error: "the node was restarted".into(),
    };
    Ok(Transfer {
        id,
        mode,
        destination: Destination { name: word(place, "name")?, address, unsigned: false },
        traveller: Traveller {
            id: word(&head, "agent")?,
            generation: head["generation"].as_u64(),
            secret: Secret::new(&word(&head, "secret")?).map_err(|why| why.to_string())?,
            head: word(&head, "head")?,
            record: Mutex::default(),
        },
        queued: head["queued"].as_bool().unwrap_or(false),
        created: head["created"].as_i64().unwrap_or_default(),
        body: Mutex::new(None),
        state: Mutex::new(state),
    })
}
