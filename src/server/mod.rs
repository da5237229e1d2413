//! The TCP server: threads that wait in `accept`, one connection each while it lives.
//!
//! A waiting thread costs a few pages; starting one for each connection costs a scheduler's delay
//! with a bad tail. So a connection's thread goes back to `accept` when it is done, and a new one is
//! started only when the last waiting one has been taken.

pub mod admin_socket;
mod budget;
mod connection;
mod door;
mod requests;

use crate::log::Level;
use crate::node::Node;
use crate::sync::lock;
use crate::wire::{Answer, Code, Failure, Stream};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many connections wait to be taken. With the usual 128 a crowd's next ones get no answer to their first
/// packet and try again a second later: that was the slowest hundredth of all requests under overload.
const BACKLOG: i32 = 1024;
/// Threads beyond `max_connections`: they tell whoever is too many.
const SPARE: usize = 4;
/// Waiting threads that are kept; above that, one that has nothing to do ends.
const KEPT: usize = 16;
/// How long a thread waits when accepting fails.
const STARVED: Duration = Duration::from_millis(20);
/// How often the log says that accepting fails.
const STARVED_TOLD: Duration = Duration::from_secs(10);
/// How long a connection on which nothing is asked may hold up the end.
const SILENT: Duration = Duration::from_millis(200);
/// What a refused connection may still send and how long it may take, before it is closed.
const REFUSED_BYTES: usize = 64 * 1024;
const REFUSED_TIME: Duration = Duration::from_millis(50);
/// The same for its TLS handshake: a way there and back, and arithmetic.
const REFUSED_HANDSHAKE: Duration = Duration::from_millis(250);

/// A listening server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    node: Arc<Node>,
    listener: TcpListener,
    /// How many connections this process's descriptors are enough for.
    affordable: usize,
    budgets: budget::Budgets,
    threads: AtomicUsize,
    waiting: AtomicUsize,
    connections: AtomicUsize,
    /// Of these, those on which a line is being answered.
    answering: AtomicUsize,
    stopping: AtomicBool,
    starved_told: Mutex<Option<Instant>>,
}

impl Server {
    /// Answers what comes to `listener`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(node: Arc<Node>, listener: TcpListener) -> Result<Server, String> {
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let _ = rustix::net::listen(&listener, BACKLOG); // it listens already: only the number is new
        node.set_listening(address);
        let most = node.config().keys.max_connections;
        let affordable = affordable_connections();
        if affordable < most {
            let fields = [("max_connections", most.to_string()), ("served_at_once", affordable.to_string())];
            node.log.event(
                Level::Warn,
                "few_descriptors",
                &fields.each_ref().map(|(key, text)| (*key, text.as_str())),
            );
        }
        let shared = Arc::new(Shared {
            node,
            listener,
            affordable,
            budgets: budget::Budgets::default(),
            threads: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            answering: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            starved_told: Mutex::new(None),
        });
        add_thread(&shared).map_err(|error| format!("starting a thread: {error}"))?;
        Ok(Server { shared, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new connections; those that are open get their answers.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        // On Linux this wakes every thread that waits in accept, with EINVAL.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
    }

    /// Waits until what was asked is answered, at most until the deadline. Connections on which nothing is
    /// asked get a moment: a line may be on its way. Returns how many connections are left.
    pub fn drain(&self, deadline: Instant) -> usize {
        let moment = Instant::now() + SILENT;
        loop {
            let open = self.shared.connections.load(Ordering::Acquire);
            let answering = self.shared.answering.load(Ordering::Acquire);
            let now = Instant::now();
            if open == 0 || now >= deadline || (answering == 0 && now >= moment) {
                return open;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn add_thread(shared: &Arc<Shared>) -> io::Result<()> {
    shared.threads.fetch_add(1, Ordering::AcqRel);
    let ours = Arc::clone(shared);
    // A connection's own work is shallow; the deepest is JSON of 64 levels.
    let builder = std::thread::Builder::new().name("connection".into()).stack_size(1 << 20);
    builder.spawn(move || ours.serve()).map(drop).inspect_err(|_| {
        shared.threads.fetch_sub(1, Ordering::AcqRel);
    })
}

impl Shared {
    /// How many connections are served at once; a reload may change it.
    fn most(&self) -> usize {
        self.node.config().keys.max_connections.min(self.affordable)
    }

    fn serve(self: &Arc<Self>) {
        loop {
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let accepted = self.listener.accept();
            let passing = |error: &io::Error| {
                matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
            };
            let starved = accepted.as_ref().is_err_and(|error| !passing(error));
            if starved && !self.stopping.load(Ordering::Acquire) {
                self.tell_starved(accepted.as_ref().err());
                // Out of descriptors or memory: nothing that hurrying would help. Still counted as
                // waiting, so that nobody starts another thread meanwhile.
                std::thread::sleep(STARVED);
            }
            let waiting = self.waiting.fetch_sub(1, Ordering::AcqRel) - 1;
            if self.stopping.load(Ordering::Acquire) {
                break;
            }
            let Ok((stream, _)) = accepted else {
                // Whoever waits in accept has a descriptor reserved by the kernel: one waiter will do.
                if starved && waiting > 0 {
                    break;
                }
                continue;
            };
            if waiting == 0 && self.threads.load(Ordering::Acquire) < self.most() + SPARE {
                if let Err(error) = add_thread(self) {
                    self.node.log.event(Level::Warn, "no_thread", &[("error", &error.to_string())]);
                }
            }
            self.attend(stream);
            if self.waiting.load(Ordering::Acquire) >= KEPT {
                break;
            }
        }
        self.threads.fetch_sub(1, Ordering::AcqRel);
    }

    fn tell_starved(&self, error: Option<&io::Error>) {
        let mut told = lock(&self.starved_told);
        if told.is_none_or(|at| at.elapsed() > STARVED_TOLD) {
            *told = Some(Instant::now());
            let error = error.map(ToString::to_string).unwrap_or_default();
            self.node.log.event(Level::Warn, "cannot_accept", &[("error", &error)]);
        }
    }

    fn attend(&self, stream: TcpStream) {
        // Counted out before it is told so: a refusal takes a while and must not cost others a place.
        let place = Open::new(&self.connections, self.most());
        let Some(_place) = place else {
            refuse(&self.node, self.most(), &stream);
            return;
        };
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            connection::serve(&self.node, &stream, &self.budgets, &self.answering)
        }));
        if served.is_err() {
            // The panic hook has printed where; the connection ends, the node goes on.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A connection's place among those that are served. Counts it out however it ends.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn new(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let more = |open: usize| (open < most).then_some(open + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Open(count))
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Connections get at most half of the descriptors that this process may have: a crowd at the door must not
/// keep the agents inside from theirs.
fn affordable_connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX).max(SPARE))
}

fn refuse(node: &Node, most: usize, stream: &TcpStream) {
    let failure =
        Failure::new(Code::Busy, format!("the node serves {most} connections, as many as it may; try again"));
    node.note_unread(stream, failure.code);
    let line = Answer::failure(node.name(), &failure).to_line(None);
    let config = node.config();
    let secured = config
        .tls
        .as_ref()
        .and_then(|acceptor| door::enter_briefly(stream, acceptor, Instant::now() + REFUSED_HANDSHAKE));
    // Whoever does not speak TLS reads it as it is.
    let stream: &dyn Stream = secured.as_ref().map_or(stream, |secured| secured);
    let _ = crate::wire::write_line(stream, &line, Instant::now() + REFUSED_TIME);
    crate::wire::close(stream, REFUSED_BYTES, REFUSED_TIME);
}
