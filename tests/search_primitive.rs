//! Searching the data root: what is found, what is passed over, and under which conditions.

mod support;

use agentcontainer::primitives::data_root::DataRoot;
use agentcontainer::primitives::search::{search_files, Search, MAX_HITS, PREVIEW_CHARS};
use rustix::fs::{FileType, Mode, OFlags};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};
use support::TempDir;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn search(dir: &TempDir, query: &str) -> Search {
    search_files(&DataRoot::open(dir.path()).unwrap(), query, ".", 100, soon()).unwrap()
}

fn paths(search: &Search) -> Vec<&str> {
    search.hits.iter().map(|hit| hit.path.as_str()).collect()
}

/// Runs one test of this binary in another process, with `wrapper` before it and `name=value` set.
fn rerun(wrapper: &[&str], test: &str, name: &str, value: &str) -> std::process::Output {
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
        .arg(exe)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(name, value);
    command.output().unwrap()
}

#[test]
fn finds_in_any_case_with_line_count_and_preview() {
    let dir = TempDir::new("finds");
    dir.write("b.txt", "one\n  The NEEDLE here\r\nneedle needle\nnone\nneedlE");
    dir.write("a/x", "needle");
    dir.write("a.txt", "Needle\n");
    dir.write("c", "nothing");
    let found = search(&dir, "nEEdle");
    assert_eq!(paths(&found), ["a.txt", "a/x", "b.txt"]);
    let hit = &found.hits[2];
    assert_eq!((hit.line, hit.count, hit.preview.as_str()), (2, 3, "The NEEDLE here"));
    assert_eq!((found.files, found.skipped, found.binary, found.truncated), (4, 0, 0, false));
    let json = serde_json::to_string(&search(&dir, "nothing")).unwrap();
    assert_eq!(
        json,
        r#"{"hits":[{"path":"c","preview":"nothing","line":1,"count":1}],"files":4,"skipped":0,"binary":0,"truncated":false}"#
    );
}

#[test]
fn below_a_directory_or_in_one_file() {
    let dir = TempDir::new("below");
    dir.write("a/b/one", "x1");
    dir.write("a/two", "x2");
    dir.write("three", "x3");
    symlink("a/b", dir.path().join("link")).unwrap();
    let root = DataRoot::open(dir.path()).unwrap();
    let at = |path: &str| search_files(&root, "x", path, 10, soon()).map(|found| paths(&found).join(" "));
    assert_eq!(at(".").unwrap(), "a/b/one a/two three");
    assert_eq!(at("a").unwrap(), "a/b/one a/two");
    assert_eq!(at("./a//b/").unwrap(), "a/b/one");
    assert_eq!(at("a/two").unwrap(), "a/two");
    assert_eq!(at("link").unwrap(), "link/one");
    for (path, code) in [("no", "not_found"), ("..", "forbidden"), ("/etc", "forbidden"), ("", "bad_payload")]
    {
        assert_eq!(at(path).unwrap_err().code, code, "{path}");
    }
}

#[test]
fn malformed_questions_are_refused() {
    let dir = TempDir::new("questions");
    let root = DataRoot::open(dir.path()).unwrap();
    let long = "x".repeat(2000);
    for (query, limit) in
        [("", 1), ("a\nb", 1), ("a\0", 1), (long.as_str(), 1), ("x", 0), ("x", MAX_HITS + 1)]
    {
        assert_eq!(search_files(&root, query, ".", limit, soon()).unwrap_err().code, "bad_payload");
    }
}

#[test]
fn the_limit_keeps_the_first_in_order_and_says_so() {
    let dir = TempDir::new("limit");
    for i in 0..500 {
        dir.write(&format!("d{}/{i:03}", i % 7), "needle");
    }
    let root = DataRoot::open(dir.path()).unwrap();
    let all = search_files(&root, "needle", ".", 1000, soon()).unwrap();
    assert_eq!((all.hits.len(), all.truncated), (500, false));
    let mut sorted = paths(&all);
    sorted.sort_unstable();
    assert_eq!(paths(&all), sorted);
    for limit in [1, 63, 64, 65, 499] {
        let some = search_files(&root, "needle", ".", limit, soon()).unwrap();
        assert_eq!(paths(&some), paths(&all)[..limit]);
        assert!(some.truncated);
    }
    assert!(!search_files(&root, "needle", ".", 500, soon()).unwrap().truncated);
}

#[test]
fn links_fifos_sockets_and_binaries_are_passed_over() {
    let outside = TempDir::new("search-outside");
    outside.write("secret", "needle");
    let dir = TempDir::new("passed");
    dir.write("plain", "needle");
    dir.write("binary", b"needle\0needle");
    dir.write("late-nul", [b"needle\n".as_slice(), &[b'x'; 9000], b"\0"].concat());
    symlink(outside.path(), dir.path().join("out")).unwrap();
    symlink(outside.path().join("secret"), dir.path().join("out-file")).unwrap();
    symlink(".", dir.path().join("loop")).unwrap();
    symlink("plain", dir.path().join("inside")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let found = search(&dir, "needle");
    assert_eq!(paths(&found), ["late-nul", "plain"]);
    assert_eq!((found.files, found.skipped, found.binary), (2, 0, 1));
}

#[test]
fn other_alphabets_and_broken_text() {
    let dir = TempDir::new("alphabets");
    dir.write("german", "Straße\nÄPFEL und Birnen\n");
    dir.write("broken", b"\xff\xfe caf\xe9 caf\xc3\x89 bar\n");
    let found = search(&dir, "äpfel");
    assert_eq!((paths(&found), found.hits[0].line), (vec!["german"], 2));
    let found = search(&dir, "CAFÉ");
    assert_eq!(paths(&found), ["broken"]);
    assert_eq!(found.hits[0].preview, "\u{fffd}\u{fffd} caf\u{fffd} cafÉ bar");
    assert_eq!(paths(&search(&dir, "bar")), ["broken"]);
}

#[test]
fn previews_are_short_clean_and_around_the_match() {
    let dir = TempDir::new("previews");
    dir.write("long", format!("{}NEEDLE{}", "ä".repeat(100_000), "ö".repeat(100_000)));
    dir.write("dirty", "\x1b[31mneedle\u{202e}\t\x07 end\u{2028}x");
    let found = search(&dir, "needle");
    assert_eq!(found.hits[0].preview, "[31mneedle    end x");
    let preview = &found.hits[1].preview;
    assert_eq!(preview.chars().count(), PREVIEW_CHARS);
    assert!(preview.contains("äNEEDLEö"), "{preview}");
}

#[test]
fn files_and_lines_beyond_the_buffer_are_searched_whole() {
    let dir = TempDir::new("large");
    // The piece is 256 KiB: matches lie before, across and behind its borders.
    let piece = 256 * 1024;
    let mut oneline = vec![b'.'; 3 * piece];
    oneline[piece - 3..piece + 3].copy_from_slice(b"needle");
    oneline[piece + 100..piece + 106].copy_from_slice(b"needle");
    dir.write("oneline", &oneline);
    let mut lines = "a line that is here to fill the space\n".repeat(20_000);
    lines.push_str("needle one\n");
    lines.push_str(&"a line that is here to fill the space\n".repeat(20_000));
    lines.push_str("needle two\nand three: needle");
    dir.write("lines", &lines);
    // A long line that matches, whose rest matches too, and a line after it.
    let tail =
        [&vec![b'x'; piece + 10], b"needle".as_slice(), &vec![b'y'; piece], b"needle\nneedle\n"].concat();
    dir.write("tail", tail);
    let found = search(&dir, "NEEDLE");
    let numbers: Vec<_> = found.hits.iter().map(|hit| (hit.path.as_str(), hit.line, hit.count)).collect();
    assert_eq!(numbers, [("lines", 20_001, 3), ("oneline", 1, 1), ("tail", 1, 2)]);
}

#[test]
fn a_deadline_that_passed_is_an_error_with_what_there_is() {
    let dir = TempDir::new("deadline");
    for i in 0..200 {
        dir.write(&format!("{i}"), "needle");
    }
    let root = DataRoot::open(dir.path()).unwrap();
    let error = search_files(&root, "needle", ".", 100, Instant::now()).unwrap_err();
    assert_eq!(error.code, "timeout");
    let detail: serde_json::Value = serde_json::from_str(error.detail.unwrap().get()).unwrap();
    assert_eq!(detail["truncated"], true);
    assert!(detail["hits"].is_array());
}

#[test]
fn what_may_not_be_read_is_counted_and_passed_over() {
    const NAME: &str = "AGENTCONTAINER_TEST_UNREADABLE";
    if let Ok(path) = std::env::var(NAME) {
        let root = DataRoot::open(path).unwrap();
        let found = search_files(&root, "needle", ".", 10, soon()).unwrap();
        assert_eq!(paths(&found), ["a", "z/in"]);
        assert_eq!((found.files, found.skipped), (2, 2));
        assert_eq!(root.open_file("denied").unwrap_err().code, "forbidden");
        assert_eq!(search_files(&root, "needle", "denied", 10, soon()).unwrap_err().code, "forbidden");
        println!("checked as a user");
        return;
    }
    let dir = TempDir::new("unreadable");
    for name in ["a", "denied", "closed/in", "z/in"] {
        dir.write(name, "needle");
    }
    let mode = |name: &str, mode| {
        std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("denied", 0);
    mode("closed", 0);
    let wrapper: &[&str] = if rustix::process::geteuid().is_root() {
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    } else {
        &["env"]
    };
    let path = dir.path().to_str().unwrap();
    let output = rerun(wrapper, "what_may_not_be_read_is_counted_and_passed_over", NAME, path);
    mode("closed", 0o700);
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("failed to execute") {
        eprintln!("skipped: user nobody may not execute this test");
        return;
    }
    assert!(output.status.success() && stdout.contains("checked as a user"), "{output:?}");
}

#[test]
fn a_deep_tree_needs_neither_stack_nor_descriptors() {
    const NAME: &str = "AGENTCONTAINER_TEST_DEEP";
    const DEPTH: usize = 3000;
    if let Ok(path) = std::env::var(NAME) {
        let found = search_files(&DataRoot::open(path).unwrap(), "needle", ".", 10_000, soon()).unwrap();
        // A file before and one behind the subdirectory, on every tenth level: far beyond PATH_MAX.
        assert_eq!(
            (found.hits.len(), found.files, found.skipped),
            (DEPTH / 10 * 2, DEPTH as u64 / 10 * 2, 0)
        );
        let sorted = found.hits.windows(2).all(|pair| pair[0].path.as_bytes() < pair[1].path.as_bytes());
        assert!(sorted);
        println!("searched to the bottom");
        return;
    }
    let dir = TempDir::new("deep");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
    for level in 0..DEPTH {
        if level % 10 == 0 {
            for name in ["a", "z"] {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&here, name, flags, Mode::from_raw_mode(0o600)).unwrap();
                rustix::io::write(&file, b"needle").unwrap();
            }
        }
        rustix::fs::mkdirat(&here, "deeper", Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "deeper", flags, Mode::empty()).unwrap();
    }
    let wrapper = ["sh", "-c", "ulimit -n 64; ulimit -s 512; exec \"$0\" \"$@\""];
    let path = dir.path().to_str().unwrap();
    let output = rerun(&wrapper, "a_deep_tree_needs_neither_stack_nor_descriptors", NAME, path);
    // The standard library's removal keeps a descriptor a level.
    Command::new("rm").arg("-rf").arg(dir.path()).status().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("searched to the bottom"), "{output:?}");
}

#[test]
fn a_tree_that_is_rearranged_meanwhile_never_leads_out() {
    let outside = TempDir::new("moving-outside");
    outside.write("x/y/secret", "needle outside");
    let dir = TempDir::new("moving");
    for i in 0..20 {
        dir.write(&format!("a/{i}/b/c/d/e/f/g/h/i/j/k/l/m/n/in"), "needle inside");
    }
    symlink(outside.path(), dir.path().join("link")).unwrap();
    let root = DataRoot::open(dir.path()).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| dir.path().join(name);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for i in 0..20 {
                    let deep = at(&format!("a/{i}/b/c/d/e/f/g"));
                    std::fs::rename(&deep, at("away")).unwrap();
                    std::fs::rename(at("link"), &deep).unwrap();
                    std::fs::rename(&deep, at("link")).unwrap();
                    std::fs::rename(at("away"), &deep).unwrap();
                }
            }
        });
        let end = Instant::now() + Duration::from_secs(1);
        let mut searches = 0;
        while Instant::now() < end {
            let found = search_files(&root, "needle", ".", 100, soon()).unwrap();
            assert!(found.hits.iter().all(|hit| hit.preview == "needle inside"), "{found:?}");
            searches += 1;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(searches > 3);
    });
}
