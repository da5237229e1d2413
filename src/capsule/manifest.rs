//! The manifest: what the sender says is inside, and what it asks of the receiver.
//!
//! The value of the header `capsule_manifest`, one JSON object:
//!
//! | field | type | rule |
//! |---|---|---|
//! | `capsule_type` | string | not empty; `agent_handoff` unless the sender says otherwise |
//! | `created_by` | string | not empty |
//! | `task_id` | string | may be empty |
//! | `files` | array of `{"bytes","path","sha256"}` | a size, a path that is not empty, 64 hexadecimal digits |
//! | `requested_capabilities` | array of strings | |
//! | `policy_hints` | object | hints of the sender; nothing here obeys them |
//! | `delivery` | object, optional | `mode` is `inline`, `attachment` or `reference`; `uri`, not empty, is needed with `reference` |
//!
//! Fields that are not listed are kept. The manifest is a claim: only the payload's hash, the signature
//! and the bundle's own hashes are checked against the bytes.

use std::collections::BTreeMap;

use super::json::{array, canonical, Object};
use super::{CapsuleError, PackOptions};
use crate::wire::{hex, parse, Json};

/// What is asked for most often.
pub const DEFAULT_TYPE: &str = "agent_handoff";

/// The ways a capsule gets to its receiver.
pub const DELIVERY_MODES: [&str; 3] = ["inline", "attachment", "reference"];

/// A manifest that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// All of it, as we write JSON.
    pub json: String,
    /// What kind of capsule it is.
    pub capsule_type: String,
    /// Who made it.
    pub created_by: String,
    /// Which task it belongs to; may be empty.
    pub task_id: String,
    /// How it is delivered, if it says.
    pub delivery: Option<Delivery>,
    /// How many files it lists.
    pub files: usize,
    /// What the sender wants to be allowed.
    pub requested_capabilities: Vec<String>,
}

/// How a capsule gets to its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// One of [`DELIVERY_MODES`].
    pub mode: String,
    /// Where it is to be found.
    pub uri: Option<String>,
}

/// One file of the list that a manifest has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Relative, with `/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Of its bytes.
    pub sha256: [u8; 32],
}

impl Manifest {
    /// Reads the header's value.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let json = parse(text).map_err(|_| "invalid capsule manifest JSON")?;
        if !json.is_object() {
            return Err("capsule manifest must be a JSON object".into());
        }
        let members: BTreeMap<String, Json<'_>> =
            json.members().map(|member| (member.key.into_owned(), member.value)).collect();
        let known =
            ["capsule_type", "created_by", "files", "policy_hints", "requested_capabilities", "task_id"];
        let missing: Vec<_> = known.into_iter().filter(|name| !members.contains_key(*name)).collect();
        if !missing.is_empty() {
            return Err(format!("missing capsule manifest fields: {}", missing.join(", ")));
        }
        let string = |name: &str| {
            let value = members.get(name).and_then(|value| value.as_str());
            value.map(String::from).ok_or_else(|| format!("capsule manifest field must be a string: {name}"))
        };
        let capsule_type = string("capsule_type")?;
        let created_by = string("created_by")?;
        let task_id = string("task_id")?;
        for (name, value) in [("capsule_type", &capsule_type), ("created_by", &created_by)] {
            if value.is_empty() {
                return Err(format!("capsule manifest {name} is required"));
            }
        }
        let files = file_count(members.get("files"))?;
        let capabilities = members.get("requested_capabilities").filter(|json| json.raw().starts_with('['));
        let requested_capabilities = capabilities
            .and_then(|list| list.elements().map(|one| one.as_str().map(String::from)).collect())
            .ok_or("capsule manifest requested_capabilities must be a string list")?;
        if !members.get("policy_hints").is_some_and(|hints| hints.is_object()) {
            return Err("capsule manifest policy_hints must be an object".into());
        }
        let delivery = members.get("delivery").map(|json| Delivery::parse(*json)).transpose()?;
        let json = canonical(&json);
        Ok(Manifest { json, capsule_type, created_by, task_id, delivery, files, requested_capabilities })
    }
}

/// Checks the list of files; how many there are.
fn file_count(files: Option<&Json<'_>>) -> Result<usize, String> {
    let files = files.filter(|json| json.raw().starts_with('['));
    let files = files.ok_or("capsule manifest files must be a list")?;
    let mut count = 0;
    for entry in files.elements() {
        if !entry.is_object() {
            return Err("capsule manifest file entry must be an object".into());
        }
        let (mut bytes, mut path, mut sha256) = (None, None, None);
        for member in entry.members() {
            match &*member.key {
                "bytes" => bytes = Some(member.value),
                "path" => path = Some(member.value),
                "sha256" => sha256 = Some(member.value),
                _ => {}
            }
        }
        let missing = |name: &str| format!("missing capsule manifest file field: {name}");
        let (path, bytes) = (path.ok_or_else(|| missing("path"))?, bytes.ok_or_else(|| missing("bytes"))?);
        let sha256 = sha256.ok_or_else(|| missing("sha256"))?;
        if path.as_str().is_none_or(|path| path.is_empty()) {
            return Err("capsule manifest file path must be a non-empty string".into());
        }
        if bytes.as_i64().is_none_or(|bytes| bytes < 0) {
            return Err("capsule manifest file bytes must be a non-negative integer".into());
        }
        if sha256.as_str().and_then(|digits| hex::decode32(&digits)).is_none() {
            return Err("capsule manifest file sha256 is invalid".into());
        }
        count += 1;
    }
    Ok(count)
}

impl Delivery {
    fn parse(json: Json<'_>) -> Result<Delivery, String> {
        if !json.is_object() {
            return Err("capsule manifest delivery must be an object".into());
        }
        let mode = json.get("mode").and_then(|mode| mode.as_str());
        let mode = mode.filter(|mode| DELIVERY_MODES.contains(&&**mode));
        let mode = mode.ok_or("capsule manifest delivery mode is invalid")?.into_owned();
        let uri = json
            .get("uri")
            .filter(|uri| uri.raw() != "null")
            .map(|uri| uri.as_str().filter(|uri| !uri.is_empty()));
        if uri == Some(None) {
            return Err("capsule manifest delivery uri must be a non-empty string".into());
        }
        let uri = uri.flatten().map(String::from);
        if mode == "reference" && uri.is_none() {
            return Err("reference delivery requires a uri".into());
        }
        Ok(Delivery { mode, uri })
    }
}

/// The manifest of what is being packed.
///
/// # Errors
/// An option that no manifest may hold.
pub(super) fn write(options: &PackOptions, files: &[ManifestFile]) -> Result<String, CapsuleError> {
    let wrong = |what: &str| CapsuleError::Manifest { line: 0, what: what.into() };
    if options.capsule_type.is_empty() {
        return Err(wrong("capsule manifest capsule_type is required"));
    }
    if options.created_by.is_empty() {
        return Err(wrong("capsule manifest created_by is required"));
    }
    if !DELIVERY_MODES.contains(&&*options.delivery_mode) {
        return Err(wrong("capsule manifest delivery mode is invalid"));
    }
    let uri = options.delivery_uri.as_deref().filter(|uri| !uri.is_empty());
    if options.delivery_mode == "reference" && uri.is_none() {
        return Err(wrong("reference delivery requires a uri"));
    }
    let mut delivery = Object::new().text("mode", &options.delivery_mode);
    if let Some(uri) = uri {
        delivery = delivery.text("uri", uri);
    }
    let mut hints = Object::new().flag("network_egress", false).flag("sandbox_required", true);
    for (key, value) in &options.policy_hints {
        hints = hints.flag(key, *value);
    }
    let files = files.iter().map(|file| {
        let entry = Object::new().number("bytes", file.bytes).text("path", &file.path);
        entry.text("sha256", &hex::encode(&file.sha256)).finish()
    });
    Ok(Object::new()
        .text("capsule_type", &options.capsule_type)
        .text("created_by", &options.created_by)
        .text("task_id", &options.task_id)
        .raw("delivery", delivery.finish())
        .raw("files", array(files))
        .texts("requested_capabilities", &options.requested_capabilities)
        .raw("policy_hints", hints.finish())
        .finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"capsule_type":"a","created_by":"b","files":[{"bytes":1,"path":"p","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}],"policy_hints":{},"requested_capabilities":["x"],"task_id":""}"#;

    #[test]
    fn what_is_listed_is_read_and_the_rest_is_kept() {
        let text = GOOD.replacen('{', r#"{"x": 1.50,"delivery":{"mode":"reference","uri":"u"}, "#, 1);
        let manifest = Manifest::parse(&text).unwrap();
        assert_eq!(manifest.files, 1);
        assert_eq!(manifest.requested_capabilities, ["x"]);
        assert_eq!(manifest.delivery, Some(Delivery { mode: "reference".into(), uri: Some("u".into()) }));
        assert!(manifest.json.ends_with(r#""task_id":"","x":1.50}"#), "{}", manifest.json);
    }

    #[test]
    fn each_broken_rule_says_which() {
        for (from, to, what) in [
            ("{\"capsule", "{{\"capsule", "invalid capsule manifest JSON"),
            (r#","task_id":"""#, r#","task":"""#, "missing capsule manifest fields: task_id"),
            (r#""task_id":"""#, r#""task_id":1"#, "capsule manifest field must be a string: task_id"),
            (r#""capsule_type":"a""#, r#""capsule_type":"""#, "capsule manifest capsule_type is required"),
            (r#""created_by":"b""#, r#""created_by":"""#, "capsule manifest created_by is required"),
            (r#"[{"bytes""#, r#"["",{"bytes""#, "capsule manifest file entry must be an object"),
            (r#""bytes":1,"#, "", "missing capsule manifest file field: bytes"),
            (r#""bytes":1"#, r#""bytes":-1"#, "capsule manifest file bytes must be a non-negative integer"),
            (r#""bytes":1"#, r#""bytes":true"#, "capsule manifest file bytes must be a non-negative integer"),
            (r#""path":"p""#, r#""path":"""#, "capsule manifest file path must be a non-empty string"),
            ("e3b0", "e3b", "capsule manifest file sha256 is invalid"),
            (r#"["x"]"#, "[1]", "capsule manifest requested_capabilities must be a string list"),
            (r#"["x"]"#, r#""x""#, "capsule manifest requested_capabilities must be a string list"),
            (r#"hints":{}"#, r#"hints":[]"#, "capsule manifest policy_hints must be an object"),
            ("{\"c", r#"{"delivery":1,"c"#, "capsule manifest delivery must be an object"),
            ("{\"c", r#"{"delivery":{},"c"#, "capsule manifest delivery mode is invalid"),
            ("{\"c", r#"{"delivery":{"mode":"reference"},"c"#, "reference delivery requires a uri"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            assert_eq!(Manifest::parse(&text).unwrap_err(), what, "{to}");
        }
        assert_eq!(Manifest::parse("[]").unwrap_err(), "capsule manifest must be a JSON object");
    }
}
