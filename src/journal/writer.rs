//! The journal of a running node.
//!
//! Two mutexes: `chain` gives each line its place and is held while one is composed; `out` is held while what waits
//! is written. Whoever settles while another writes finds, when it is its turn, mostly nothing left to do, so
//! that lines of several threads go out with one call. Order: `out` before `chain`.

use super::bound::Bound;
use super::chain::{Batch, Chain, End};
use super::head::{self, Head};
use super::line::Event;
use super::recover::{make_dir, open_dir, recover};
use super::{reader, Fsync, Settings, DIRECTORY};
use crate::sync::lock;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// From how many bytes on lines are not left waiting.
const WAITING_BYTES: usize = 64 << 10;
/// How often the thread looks at what nobody settled, and tries again what failed.
const TICK: Duration = Duration::from_millis(250);
/// How many of its rounds make the interval between two fsyncs.
const ROUNDS: u32 = 4;

/// A journal that is written. Nothing that goes wrong with it reaches the caller: lines that cannot be written are
/// counted, and the count is noted when it is possible again.
pub struct Journal {
    state_dir: PathBuf,
    settings: Settings,
    chain: Mutex<Chain>,
    out: Mutex<Out>,
    refused: Mutex<Bound>,
    /// One fsync at a time: whoever waits for it finds its own lines on the disk, too.
    syncing: Mutex<()>,
    trouble: Mutex<Option<String>>,
    /// Whether the trouble that lasts has been told.
    told: AtomicBool,
    closed: AtomicBool,
}

impl Journal {
    /// Opens the journal of a state directory, which this process has locked, and starts the thread that looks after
    /// it.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(state_dir: &Path, settings: Settings) -> Result<Arc<Journal>, String> {
        let journal = Arc::new(Journal {
            state_dir: state_dir.to_owned(),
            settings,
            chain: Mutex::new(Chain::unopened()),
            out: Mutex::default(),
            refused: Mutex::new(Bound::new()),
            syncing: Mutex::default(),
            trouble: Mutex::default(),
            told: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        journal.resume();
        let weak = Arc::downgrade(&journal);
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || {
            let mut round = 0u32;
            loop {
                std::thread::sleep(TICK);
                let Some(journal) = weak.upgrade().filter(|journal| !journal.is_closed()) else { return };
                round = round.wrapping_add(1);
                journal.look_after(round.is_multiple_of(ROUNDS));
            }
        });
        thread.map_err(|error| format!("starting a thread: {error}"))?;
        Ok(journal)
    }

    /// Whether the node before this one stopped in good order, by the journal.
    pub fn ended_well(&self) -> bool {
        lock(&self.out).clean
    }

    /// Notes an event. It waits for whoever settles next, at most a quarter of a second.
    pub fn note(&self, event: &Event) {
        if self.is_closed() {
            return;
        }
        let waiting = lock(&self.chain).add(event);
        if waiting >= WAITING_BYTES {
            self.settle();
        }
    }

    /// Notes an event that any stranger can cause as often as he likes: at most twenty a second, and how many more.
    pub fn note_refused(&self, event: &Event) {
        self.note_left_out(false);
        if lock(&self.refused).lets_through() {
            self.note(event);
        }
    }

    /// Hands all that was noted to the kernel, with [`Fsync::Always`] to the disk.
    pub fn settle(&self) {
        self.write_waiting();
        if self.settings.fsync == Fsync::Always {
            self.sync(false);
        }
    }

    /// Ends it: everything noted is on the disk; what is noted later is passed over.
    pub fn close(&self) {
        self.note_left_out(true);
        self.settle();
        if self.settings.fsync != Fsync::Never {
            self.sync(true);
        }
        self.closed.store(true, Ordering::Release);
    }

    /// What went wrong since the last question: to be said in the log, once.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.trouble).take()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn note_left_out(&self, now: bool) {
        let left_out = lock(&self.refused).turn(now);
        if left_out > 0 {
            self.note(&Event::new("left_out").text("of", "refused").number("count", left_out));
        }
    }

    fn write_waiting(&self) {
        let mut out = lock(&self.out);
        let Some(batch) = lock(&self.chain).take() else { return };
        if let Err(why) = out.write(&self.state_dir, &self.settings, &batch) {
            lock(&self.chain).fail(batch.lines, &out.end);
            self.tell(format!("{why}; what happens meanwhile is counted"));
        }
    }

    /// Opens what is not open, and writes what there is to say about it, and about what was lost.
    fn resume(&self) {
        let mut out = lock(&self.out);
        if let Err(why) = out.open(&self.state_dir) {
            return self.tell(why);
        }
        let mut chain = lock(&self.chain);
        let failing = chain.failing();
        if failing.is_none() {
            return;
        }
        chain.resume(&out.end, &out.events);
        let Some(batch) = chain.take() else { return };
        match out.write(&self.state_dir, &self.settings, &batch) {
            Ok(()) => {
                out.events.clear();
                self.told.store(false, Ordering::Release);
            }
            Err(why) => {
                chain.fail_again(failing, &out.end);
                self.tell(why);
            }
        }
    }

    /// What the thread does each round; `due`: the interval between two fsyncs is over.
    fn look_after(&self, due: bool) {
        self.note_left_out(false);
        self.write_waiting();
        if due {
            self.look_for_files();
        }
        if lock(&self.chain).is_failing() {
            self.resume();
        }
        match self.settings.fsync {
            Fsync::Always | Fsync::Interval if due => self.sync(true),
            Fsync::Always => self.sync(false),
            _ => {}
        }
    }

    /// A file that was removed under us takes no more lines: whoever verifies would never see them.
    fn look_for_files(&self) {
        let mut out = lock(&self.out);
        if out.is_gone() {
            out.file = None;
            out.opened = false;
            lock(&self.chain).fail(0, &out.end);
            self.tell(format!(
                "{} was removed while the node ran; the journal goes on in another file",
                out.path.display()
            ));
        }
        if out.head.as_ref().is_some_and(|head| is_gone(head, &head::path(&self.state_dir))) {
            out.head = None;
            out.write_head(&self.state_dir);
        }
    }

    fn sync(&self, with_head: bool) {
        let _one = lock(&self.syncing);
        let files = lock(&self.out).unsynced(with_head);
        for file in files {
            if let Err(error) = file.sync_data() {
                self.tell(format!("forcing the journal to the disk: {error}"));
            }
        }
    }

    /// Keeps a trouble for the log: one line for all the tries that fail alike.
    fn tell(&self, why: String) {
        if !self.told.swap(true, Ordering::AcqRel) {
            *lock(&self.trouble) = Some(why);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.write_waiting();
    }
}

/// The files that are written.
#[derive(Default)]
struct Out {
    opened: bool,
    clean: bool,
    /// What was found at the start and is not noted yet.
    events: Vec<Event>,
    file: Option<Arc<File>>,
    path: PathBuf,
    length: u64,
    /// More than `length` may be in the file, of a write that failed.
    torn: bool,
    head: Option<Arc<File>>,
    /// The last line that was written.
    end: End,
    /// The first line that is kept.
    first: u64,
    dirty: bool,
    /// Closed files and the directory, to be forced to the disk.
    closed: Vec<Arc<File>>,
}

impl Out {
    /// Finds where the journal goes on.
    fn open(&mut self, state_dir: &Path) -> Result<(), String> {
        if self.opened {
            return Ok(());
        }
        let doing = |error: io::Error| format!("opening the journal in {}: {error}", state_dir.display());
        let known = (self.end.seq > 0).then_some(&self.end);
        let found = recover(state_dir, known).map_err(doing)?;
        self.file = None;
        if let Some(path) = found.file {
            let file = OpenOptions::new().append(true).open(&path).map_err(doing)?;
            self.length = file.metadata().map_err(doing)?.len();
            (self.file, self.path) = (Some(Arc::new(file)), path);
        }
        (self.end, self.first, self.clean) = (found.end, found.first, found.clean);
        self.events.extend(found.events);
        self.torn = false;
        // From here on there is a head: that it is missing means that somebody removed it.
        self.head = Some(Arc::new(self.as_head().create(state_dir).map_err(doing)?));
        self.opened = true;
        Ok(())
    }

    /// Writes lines: all of them, or none.
    fn write(&mut self, state_dir: &Path, settings: &Settings, batch: &Batch) -> Result<(), String> {
        if self.length >= settings.file_bytes {
            if let Some(full) = self.file.take() {
                self.closed.push(full);
            }
        }
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => self.begin_file(state_dir, settings, batch.first())?,
        };
        let doing = |error: io::Error| format!("writing {}: {error}", self.path.display());
        if self.torn {
            file.set_len(self.length).map_err(doing)?;
            self.torn = false;
        }
        if let Err(error) = (&*file).write_all(&batch.text) {
            let why = doing(error);
            self.torn = file.set_len(self.length).is_err();
            return Err(why);
        }
        self.length += batch.text.len() as u64;
        self.end = batch.end.clone();
        self.dirty = true;
        self.write_head(state_dir);
        Ok(())
    }

    /// Drops the files that are too many, and begins the one for line `seq`.
    fn begin_file(&mut self, state_dir: &Path, settings: &Settings, seq: u64) -> Result<Arc<File>, String> {
        let dir = state_dir.join(DIRECTORY);
        let doing = |error: io::Error| format!("beginning a file in {}: {error}", dir.display());
        make_dir(&dir).map_err(doing)?;
        let files = reader::files(state_dir).map_err(doing)?;
        let surplus = (files.len() + 1).saturating_sub(settings.files);
        if surplus > 0 {
            // The head first: a file more than it names is no harm, one that it names and that is gone is.
            self.first = files.get(surplus).map_or(seq, |(first, _)| *first);
            self.write_head(state_dir);
            for (_, path) in &files[..surplus.min(files.len())] {
                std::fs::remove_file(path).map_err(doing)?;
            }
        }
        let path = dir.join(reader::name(seq));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).map_err(doing)?;
        self.closed.extend(open_dir(&dir).map(Arc::new));
        let file = Arc::new(file);
        (self.path, self.length, self.torn, self.file) = (path, 0, false, Some(Arc::clone(&file)));
        Ok(file)
    }

    /// Says where the journal ends. A head that cannot be written is one that is behind, and is tried again.
    fn write_head(&mut self, state_dir: &Path) {
        let head = self.as_head();
        let written = match &self.head {
            Some(file) => head.write(file).map(|()| Arc::clone(file)),
            None => head.create(state_dir).map(Arc::new),
        };
        self.head = written.ok();
    }

    fn as_head(&self) -> Head {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Head { file: name, first: self.first, hash: self.end.hash.clone(), seq: self.end.seq }
    }

    /// Whether the file that is written is not there any more.
    fn is_gone(&self) -> bool {
        self.file.as_ref().is_some_and(|file| is_gone(file, &self.path))
    }

    /// What was written since the last question; journal before head.
    fn unsynced(&mut self, with_head: bool) -> Vec<Arc<File>> {
        let mut files = std::mem::take(&mut self.closed);
        if std::mem::take(&mut self.dirty) {
            files.extend(self.file.clone());
            files.extend(self.head.clone().filter(|_| with_head));
        }
        files
    }
}

/// Whether a path does not lead to that file any more.
fn is_gone(file: &File, path: &Path) -> bool {
    let inode = |data: std::fs::Metadata| (data.dev(), data.ino());
    match (file.metadata().map(inode), std::fs::metadata(path).map(inode)) {
        (Ok(ours), Ok(there)) => ours != there,
        (_, Err(error)) => error.kind() == io::ErrorKind::NotFound,
        (Err(_), _) => false,
    }
}
