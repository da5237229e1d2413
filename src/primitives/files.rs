//! Reading a file of the data root, and naming the first few there are.

use super::data_root::{DataRoot, Node};
use super::walk::Walk;
use crate::agent::host::CallError;
use crate::base64;
use serde::Serialize;
use std::io::Read;
use std::time::{Duration, Instant};

/// The largest file that `read_file` hands out unless it is told otherwise: 16 MiB.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// How many directory entries [`list_first`] looks at before it is content with what it has.
pub const MAX_LISTED_ENTRIES: usize = 10_000;

/// How long [`list_first`] takes at most; what it has by then is its answer.
const LIST_TIME: Duration = Duration::from_millis(500);

/// A file's content: exactly one of `text` and `base64` is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileContent {
    /// The length of the content in bytes.
    pub size: u64,
    /// The content, when text was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content as standard base64 with padding, when bytes were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Reads the file at `path` below `root`: as text, or with `binary` as bytes whatever they are.
///
/// # Errors
/// Those of [`DataRoot::open_file`]; `too_large` above `max_bytes`, also when the file grows past
/// it while it is read; `not_text` when it is not UTF-8 and `binary` is off; `internal` when the
/// disk fails.
pub fn read_file(
    root: &DataRoot,
    path: &str,
    max_bytes: u64,
    binary: bool,
) -> Result<FileContent, CallError> {
    let (file, size) = match root.open_node(path)? {
        Node::File(file, size) => (file, size),
        Node::Directory(_) => {
            return Err(CallError::new(
                "bad_payload",
                format!("`{path}` is a directory; read_file reads a file"),
            ));
        }
    };
    if size > max_bytes {
        return Err(too_large(path, &format!("{size}"), max_bytes));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0).saturating_add(1));
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| CallError::new("internal", format!("reading `{path}`: {error}")))?;
    let size = bytes.len() as u64;
    if size > max_bytes {
        return Err(too_large(path, "more", max_bytes));
    }
    if binary {
        return Ok(FileContent { size, text: None, base64: Some(base64::encode(&bytes)) });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(FileContent { size, text: Some(text), base64: None }),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let what = format!("`{path}` is not UTF-8 text (byte {at}); pass binary=True to get its bytes");
            Err(CallError::new("not_text", what))
        }
    }
}

fn too_large(path: &str, size: &str, max_bytes: u64) -> CallError {
    CallError::new("too_large", format!("`{path}` has {size} bytes where {max_bytes} are allowed"))
}

/// The first `n` regular files below `root`: relative paths in the order of their bytes.
///
/// It stays cheap on a huge tree: it looks at [`MAX_LISTED_ENTRIES`] entries at most, so that in a
/// directory with more than that the answer is the first `n` of those it saw. Links are not
/// followed; names that are not UTF-8, which `read_file` could not be asked for, are left out.
///
/// # Errors
/// Those of opening the root itself.
pub fn list_first(root: &DataRoot, n: usize) -> Result<Vec<String>, CallError> {
    let Node::Directory(top) = root.open_node(".")? else {
        return Err(CallError::new("internal", "the data root is not a directory any more"));
    };
    let mut walk = Walk::new(top, "", MAX_LISTED_ENTRIES, Instant::now() + LIST_TIME);
    let mut paths = Vec::new();
    while paths.len() < n {
        let Some(batch) = walk.next_batch(n - paths.len()) else { break };
        for name in &batch.names {
            if let Ok(name) = name.to_str() {
                if let Ok(prefix) = std::str::from_utf8(&batch.prefix) {
                    paths.push(format!("{prefix}{name}"));
                }
            }
        }
    }
    Ok(paths)
}
