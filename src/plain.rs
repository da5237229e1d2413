//! What is wrong with JSON, for people: serde's errors without the names of Rust types, without positions,
//! and without the values, which may be secrets.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Reads a JSON object.
///
/// # Errors
/// What is wrong, and in which member.
pub fn read_object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    if !text.trim_start().starts_with('{') {
        return Err("must be an object".into());
    }
    serde_json::from_str(text).map_err(|error| {
        let why = plain_error(&error);
        match member_at(text, &error).filter(|_| why.starts_with("must be ")) {
            Some(name) => format!("{name} {why}"),
            None => why,
        }
    })
}

/// The error in plain words: `must be a whole number from 0 to 65535, not a string`.
pub fn plain_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = match text.rfind(" at line ") {
        Some(at) => &text[..at],
        None => &text,
    };
    if let Some(names) =
        text.strip_prefix("unknown variant ").and_then(|rest| rest.rsplit_once(", expected "))
    {
        return format!("must be {}", names.1.trim_start_matches("one of ").replace('`', "\""));
    }
    let wrong = ["invalid type: ", "invalid value: ", "invalid length "];
    let Some(rest) = wrong.iter().find_map(|start| text.strip_prefix(start)) else {
        return match text {
            "invalid number" | "number out of range" => {
                "must be a number that fits: finite, and whole where it counts something".into()
            }
            // The text is JSON; so it is serde's way to say that a variant's name is no string.
            "expected value" => "must be a string".into(),
            other => other.to_owned(),
        };
    };
    // The last one: what came, a string perhaps, may hold the words itself.
    let (found, wanted) = rest.rsplit_once(", expected ").unwrap_or((rest, "something else"));
    let wanted = wanted_in_words(wanted);
    match found_in_words(found) {
        Some(found) if text.starts_with("invalid type: ") && found != wanted => {
            format!("must be {wanted}, not {found}")
        }
        _ => format!("must be {wanted}"),
    }
}

fn wanted_in_words(wanted: &str) -> String {
    let most = |most: u64| format!("a whole number from 0 to {most}");
    match wanted {
        "u8" => most(u8::MAX.into()),
        "u16" => most(u16::MAX.into()),
        "u32" => most(u32::MAX.into()),
        "u64" | "usize" => most(u64::MAX),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "path string" => "a string".into(),
        "a sequence" => "a list".into(),
        "a map" => "an object".into(),
        _ if wanted.starts_with("struct ") => "an object".into(),
        _ if wanted.starts_with("enum ") || wanted == "string or map" => "a string".into(),
        other => other.to_owned(),
    }
}

fn found_in_words(found: &str) -> Option<&'static str> {
    let kinds = [
        ("string", "a string"),
        ("character", "a string"),
        ("integer", "a whole number"),
        ("floating point", "a number with a fraction"),
        ("number", "a number"),
        ("boolean", "true or false"),
        ("null", "null"),
        ("unit value", "null"),
        ("map", "an object"),
        ("sequence", "a list"),
    ];
    kinds.iter().find(|(kind, _)| found.starts_with(kind)).map(|(_, words)| *words)
}

/// The member of a one-line object in which the error is.
fn member_at(text: &str, error: &serde_json::Error) -> Option<String> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let begin = |value: &RawValue| value.get().as_ptr() as usize - text.as_ptr() as usize;
    let before = members.iter().filter(|(_, value)| error.line() == 1 && begin(value) <= error.column());
    before.max_by_key(|(_, value)| begin(value)).map(|(name, _)| format!("{name:?}"))
}

/// Makes a struct be read from an object alone: by itself serde takes its members from a list as well.
/// The struct says `#[serde(remote = "Self")]`; with `and write` it is written as derived.
macro_rules! only_from_object {
    ($struct:ident) => {
        impl<'de> serde::Deserialize<'de> for $struct {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members;
                impl<'de> serde::de::Visitor<'de> for Members {
                    type Value = $struct;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        members: A,
                    ) -> Result<$struct, A::Error> {
                        $struct::deserialize(serde::de::value::MapAccessDeserializer::new(members))
                    }
                }
                deserializer.deserialize_map(Members)
            }
        }
    };
    ($struct:ident and write) => {
        $crate::plain::only_from_object!($struct);
        impl serde::Serialize for $struct {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $struct::serialize(self, serializer)
            }
        }
    };
}
pub(crate) use only_from_object;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[allow(dead_code)] // only read
    struct Sample {
        port: u16,
        size: usize,
        seconds: f64,
        text: String,
        file: std::path::PathBuf,
        list: Vec<String>,
        flag: bool,
        mode: Option<crate::node::messages::Mode>,
        map: serde_json::Map<String, Value>,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(remote = "Self")]
    #[allow(dead_code)] // only read
    struct Inner {
        a: u8,
        b: u8,
    }
    only_from_object!(Inner);

    #[test]
    fn errors_speak_of_json_and_repeat_no_value() {
        for (text, said) in [
            (r#"{"port": 70000}"#, "\"port\" must be a whole number from 0 to 65535"),
            (
                r#"{"port": "SECRET, expected u8"}"#,
                "\"port\" must be a whole number from 0 to 65535, not a string",
            ),
            (r#"{"port": -1}"#, "\"port\" must be a whole number from 0 to 65535"),
            (r#"{"port": 1.5}"#, "\"port\" must be a whole number from 0 to 65535"),
            (r#"{"port": 99999999999999999999999}"#, "must be a whole number from 0 to 65535"),
            (
                r#"{"text": "x", "size": {}}"#,
                "\"size\" must be a whole number from 0 to 18446744073709551615, not an object",
            ),
            (r#"{"size": 1e3}"#, "\"size\" must be a whole number from 0"),
            (r#"{"seconds": "SECRET"}"#, "\"seconds\" must be a number, not a string"),
            (r#"{"text": 515151}"#, "\"text\" must be a string, not a whole number"),
            (r#"{"text": null}"#, "\"text\" must be a string, not null"),
            (r#"{"file": [1]}"#, "\"file\" must be a string, not a list"),
            (r#"{"list": "SECRET"}"#, "\"list\" must be a list, not a string"),
            (r#"{"list": ["x", 515151]}"#, "\"list\" must be a string, not a whole number"),
            (r#"{"flag": "SECRET"}"#, "\"flag\" must be true or false, not a string"),
            (r#"{"mode": "SECRET"}"#, "\"mode\" must be \"clone\" or \"move\""),
            (r#"{"mode": 515151}"#, "\"mode\" must be a string"),
            (r#"{"map": ["SECRET"]}"#, "\"map\" must be an object, not a list"),
            (r#"{"inner": [1, 2]}"#, "\"inner\" must be an object, not a list"),
            (r#"{"inner": "SECRET"}"#, "\"inner\" must be an object, not a string"),
            (r#"["SECRET"]"#, "must be an object"),
        ] {
            let why = read_object::<Sample>(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
            for word in ["SECRET", "515151", "line", "u16", "usize", "f64", "struct", "sequence", "invalid"] {
                assert!(!why.contains(word), "{text}: {why}");
            }
            // The same from a value, which has no positions.
            if let Ok(value) = serde_json::from_str::<Value>(text) {
                if value.is_object() {
                    let why = plain_error(&serde_json::from_value::<Sample>(value).unwrap_err());
                    assert!(why.starts_with("must be ") && !why.contains("SECRET"), "{text}: {why}");
                }
            }
        }
    }
}
