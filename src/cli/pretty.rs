//! JSON for people: indented, what is short on one line, numbers as they came.

use crate::wire::json::{quote, Json, Value};

/// What stands on one line if it fits into this many columns.
const WIDTH: usize = 88;

/// A value as readable text. Characters that a terminal would act on are escaped.
pub fn pretty(json: Json<'_>, utf8: bool) -> String {
    let mut out = String::new();
    write(json, 0, utf8, &mut out);
    out
}

fn write(json: Json<'_>, indent: usize, utf8: bool, out: &mut String) {
    // Measured only where it can fit, so that a deep document is not rendered at each of its levels.
    if json.raw().len() <= 8 * WIDTH {
        let flat = flat(json, utf8);
        if indent + flat.chars().count() <= WIDTH {
            out.push_str(&flat);
            return;
        }
    }
    let items: Vec<(Option<String>, Json<'_>)> = match json.value() {
        Value::Object(members) => {
            members.map(|member| (Some(string(&member.key, utf8)), member.value)).collect()
        }
        Value::Array(elements) => elements.map(|element| (None, element)).collect(),
        _ => return out.push_str(&flat(json, utf8)),
    };
    let (open, close) = if json.is_object() { ('{', '}') } else { ('[', ']') };
    out.push(open);
    for (index, (key, value)) in items.into_iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        out.extend(std::iter::repeat_n(' ', indent + 2));
        if let Some(key) = key {
            out.push_str(&key);
            out.push_str(": ");
        }
        write(value, indent + 2, utf8, out);
    }
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
    out.push(close);
}

/// On one line.
pub fn flat(json: Json<'_>, utf8: bool) -> String {
    match json.value() {
        Value::Object(members) => {
            let members: Vec<String> = members
                .map(|member| format!("{}: {}", string(&member.key, utf8), flat(member.value, utf8)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Array(elements) => {
            let elements: Vec<String> = elements.map(|element| flat(element, utf8)).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::String(text) => string(&text, utf8),
        _ => json.raw().to_owned(),
    }
}

fn string(text: &str, utf8: bool) -> String {
    if !utf8 {
        return quote(text);
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    let mut from = 0;
    for (at, c) in text.char_indices() {
        // What is neither plain nor a letter of some script goes out as `quote` writes it.
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c == '"' || c == '\\' || c.is_control() || turns {
            out.push_str(&text[from..at]);
            let quoted = quote(c.encode_utf8(&mut [0; 4]));
            let bare = quoted.trim_start_matches('"');
            match c {
                '"' => out.push_str("\\\""),
                '\u{7f}' => out.push_str("\\u007f"),
                _ => out.push_str(bare.strip_suffix('"').unwrap_or(bare)),
            }
            from = at + c.len_utf8();
        }
    }
    out.push_str(&text[from..]);
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::parse;

    #[test]
    fn numbers_and_order_stay_and_long_things_are_broken() {
        let text = r#"{"b":1.0,"a":[1e-6,-0,18446744073709551617],"s":"\u00e4\u001b[2J\u202e\"\\\u007f"}"#;
        let json = parse(text).unwrap();
        assert_eq!(
            pretty(json, true),
            r#"{"b": 1.0, "a": [1e-6, -0, 18446744073709551617], "s": "ä\u001b[2J\u202e\"\\\u007f"}"#
        );
        assert!(pretty(json, false).is_ascii());
        let long = format!(r#"{{"list":[{}0]}}"#, "1000000000,".repeat(9));
        let shown = pretty(parse(&long).unwrap(), true);
        assert_eq!(shown.lines().count(), 14, "{shown}");
        for shown in [pretty(json, true), pretty(json, false), shown] {
            assert!(parse(&shown).is_ok(), "{shown}");
        }
    }
}
