//! Text of others on its way into a page.

use crate::wire::json::{quote, Json, Value};
use std::fmt::Write as _;

/// Escapes a text for an element's content. What a reader would not see, or what would change how the
/// rest is read, becomes a mark with its code point; `<bdi>` keeps right-to-left text to itself.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str("<bdi>");
    escape(text, &mut out);
    out.push_str("</bdi>");
    out
}

/// The same where no element may stand, as in a drawing: the marks are the bare code points.
pub fn plain(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        match is_odd(c) {
            // Writing to a String cannot fail.
            true => drop(write!(visible, "U+{:04X}", u32::from(c))),
            false => visible.push(c),
        }
    }
    let mut out = String::with_capacity(visible.len() + 16);
    escape(&visible, &mut out);
    out
}

/// A JSON value over several lines, for a `<pre>`. Its strings are written in ASCII.
pub fn code(json: Json<'_>) -> String {
    let mut out = String::new();
    for line in indented(json).lines() {
        escape(line, &mut out);
        out.push('\n');
    }
    out
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ if is_odd(c) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "<span class=\"odd\">U+{:04X}</span>", u32::from(c));
            }
            _ => out.push(c),
        }
    }
}

/// Controls, and characters that are invisible or direct the text around them.
fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

fn indented(json: Json<'_>) -> String {
    let mut out = String::new();
    write(json, 0, &mut out);
    out
}

fn write(json: Json<'_>, depth: usize, out: &mut String) {
    let items: Vec<(Option<String>, Json<'_>)> = match json.value() {
        Value::Object(members) => members.map(|member| (Some(quote(&member.key)), member.value)).collect(),
        Value::Array(elements) => elements.map(|element| (None, element)).collect(),
        Value::String(text) => return out.push_str(&quote(&text)),
        _ => return out.push_str(json.raw()),
    };
    let (open, close) = if json.is_object() { ('{', '}') } else { ('[', ']') };
    out.push(open);
    let some = !items.is_empty();
    for (index, (key, value)) in items.into_iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        out.extend(std::iter::repeat_n("  ", depth + 1));
        if let Some(key) = key {
            out.push_str(&key);
            out.push_str(": ");
        }
        write(value, depth + 1, out);
    }
    if some {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;

    #[test]
    fn json_is_indented_and_stays_ascii() {
        let text = r#"{"a":[],"b":[1.0,{"é":"\u202e"}],"c":{}}"#;
        let json = wire::parse(text).unwrap();
        let wanted = "{\n  \"a\": [],\n  \"b\": [\n    1.0,\n    {\n      \"\\u00e9\": \"\\u202e\"\n    }\n  ],\n  \"c\": {}\n}";
        assert_eq!(indented(json), wanted);
    }
}
