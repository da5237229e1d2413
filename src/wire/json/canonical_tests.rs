use super::super::parse;
use super::*;
use crate::wire::testing::{python, try_run};

/// Numbers are left out where another tool would rewrite them.
const STRINGS: &[&str] = &[
    r#""""#,
    r#"" ~!\"\\\/\b\f\n\r\t\u0000\u001f\u0041""#,
    "\"\u{7f}\\u007f\\u007F\u{80}\u{9f}\u{a0}é\u{2028}\u{2029}\u{feff}\u{fffd}\u{ffff}\"",
    "\"😀\\ud83d\\ude00\\uD83D\\uDE00𝒳\u{10ffff}\u{10000}\"",
    r#"{"b":[1,{"d":{},"c":[]}, []],"a":{"z":null,"y":true,"x":false}}"#,
    // By code point U+E000 and U+FFFF come before U+10000; in UTF-16 they come after it.
    "{\"\u{10000}\":1,\"\u{ffff}\":2,\"\u{e000}\":3,\"\u{d7ff}\":4,\"\\ud83d\\ude00\":5,\"\\ue001\":6}",
    "{\"a\":1,\"\":2,\"aa\":3,\"A\":4,\"a\\u0000\":5,\"a\u{7f}\":6,\"é\":7,\"\\n\":8,\"\\u0062\":9,\"~\":10}",
    "{ \"b\" : 1 ,\r\n\t\"a\" : [ 1 , 2 ] }",
];

const NUMBERS: &[&str] = &[
    "0.00001",
    "1e-6",
    "1e16",
    "1E16",
    "1E+16",
    "1.0",
    "1.50",
    "-0.0",
    "-0",
    "9007199254740993",
    "18446744073709551617",
    "1e400",
    "0.1000000000000000055511151231257827",
];

fn forms(text: &str) -> [String; 3] {
    let json = parse(text).unwrap();
    [Form::Ascii, Form::Utf8 { escape_del: false }, Form::Utf8 { escape_del: true }]
        .map(|form| canonical(&json, form, None))
}

#[test]
fn is_what_python_prints() {
    let script = r#"
import json, sys
for text in json.load(sys.stdin):
    value = json.loads(text)
    for ascii in (True, False):
        sys.stdout.write(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii) + "\n")
"#;
    let printed = python(script, &serde_json::to_string(STRINGS).unwrap());
    let mut lines = printed.split('\n');
    for text in STRINGS {
        let [ascii, utf8, _] = forms(text);
        assert_eq!(ascii, lines.next().unwrap(), "{text}");
        assert_eq!(utf8, lines.next().unwrap(), "{text}");
    }
}

#[test]
fn is_what_jq_prints() {
    for text in STRINGS {
        let Some(printed) = try_run("jq", &["-cS", "."], text.as_bytes()) else {
            return;
        };
        // Later versions of jq leave U+007F raw.
        let [_, raw, escaped] = forms(text);
        let printed = printed.strip_suffix('\n').unwrap();
        assert!(printed == escaped || printed == raw, "{text}\n{printed}\n{escaped}");
    }
}

#[test]
fn numbers_stay_as_they_are_written() {
    for number in NUMBERS {
        let text = format!("{{\"b\": [ {number} ], \"a\":{number} }}");
        let expected = format!("{{\"a\":{number},\"b\":[{number}]}}");
        assert_eq!(forms(&text), [expected.clone(), expected.clone(), expected]);
        assert_eq!(forms(number)[0], *number);
    }
}

#[test]
fn the_left_out_key_is_of_the_top_level_only() {
    let text = r#"{"signature":"x","b":{"signature":1},"\u0073ignatur":2,"a":3}"#;
    let json = parse(text).unwrap();
    let without = |name| canonical(&json, Form::Ascii, Some(name));
    assert_eq!(without("signature"), r#"{"a":3,"b":{"signature":1},"signatur":2}"#);
    assert_eq!(without("signatur"), r#"{"a":3,"b":{"signature":1},"signature":"x"}"#);
    let sorted = parse(r#"{"a":1,"b":[2],"c":3}"#).unwrap();
    for (name, rest) in [("a", r#"{"b":[2],"c":3}"#), ("b", r#"{"a":1,"c":3}"#), ("c", r#"{"a":1,"b":[2]}"#)]
    {
        assert_eq!(canonical(&sorted, Form::Ascii, Some(name)), rest);
    }
    assert_eq!(canonical(&parse(r#"{"a":1}"#).unwrap(), Form::Ascii, Some("a")), "{}");
}

#[test]
fn long_texts_come_in_parts_that_add_up() {
    let inner = "é\u{7f}😀\\n".repeat(50_000);
    let digits = "7".repeat(100_000);
    let text = format!("{{\"b\":\"{inner}\",\"a\":[{digits}]}}");
    let expected =
        format!("{{\"a\":[{digits}],\"b\":\"{}\"}}", "\\u00e9\\u007f\\ud83d\\ude00\\n".repeat(50_000));
    assert!(forms(&text)[0] == expected);
    assert!(forms(&text)[1] == format!("{{\"a\":[{digits}],\"b\":\"{inner}\"}}"));
    let (json, order) = scan(&text, 0).unwrap();
    let mut longest = 0;
    write_canonical(json.raw(), &order, Form::Ascii, None, &mut |part| longest = longest.max(part.len()));
    assert!(longest <= 8 * PART, "{longest}");
}

#[test]
fn deep_objects_in_no_order_are_sorted_at_every_level() {
    let mut text = "0".to_owned();
    let mut expected = "0".to_owned();
    for _ in 0..64 {
        text = format!("{{\"b\":1, \"\\u0061\":{text}}}");
        expected = format!("{{\"a\":{expected},\"b\":1}}");
    }
    assert_eq!(forms(&text)[0], expected);
    // Canonical text is its own canonical text.
    assert_eq!(forms(&expected)[0], expected);
}
