//! Schedules, `meta/schedules.json`: messages that an agent is given at a time, every so often, or once a day.
//!
//! # The file
//!
//! A list of objects `id agent_id message catch_up since` and one of `at` (Unix seconds), `every` (seconds) or
//! `daily` (`"HH:MM"`, local time); `since` is when it was made, or given another time. Written durably before a
//! change is told. What has fired stands beside it, `meta/schedules.marks.json`: `{id: {since last fired skipped
//! failed}}`. It is written before a delivery of `at` and `daily`, so that a kill makes none of them happen twice,
//! and within a second for `every`.
//!
//! # When
//!
//! * `every` goes by a clock that nobody sets; `at` and `daily` by the machine's.
//! * A clock that is set forward over a fire lets it happen once, however far. One that is set back repeats no fire
//!   of `daily`, unless it is set back by more than a day.
//! * A time of day that summer time skips comes as much later as the clock skipped (02:30 at 03:30); one that comes
//!   twice counts the first time.
//! * While a delivery waits or runs, further fires of the same schedule are counted (`skipped`) and not made up for.
//! * What was missed while the node was down happens once at its start, with `catch_up`; an `at` without it is gone.

use crate::state::{self, Syncer};
use crate::sync::lock;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many schedules there may be.
pub const MOST: usize = 256;
/// The largest message, bytes of JSON.
pub const MESSAGE_BYTES: usize = 16 << 10;
/// The shortest and the longest `every`, seconds.
pub const EVERY: (f64, f64) = (1.0, 366.0 * 86_400.0);
/// The last `at`: the end of the year 9999.
const LAST: f64 = 253_402_300_799.0;
/// The longest id, bytes.
const ID_BYTES: usize = 64;

const DAY: i64 = 86_400;
/// A day that is longer than any: how far the next fire of `daily` can be.
const LONG_DAY: i64 = 27 * 3600;

/// How far local time is ahead of UTC at a moment (Unix seconds), in seconds.
pub type Offset = fn(i64) -> i64;

/// A moment by the machine's clock, in Unix seconds, and by one that nobody sets.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The machine's clock.
    pub wall: i64,
    /// The steady one.
    pub steady: Instant,
}

/// What a new schedule is made of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct New {
    /// Its name; absent: one is made.
    #[serde(default)]
    pub id: Option<String>,
    /// Who gets the message.
    pub agent_id: String,
    /// The message.
    pub message: Box<RawValue>,
    /// Once, at this time (Unix seconds).
    #[serde(default)]
    pub at: Option<f64>,
    /// Every so many seconds.
    #[serde(default)]
    pub every: Option<f64>,
    /// Every day at this time, `"HH:MM"`.
    #[serde(default)]
    pub daily: Option<String>,
    /// Whether what was missed while the node was down happens at its start.
    #[serde(default)]
    pub catch_up: bool,
}

/// What becomes of a schedule: what is absent stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Which.
    pub id: String,
    /// Who gets the message.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// The message.
    #[serde(default, deserialize_with = "given")]
    pub message: Option<Box<RawValue>>,
    /// As in [`New`]; one of the three replaces whichever there was.
    #[serde(default)]
    pub at: Option<f64>,
    /// See `at`.
    #[serde(default)]
    pub every: Option<f64>,
    /// See `at`.
    #[serde(default)]
    pub daily: Option<String>,
    /// As in [`New`].
    #[serde(default)]
    pub catch_up: Option<bool>,
}

/// A present `null` is a message.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Why a schedule was not changed.
#[derive(Debug)]
pub enum Refusal {
    /// What was asked for is wrong.
    Wrong(String),
    /// Not now.
    Busy(String),
    /// It could not be written.
    Disk(io::Error),
}

/// A delivery to be made. Whoever makes it tells its end to [`Schedules::ended`].
#[derive(Debug)]
pub struct Due {
    /// Of which schedule.
    pub id: String,
    /// Who gets it.
    pub agent_id: String,
    /// What.
    pub message: String,
    /// Which delivery.
    pub run: u64,
}

/// An `at` that passed while the node was down, without `catch_up`.
#[derive(Debug)]
pub struct Missed {
    /// Of which schedule.
    pub id: String,
    /// Who would have got it.
    pub agent_id: String,
}

/// What a look at the clocks found.
#[derive(Debug, Default)]
pub struct Found {
    /// To be delivered.
    pub due: Vec<Due>,
    /// Gone.
    pub missed: Vec<Missed>,
    /// That they have fired could not be written: after a kill they may again.
    pub not_written: Option<io::Error>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    At(i64),
    Every(f64),
    /// Minutes since midnight.
    Daily(i64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Next {
    Wall(i64),
    Steady(Instant),
    /// An `at` that has fired.
    Never,
}

/// As it stands in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    agent_id: String,
    message: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    daily: Option<String>,
    catch_up: bool,
    since: i64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Mark {
    since: i64,
    last: Option<i64>,
    fired: u64,
    skipped: u64,
    failed: u64,
}

#[derive(Clone)]
struct Entry {
    agent_id: String,
    message: Arc<str>,
    when: When,
    catch_up: bool,
    mark: Mark,
    next: Next,
    /// The delivery that waits or runs.
    run: Option<u64>,
    last_error: Option<String>,
}

type Entries = BTreeMap<String, Entry>;

/// The schedules of a node.
pub struct Schedules {
    file: PathBuf,
    marks: PathBuf,
    offset: Offset,
    syncer: Arc<Syncer>,
    /// Held while one is changed and the file written; whoever looks at the clocks goes on with what was.
    editing: Mutex<()>,
    entries: Mutex<Entries>,
    missed: Mutex<Vec<Missed>>,
    runs: AtomicU64,
    /// Held while the marks are written.
    marking: Mutex<()>,
    unmarked: AtomicBool,
}

impl Schedules {
    /// The schedules in the directory `meta`. A file that can't be read is set aside, and then there are none:
    /// the second says what was wrong.
    ///
    /// # Errors
    /// A file is there and the system does not let it be read or moved.
    pub fn open(
        meta: &Path,
        offset: Offset,
        now: Moment,
        syncer: Arc<Syncer>,
    ) -> io::Result<(Schedules, Option<String>)> {
        let (file, marks) = (meta.join("schedules.json"), meta.join("schedules.marks.json"));
        let (written, damaged) = read::<Vec<Written>>(&file)?;
        let (known, damaged_marks) = read::<BTreeMap<String, Mark>>(&marks)?;
        let (mut entries, mut missed, mut odd) = (Entries::new(), Vec::new(), None);
        for one in written.unwrap_or_default() {
            let mark = known.as_ref().and_then(|known| known.get(&one.id)).copied();
            let id = one.id.clone();
            match revive(one, mark, now, offset) {
                Ok(Revived::Goes(entry)) => drop(entries.insert(id, entry)),
                Ok(Revived::Over) => {}
                Ok(Revived::Missed(agent_id)) => missed.push(Missed { id, agent_id }),
                Err(why) => odd = Some(format!("schedule {id:?}: {why}")),
            }
        }
        let odd = match odd {
            None => None,
            // The others go on; the file as it was stays for a person to look at.
            Some(why) => {
                let aside = state::set_aside(&file)?;
                state::write_durably(&file, text_of(&entries)?.as_bytes())?;
                Some(format!("{}: {why}; it is not there any more", aside.display()))
            }
        };
        let schedules = Schedules {
            file,
            marks,
            offset,
            syncer,
            editing: Mutex::default(),
            entries: Mutex::new(entries),
            missed: Mutex::new(missed),
            runs: AtomicU64::new(0),
            marking: Mutex::default(),
            unmarked: AtomicBool::new(false),
        };
        Ok((schedules, damaged.or(odd).or(damaged_marks)))
    }

    /// Adds one, and returns it as [`Schedules::list`] tells it.
    ///
    /// # Errors
    /// Something of it is wrong, there are as many as may be, or it can't be written.
    pub fn add(&self, new: New, now: Moment) -> Result<Value, Refusal> {
        let when = when(new.at, new.every, new.daily.as_deref())
            .and_then(|when| when.ok_or_else(|| format!("{WHEN}, and none is given")))
            .and_then(|when| in_future(when, now))
            .map_err(Refusal::Wrong)?;
        check_message(&new.message).map_err(Refusal::Wrong)?;
        self.change(now, |entries| {
            if entries.len() >= MOST {
                return Err(Refusal::Busy(format!("there are {MOST} schedules, as many as there may be")));
            }
            let id = match new.id {
                Some(id) => id,
                None => {
                    (1..).map(|n| format!("s{n}")).find(|id| !entries.contains_key(id)).unwrap_or_default()
                }
            };
            check_id(&id).map_err(Refusal::Wrong)?;
            if entries.contains_key(&id) {
                return Err(Refusal::Wrong(format!("there is a schedule {id:?} already; edit or cancel it")));
            }
            let entry = Entry {
                agent_id: new.agent_id,
                message: new.message.get().into(),
                when,
                catch_up: new.catch_up,
                mark: Mark { since: now.wall, last: None, fired: 0, skipped: 0, failed: 0 },
                next: first(when, now, self.offset),
                run: None,
                last_error: None,
            };
            entries.insert(id.clone(), entry);
            Ok(id)
        })
    }

    /// Changes one, and returns what it is now.
    ///
    /// # Errors
    /// There is none of that id, something is wrong, or it can't be written.
    pub fn edit(&self, edit: Edit, now: Moment) -> Result<Value, Refusal> {
        let when = when(edit.at, edit.every, edit.daily.as_deref())
            .and_then(|when| when.map(|when| in_future(when, now)).transpose())
            .map_err(Refusal::Wrong)?;
        edit.message.as_deref().map_or(Ok(()), check_message).map_err(Refusal::Wrong)?;
        self.change(now, |entries| {
            let entry = entries.get_mut(&edit.id).ok_or_else(|| unknown(&edit.id))?;
            if let Some(when) = when {
                entry.when = when;
                entry.mark.since = now.wall;
                entry.mark.last = None;
                entry.next = first(when, now, self.offset);
            }
            if let Some(agent_id) = edit.agent_id {
                entry.agent_id = agent_id;
            }
            if let Some(message) = edit.message {
                entry.message = message.get().into();
            }
            entry.catch_up = edit.catch_up.unwrap_or(entry.catch_up);
            Ok(edit.id)
        })
    }

    /// Takes one away, and returns what it was.
    ///
    /// # Errors
    /// There is none of that id, or it can't be written.
    pub fn cancel(&self, id: &str, now: Moment) -> Result<Value, Refusal> {
        let told = match lock(&self.entries).get(id) {
            Some(entry) => entry.told(id, now),
            None => return Err(unknown(id)),
        };
        self.rewrite(|entries| entries.remove(id).map(drop).ok_or_else(|| unknown(id)))?;
        Ok(told)
    }

    /// One delivery at once, beside those that are due.
    ///
    /// # Errors
    /// There is none of that id, or its last delivery is not over.
    pub fn fire(&self, id: &str, now: Moment) -> Result<Due, Refusal> {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(id).ok_or_else(|| unknown(id))?;
        if entry.run.is_some() {
            return Err(Refusal::Busy(format!("the last delivery of schedule {id:?} is not over yet")));
        }
        let last = entry.mark.last;
        let due = entry.start(id, self.next_run(), now.wall);
        entry.mark.last = last; // when it is due counts on from what was
        self.unmarked.store(true, Ordering::Release);
        Ok(due)
    }

    /// What is due now. To be asked some times a second.
    pub fn due(&self, now: Moment) -> Found {
        let mut found = Found { missed: std::mem::take(&mut *lock(&self.missed)), ..Found::default() };
        let mut by_the_clock = false;
        for (id, entry) in lock(&self.entries).iter_mut() {
            if let (When::Daily(minute), Next::Wall(at)) = (entry.when, entry.next) {
                if at > now.wall + LONG_DAY {
                    // The clock was far ahead, and has been set right.
                    entry.next = Next::Wall(next_daily(minute, now.wall, self.offset));
                }
            }
            let is_due = match entry.next {
                Next::Wall(at) => at <= now.wall,
                Next::Steady(at) => at <= now.steady,
                Next::Never => false,
            };
            if !is_due {
                continue;
            }
            let passed = entry.advance(now, self.offset);
            entry.mark.skipped += passed;
            if entry.run.is_some() {
                entry.mark.skipped += 1;
                entry.mark.last = Some(now.wall);
            } else {
                found.due.push(entry.start(id, self.next_run(), now.wall));
            }
            by_the_clock |= !matches!(entry.when, When::Every(_));
            self.unmarked.store(true, Ordering::Release);
        }
        if by_the_clock {
            found.not_written = self.keep().err();
        }
        found
    }

    /// A delivery is over; `error`: it was none.
    ///
    /// # Errors
    /// An `at` is over with it, and that can't be written; it is gone all the same.
    pub fn ended(&self, id: &str, run: u64, error: Option<String>) -> io::Result<()> {
        {
            let mut entries = lock(&self.entries);
            let Some(entry) = entries.get_mut(id).filter(|entry| entry.run == Some(run)) else {
                return Ok(());
            };
            entry.run = None;
            entry.mark.failed += u64::from(error.is_some());
            entry.last_error = error;
            self.unmarked.store(true, Ordering::Release);
            if entry.next != Next::Never {
                return Ok(());
            }
        }
        let over = |entry: &Entry| entry.next == Next::Never && entry.run.is_none();
        let gone = self.rewrite(|entries| {
            if entries.get(id).is_some_and(over) {
                entries.remove(id);
            }
            Ok(())
        });
        match gone {
            Err(Refusal::Disk(error)) => {
                let mut entries = lock(&self.entries);
                if entries.get(id).is_some_and(over) {
                    entries.remove(id);
                }
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// All of them, by id.
    pub fn list(&self, now: Moment) -> Vec<Value> {
        lock(&self.entries).iter().map(|(id, entry)| entry.told(id, now)).collect()
    }

    /// Writes which have fired, if that has changed.
    ///
    /// # Errors
    /// What the system says; the next call tries again.
    pub fn keep(&self) -> io::Result<()> {
        let _marking = lock(&self.marking);
        if !self.unmarked.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let marks: BTreeMap<String, Mark> =
            lock(&self.entries).iter().map(|(id, entry)| (id.clone(), entry.mark)).collect();
        let written = serde_json::to_vec(&marks)
            .map_err(io::Error::from)
            .and_then(|text| state::write(&self.marks, &text))
            .and_then(|()| self.syncer.written(&self.marks));
        written.inspect_err(|_| self.unmarked.store(true, Ordering::Release))
    }

    fn next_run(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn change(
        &self,
        now: Moment,
        change: impl FnOnce(&mut Entries) -> Result<String, Refusal>,
    ) -> Result<Value, Refusal> {
        let id = self.rewrite(change)?;
        self.unmarked.store(true, Ordering::Release);
        Ok(lock(&self.entries).get(&id).map_or(Value::Null, |entry| entry.told(&id, now)))
    }

    /// Changes a copy, writes it, and puts what differs into its place.
    fn rewrite<T>(&self, change: impl FnOnce(&mut Entries) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let _editing = lock(&self.editing);
        let before = lock(&self.entries).clone();
        let mut after = before.clone();
        let told = change(&mut after)?;
        let text = text_of(&after).map_err(Refusal::Disk)?;
        state::write_durably(&self.file, text.as_bytes()).map_err(Refusal::Disk)?;
        let mut entries = lock(&self.entries);
        entries.retain(|id, _| after.contains_key(id));
        for (id, entry) in after {
            match (entries.get_mut(&id), before.get(&id)) {
                // It may have fired meanwhile: that stays.
                (Some(here), Some(was)) => {
                    here.agent_id = entry.agent_id;
                    here.message = entry.message;
                    here.catch_up = entry.catch_up;
                    if (was.when, was.mark.since, was.next) != (entry.when, entry.mark.since, entry.next) {
                        here.when = entry.when;
                        here.next = entry.next;
                        here.mark.since = entry.mark.since;
                        here.mark.last = None;
                    }
                }
                _ => drop(entries.insert(id, entry)),
            }
        }
        Ok(told)
    }
}

impl Entry {
    fn start(&mut self, id: &str, run: u64, wall: i64) -> Due {
        self.run = Some(run);
        self.mark.fired += 1;
        self.mark.last = Some(wall);
        Due { id: id.to_owned(), agent_id: self.agent_id.clone(), message: self.message.to_string(), run }
    }

    /// Sets when it is due next; returns how many fires passed besides the one that is due.
    fn advance(&mut self, now: Moment, offset: Offset) -> u64 {
        let mut passed = 0;
        self.next = match (self.when, self.next) {
            (When::Every(seconds), Next::Steady(at)) => {
                let step = Duration::from_secs_f64(seconds);
                let mut next = at + step;
                if next <= now.steady {
                    let late = now.steady.duration_since(at).as_secs_f64();
                    passed = (late / seconds) as u64;
                    next = now.steady + step;
                }
                Next::Steady(next)
            }
            (When::Every(seconds), _) => Next::Steady(now.steady + Duration::from_secs_f64(seconds)),
            (When::Daily(minute), next) => {
                let planned = if let Next::Wall(at) = next { at } else { now.wall };
                Next::Wall(next_daily(minute, planned.max(now.wall), offset))
            }
            (When::At(_), _) => Next::Never,
        };
        passed
    }

    fn told(&self, id: &str, now: Moment) -> Value {
        let next = match self.next {
            Next::Wall(at) => json!(at),
            Next::Steady(at) => {
                json!(now.wall + at.saturating_duration_since(now.steady).as_secs_f64().round() as i64)
            }
            Next::Never => Value::Null,
        };
        let message: Value = serde_json::from_str(&self.message).unwrap_or_default();
        let mut told = json!({
            "id": id,
            "agent_id": self.agent_id,
            "message": message,
            "catch_up": self.catch_up,
            "next": next,
            "running": self.run.is_some(),
            "last": self.mark.last,
            "fired": self.mark.fired,
            "skipped": self.mark.skipped,
            "failed": self.mark.failed,
            "last_error": self.last_error,
        });
        let (name, value) = self.when.told();
        told[name] = value;
        told
    }
}

impl When {
    fn told(self) -> (&'static str, Value) {
        match self {
            When::At(at) => ("at", json!(at)),
            When::Every(seconds) if seconds.fract() == 0.0 => ("every", json!(seconds as u64)),
            When::Every(seconds) => ("every", json!(seconds)),
            When::Daily(minute) => ("daily", json!(format!("{:02}:{:02}", minute / 60, minute % 60))),
        }
    }
}

const WHEN: &str = "a schedule has one of at (Unix seconds), every (seconds) and daily (\"HH:MM\")";

fn when(at: Option<f64>, every: Option<f64>, daily: Option<&str>) -> Result<Option<When>, String> {
    match (at, every, daily) {
        (None, None, None) => Ok(None),
        (Some(at), None, None) if (0.0..=LAST).contains(&at) => Ok(Some(When::At(at.ceil() as i64))),
        (Some(at), None, None) => Err(format!("at must be Unix seconds up to {LAST}, not {at}")),
        (None, Some(every), None) if every >= EVERY.0 && every <= EVERY.1 => Ok(Some(When::Every(every))),
        (None, Some(every), None) => {
            Err(format!("every must be from {} to {} seconds, not {every}", EVERY.0, EVERY.1))
        }
        (None, None, Some(daily)) => read_daily(daily).map(Some),
        _ => Err(format!("{WHEN}, and more than one is given")),
    }
}

fn read_daily(text: &str) -> Result<When, String> {
    let digits = |from: usize| {
        let two = text.get(from..from + 2).filter(|two| two.bytes().all(|byte| byte.is_ascii_digit()));
        two.and_then(|two| two.parse::<i64>().ok())
    };
    match (text.len(), text.as_bytes().get(2), digits(0), digits(3)) {
        (5, Some(b':'), Some(hour @ 0..=23), Some(minute @ 0..=59)) => Ok(When::Daily(hour * 60 + minute)),
        _ => {
            let head: String = text.chars().take(20).collect();
            Err(format!("daily must be a time of day, \"HH:MM\" from 00:00 to 23:59, not {head:?}"))
        }
    }
}

fn in_future(when: When, now: Moment) -> Result<When, String> {
    match when {
        When::At(at) if at <= now.wall => {
            Err(format!("at must be in the future: it is {at}, and now is {}", now.wall))
        }
        when => Ok(when),
    }
}

fn check_message(message: &RawValue) -> Result<(), String> {
    match message.get().len() {
        0..=MESSAGE_BYTES => Ok(()),
        bytes => Err(format!("the message has {bytes} bytes, a schedule's at most {MESSAGE_BYTES}")),
    }
}

fn check_id(id: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match (1..=ID_BYTES).contains(&id.len()) && id.bytes().all(plain) {
        true => Ok(()),
        false => {
            let head: String = id.chars().take(ID_BYTES).collect();
            Err(format!(
                "id must have 1 to {ID_BYTES} letters, digits, dots, dashes or underscores, not {head:?}"
            ))
        }
    }
}

fn unknown(id: &str) -> Refusal {
    let head: String = id.chars().take(ID_BYTES).collect();
    Refusal::Wrong(format!("there is no schedule {head:?}"))
}

/// When a new schedule is due first.
fn first(when: When, now: Moment, offset: Offset) -> Next {
    match when {
        When::At(at) => Next::Wall(at),
        When::Every(seconds) => Next::Steady(now.steady + Duration::from_secs_f64(seconds)),
        When::Daily(minute) => Next::Wall(next_daily(minute, now.wall, offset)),
    }
}

/// The first moment after `after` at which it is `minute` minutes past local midnight.
fn next_daily(minute: i64, after: i64, offset: Offset) -> i64 {
    let today = (after + offset(after)).div_euclid(DAY);
    let moments = (today - 1..=today + 3).map(|day| moment(day * DAY + minute * 60, offset));
    moments.into_iter().find(|moment| *moment > after).unwrap_or(after + DAY)
}

/// The moment at which local clocks show `shown` (seconds, as if it were UTC).
fn moment(shown: i64, offset: Offset) -> i64 {
    let (before, after) = (offset(shown - DAY), offset(shown + DAY));
    let (first, second) = (shown - before, shown - after);
    // Where they show it twice the first is by the offset before; where never, that one lies behind the gap.
    match offset(first) != before && offset(second) == after {
        true => second,
        false => first,
    }
}

enum Revived {
    Goes(Entry),
    Over,
    /// Whom it was for.
    Missed(String),
}

fn revive(one: Written, mark: Option<Mark>, now: Moment, offset: Offset) -> Result<Revived, String> {
    let when = when(one.at, one.every, one.daily.as_deref())?.ok_or(WHEN)?;
    check_id(&one.id)?;
    check_message(&one.message)?;
    let fresh = Mark { since: one.since, last: None, fired: 0, skipped: 0, failed: 0 };
    // That of an earlier schedule of this id is not this one's.
    let mark = mark.filter(|mark| mark.since == one.since).unwrap_or(fresh);
    let base = mark.last.unwrap_or(one.since);
    let next = match when {
        When::At(_) if mark.last.is_some() => return Ok(Revived::Over),
        When::At(at) if at <= now.wall && !one.catch_up => return Ok(Revived::Missed(one.agent_id)),
        When::At(at) => Next::Wall(at),
        When::Every(seconds) => {
            // A clock that was set back meanwhile leaves a whole turn to wait for.
            let gone = if base > now.wall { 0.0 } else { (now.wall - base) as f64 };
            let left = match (gone >= seconds, one.catch_up) {
                (true, true) => 0.0,
                (true, false) => seconds - gone % seconds,
                (false, _) => seconds - gone,
            };
            Next::Steady(now.steady + Duration::from_secs_f64(left))
        }
        When::Daily(minute) => {
            let next = next_daily(minute, if base > now.wall + LONG_DAY { now.wall } else { base }, offset);
            let missed = next <= now.wall && !one.catch_up;
            Next::Wall(if missed { next_daily(minute, now.wall, offset) } else { next })
        }
    };
    Ok(Revived::Goes(Entry {
        agent_id: one.agent_id,
        message: one.message.get().into(),
        when,
        catch_up: one.catch_up,
        mark,
        next,
        run: None,
        last_error: None,
    }))
}

fn text_of(entries: &Entries) -> io::Result<String> {
    let written: Vec<Written> = entries
        .iter()
        .map(|(id, entry)| {
            let (mut at, mut every, mut daily) = (None, None, None);
            match entry.when {
                When::At(time) => at = Some(time as f64),
                When::Every(seconds) => every = Some(seconds),
                When::Daily(_) => daily = entry.when.told().1.as_str().map(str::to_owned),
            }
            let message = RawValue::from_string(entry.message.to_string())?;
            let (id, agent_id) = (id.clone(), entry.agent_id.clone());
            Ok(Written {
                id,
                agent_id,
                message,
                at,
                every,
                daily,
                catch_up: entry.catch_up,
                since: entry.mark.since,
            })
        })
        .collect::<Result<_, serde_json::Error>>()?;
    Ok(serde_json::to_string(&written)?)
}

/// Reads a file; one that makes no sense is set aside, and named.
fn read<T: for<'de> Deserialize<'de>>(file: &Path) -> io::Result<(Option<T>, Option<String>)> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, None)),
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
        read => read.map_err(|error| error.to_string()),
    };
    let parsed = text.and_then(|text| {
        crate::wire::parse(&text).map_err(|wrong| wrong.to_string())?; // names that stand twice, among others
        serde_json::from_str(&text).map_err(|error| error.to_string())
    });
    match parsed {
        Ok(value) => Ok((Some(value), None)),
        Err(why) => {
            let aside = state::set_aside(file)?;
            Ok((None, Some(format!("{}: {why}; its schedules are not there", aside.display()))))
        }
    }
}

#[cfg(test)]
#[path = "schedules_tests.rs"]
mod tests;
