//! Reading files that people name: in a configuration, on a command line.
//!
//! What stands under such a name may be anything. A device that never ends must not fill the memory, and a FIFO that
//! nobody writes to must hold up neither a command nor a node that reloads. A pipe with a writer, as a shell's
//! `<(command)` makes one, is read to its end.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags, CWD};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest file without a bound of its own that is read, bytes.
pub const MOST: u64 = 16 << 20;

/// How long the writer of a pipe gets.
const PATIENCE: Duration = Duration::from_secs(30);

/// How much is asked for at once.
const CHUNK: usize = 64 * 1024;

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// It cannot be read, is larger, or is a pipe whose writer takes longer than 30 s.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_within(path, most, PATIENCE)
}

/// The same, of UTF-8.
///
/// # Errors
/// As [`read`], and for anything but UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let not_utf8 = |_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8");
    String::from_utf8(read(path, most)?).map_err(not_utf8)
}

fn read_within(path: &Path, most: u64, patience: Duration) -> io::Result<Vec<u8>> {
    // Without NONBLOCK, opening a FIFO waits for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let about = rustix::fs::fstat(&file)?;
    let expected = match FileType::from_raw_mode(about.st_mode) {
        FileType::RegularFile => u64::try_from(about.st_size).unwrap_or(0),
        _ => 0,
    };
    let too_large = || io::Error::other(format!("more than {most} bytes"));
    if expected > most {
        return Err(too_large());
    }
    let deadline = Instant::now() + patience;
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    let mut chunk = vec![0; CHUNK];
    loop {
        match rustix::io::read(&file, &mut chunk[..]) {
            Ok(0) => return Ok(bytes),
            Ok(length) if (bytes.len() + length) as u64 > most => return Err(too_large()),
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let left = Timespec::try_from(left).ok();
                let _ = poll(&mut [PollFd::new(&file, PollFlags::IN)], left.as_ref());
                // then it is tried again
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::io::Write;

    #[test]
    fn files_are_read_whole_and_only_up_to_the_bound() {
        let dir = TempDir::new("input");
        let file = dir.path().join("f");
        std::fs::write(&file, vec![7; 200_000]).unwrap();
        assert_eq!(read(&file, 200_000).unwrap(), vec![7; 200_000]);
        assert_eq!(read(&file, 199_999).unwrap_err().to_string(), "more than 199999 bytes");
        assert_eq!(read(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string(), "more than 1048576 bytes");
        assert_eq!(read(dir.path(), 10).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        // Its size is said to be 0.
        assert!(read(Path::new("/proc/self/status"), 1 << 20).unwrap().starts_with(b"Name:"));
        std::fs::write(&file, b"\xff").unwrap();
        assert_eq!(read_text(&file, 10).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_waited_for_only_so_long() {
        let dir = TempDir::new("input-pipe");
        let file = dir.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &file, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(read(&file, 10).unwrap(), b"", "nobody writes");
        let mut both = std::fs::File::options().read(true).write(true).open(&file).unwrap();
        both.write_all(b"late").unwrap();
        let error = read_within(&file, 10, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        both.write_all(b"late").unwrap();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            both.write_all(b"r").unwrap();
        });
        assert_eq!(read(&file, 10).unwrap(), b"later");
        writer.join().unwrap();
    }
}
