//! Named places at which tests kill the node. A release build has none.

/// Ends the process at once, as SIGKILL would, if the environment variable `AGENTCONTAINER_CRASH_AT`
/// names this place: `place`, or `place:n` for the n-th time that it is passed.
#[cfg(debug_assertions)]
pub fn point(place: &str) {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::OnceLock;

    static PASSED: AtomicU32 = AtomicU32::new(0);
    static ORDER: OnceLock<Option<(String, u32)>> = OnceLock::new();
    let order = ORDER.get_or_init(|| {
        let text = std::env::var("AGENTCONTAINER_CRASH_AT").ok()?;
        let (name, time) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), time.parse().ok()?))
    });
    if let Some((name, time)) = order {
        if name == place && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *time {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_place: &str) {}
