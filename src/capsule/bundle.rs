//! Bundles: a directory as one JSON document.
//!
//! ```json
//! {"files":[{"content_base64":"YQo=","path":"b.txt","sha256":"8742…","size":2}],"format":"agent-capsule-bundle-v0"}
//! ```
//!
//! * `format` is that one; `files` is an array of objects with these four fields (others are ignored).
//! * `path` is relative, with `/`: no `..`, no `.`, no empty part, no backslash, no NUL, and short enough
//!   for any file system. No path twice, and no file where another path has a directory.
//! * `size` and `sha256` are those of the bytes, `content_base64` is strictly base64.
//! * At most [`MAX_ENTRIES`] files.
//!
//! [`Bundle::parse`] checks all of it, for every file, before anyone can take the first one out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::json::quote;
use super::manifest::ManifestFile;
use super::CapsuleError;
use crate::base64;
use crate::wire::{hex, parse, Json};

/// The value of `format`.
pub const FORMAT: &str = "agent-capsule-bundle-v0";

/// How many files a bundle may have.
pub const MAX_ENTRIES: usize = 100_000;

/// The longest path, and the longest part of one, in bytes.
const MAX_PATH: usize = 4000;
const MAX_PART: usize = 255;

/// A bundle of which everything has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    files: Vec<BundleFile<'a>>,
}

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFile<'a> {
    /// Where it belongs, below the directory.
    pub path: String,
    content: Cow<'a, str>,
}

impl<'a> Bundle<'a> {
    /// Reads and checks a verified payload.
    ///
    /// # Errors
    /// What is wrong, and with which file.
    pub fn parse(payload: &'a [u8]) -> Result<Bundle<'a>, CapsuleError> {
        let wrong = |what: &str| CapsuleError::Bundle(what.into());
        let text = std::str::from_utf8(payload).map_err(|_| wrong("invalid bundle JSON"))?;
        let json = parse(text).map_err(|error| wrong(&format!("invalid bundle JSON: {error}")))?;
        let (mut format, mut list) = (None, None);
        for member in json.members() {
            match &*member.key {
                "format" => format = member.value.as_str(),
                "files" => list = Some(member.value),
                _ => {}
            }
        }
        if format.as_deref() != Some(FORMAT) {
            return Err(wrong("unsupported bundle format"));
        }
        let list = list.filter(|list| list.raw().starts_with('['));
        let list = list.ok_or_else(|| wrong("invalid bundle files list"))?;
        let (mut files, mut plain) = (Vec::new(), Vec::new());
        for entry in list.elements() {
            if files.len() == MAX_ENTRIES {
                return Err(CapsuleError::Bundle(format!("more than {MAX_ENTRIES} files in the bundle")));
            }
            files.push(file(entry, &mut plain)?);
        }
        check_paths(&files)?;
        Ok(Bundle { files })
    }

    /// The files, in the bundle's order.
    pub fn files(&self) -> &[BundleFile<'a>] {
        &self.files
    }
}

impl BundleFile<'_> {
    /// Puts the file's bytes into `plain`, whose former content is gone.
    ///
    /// # Errors
    /// None: it was checked.
    pub fn content(&self, plain: &mut Vec<u8>) -> Result<(), CapsuleError> {
        base64::decode_to(&self.content, plain).map_err(CapsuleError::Bundle)
    }
}

fn file<'a>(entry: Json<'a>, plain: &mut Vec<u8>) -> Result<BundleFile<'a>, CapsuleError> {
    let wrong = |what: &str| CapsuleError::Bundle(what.into());
    if !entry.is_object() {
        return Err(wrong("invalid bundle file entry"));
    }
    let (mut content, mut path, mut sha256, mut size) = (None, None, None, None);
    for member in entry.members() {
        match &*member.key {
            "content_base64" => content = member.value.as_str(),
            "path" => path = member.value.as_str(),
            "sha256" => sha256 = member.value.as_str(),
            "size" => size = member.value.as_i64(),
            _ => {}
        }
    }
    let (Some(content), Some(path), Some(sha256), Some(size)) = (content, path, sha256, size) else {
        return Err(wrong("invalid bundle file metadata"));
    };
    check_path(&path)?;
    let about = |what: &str| CapsuleError::Bundle(format!("{what}: {path}"));
    base64::decode_to(&content, plain).map_err(|error| about(&format!("bundle content is {error}")))?;
    if u64::try_from(size) != Ok(plain.len() as u64) {
        return Err(about("bundle size mismatch"));
    }
    if hex::encode(&Sha256::digest(&*plain)) != sha256 {
        return Err(about("bundle SHA256 mismatch"));
    }
    Ok(BundleFile { path: path.into_owned(), content })
}

/// Whether a path stays below the directory it is unpacked to, on any system.
pub(super) fn check_path(path: &str) -> Result<(), CapsuleError> {
    let unsafe_part = |part: &str| matches!(part, "" | "." | "..");
    if path.split('/').any(unsafe_part) || path.contains(['\\', '\0']) {
        return Err(CapsuleError::Bundle(format!("unsafe bundle path: {path}")));
    }
    if path.len() > MAX_PATH || path.split('/').any(|part| part.len() > MAX_PART) {
        let start: String = path.chars().take(40).collect();
        return Err(CapsuleError::Bundle(format!("bundle path is too long: {start}…")));
    }
    Ok(())
}

/// No path twice, and no file where another one needs a directory.
fn check_paths(files: &[BundleFile<'_>]) -> Result<(), CapsuleError> {
    let mut paths = BTreeSet::new();
    for file in files {
        if !paths.insert(&*file.path) {
            return Err(CapsuleError::Bundle(format!("bundle path twice: {}", file.path)));
        }
    }
    for file in files {
        let parents = file.path.match_indices('/').map(|(at, _)| &file.path[..at]);
        if let Some(parent) = parents.into_iter().find(|parent| paths.contains(parent)) {
            return Err(CapsuleError::Bundle(format!("bundle path is a file and a directory: {parent}")));
        }
    }
    Ok(())
}

/// A bundle in the making.
#[derive(Debug)]
pub struct Writer {
    json: String,
    files: Vec<ManifestFile>,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer { json: "{\"files\":[".into(), files: Vec::new() }
    }
}

impl Writer {
    /// Adds a file.
    ///
    /// # Errors
    /// The path could not be unpacked again, or there are too many files.
    pub fn add(&mut self, path: &str, bytes: &[u8]) -> Result<(), CapsuleError> {
        check_path(path)?;
        if self.files.len() == MAX_ENTRIES {
            return Err(CapsuleError::Pack(format!("more than {MAX_ENTRIES} files")));
        }
        let sha256: [u8; 32] = Sha256::digest(bytes).into();
        if !self.files.is_empty() {
            self.json.push(',');
        }
        // Room for all of it at once, so that a large document is not copied as it grows.
        self.json.reserve(bytes.len().div_ceil(3) * 4 + path.len() * 6 + 200);
        self.json.push_str("{\"content_base64\":\"");
        base64::encode_onto(bytes, &mut self.json);
        self.json.push_str("\",\"path\":");
        self.json.push_str(&quote(path));
        self.json.push_str(",\"sha256\":\"");
        self.json.push_str(&hex::encode(&sha256));
        self.json.push_str(&format!("\",\"size\":{}}}", bytes.len()));
        self.files.push(ManifestFile { path: path.into(), bytes: bytes.len() as u64, sha256 });
        Ok(())
    }

    /// How many files it has so far.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// The payload, and the list for the manifest.
    pub fn finish(mut self) -> (Vec<u8>, Vec<ManifestFile>) {
        self.json.push_str("],\"format\":\"");
        self.json.push_str(FORMAT);
        self.json.push_str("\"}");
        (self.json.into_bytes(), self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        let files = [("a", &b""[..]), ("ü/😀", b"x\0"), ("ü/b", &[255; 1000])];
        for (path, bytes) in files {
            writer.add(path, bytes).unwrap();
        }
        let (payload, listed) = writer.finish();
        assert!(
            payload.starts_with(b"{\"files\":[{\"content_base64\":\"\",\"path\":\"a\",\"sha256\":\"e3b0c4")
        );
        let bundle = Bundle::parse(&payload).unwrap();
        let mut plain = Vec::new();
        for ((file, listed), (path, bytes)) in bundle.files().iter().zip(listed).zip(files) {
            file.content(&mut plain).unwrap();
            assert_eq!((&*file.path, &*plain, listed.bytes), (path, bytes, bytes.len() as u64));
        }
        assert_eq!(bundle.files().len(), 3);
    }

    #[test]
    fn a_path_that_could_leave_the_directory_is_refused() {
        for path in ["", ".", "..", "../a", "/a", "a/", "a//b", "a/./b", "a/../b", "a\\b", "a\0b"] {
            let error = check_path(path).unwrap_err().reason();
            assert_eq!(error, format!("unsafe bundle path: {path}"));
        }
        assert!(check_path(&"x".repeat(256)).unwrap_err().reason().starts_with("bundle path is too long"));
        assert!(check_path(&"x/".repeat(2000).trim_end_matches('/').repeat(2)).is_err());
        for path in ["a", ".a/..b/c...", "C:/x", "a b/\n", "-"] {
            check_path(path).unwrap();
        }
    }
}
