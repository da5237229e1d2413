//! A real browser, without a window.

use super::TempDir;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Chromium or one of its kin.
pub struct Browser {
    program: &'static str,
}

impl Browser {
    /// One that is installed; says if none is.
    pub fn find() -> Option<Browser> {
        // Some of these names only tell how to install it.
        let works = |program: &&str| {
            let asked = Command::new(program).arg("--version").stderr(Stdio::null()).output();
            asked.is_ok_and(|asked| asked.status.success() && !asked.stdout.is_empty())
        };
        let program = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works);
        if program.is_none() {
            eprintln!("skipped: no chromium, chromium-browser or google-chrome here");
        }
        program.map(|program| Browser { program })
    }

    /// The document as the browser has it after loading.
    pub fn dom(&self, page: &str) -> String {
        self.run(page, &["--dump-dom"])
    }

    /// Opens a page with these arguments; what it printed.
    pub fn run(&self, page: &str, arguments: &[&str]) -> String {
        let dir = TempDir::new("browser");
        dir.write("page.html", page);
        let path = |name: &str| -> PathBuf { dir.path().join(name) };
        let mut browser = Command::new(self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg("--disable-dev-shm-usage")
            .arg(format!("--user-data-dir={}", path("profile").display()))
            .args(arguments)
            .arg(format!("file://{}", path("page.html").display()))
            .stdin(Stdio::null())
            .stdout(File::create(path("out")).unwrap())
            .stderr(File::create(path("err")).unwrap())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(90);
        let status = loop {
            if let Some(status) = browser.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                browser.kill().unwrap();
                browser.wait().unwrap();
                panic!("{} took too long: {}", self.program, std::fs::read_to_string(path("err")).unwrap());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}: {}", std::fs::read_to_string(path("err")).unwrap());
        std::fs::read_to_string(path("out")).unwrap()
    }
}
