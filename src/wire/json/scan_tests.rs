use std::time::{Duration, Instant};

use super::super::parse;
fn refused(text: &str) -> String {
    parse(text).map(|json| panic!("{} was accepted", json.raw())).unwrap_err().to_string()
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    for (text, said) in [
        ("", "no JSON value, only an empty text at byte 0"),
        (" \n", "only an empty text at byte 2"),
        ("1 2", "further text after the value at byte 2"),
        ("{}}", "further text after the value at byte 2"),
        ("{", "expected a key in quotes at byte 1"),
        ("{a:1}", "expected a key in quotes at byte 1"),
        ("{\"a\"}", "expected `:` after a key at byte 4"),
        ("{\"a\":}", "expected a value at byte 5"),
        ("{\"a\":1,}", "expected a key in quotes at byte 7"),
        ("{\"a\":1 \"b\":2}", "expected `,` or `}` at byte 7"),
        ("[1,]", "expected a value at byte 3"),
        ("[1", "the text ends before `,` or `]` at byte 2"),
        ("[1}", "expected `,` or `]` at byte 2"),
        ("[", "the text ends where a value was expected at byte 1"),
        ("nul", "expected `null` at byte 0"),
        ("True", "expected a value at byte 0"),
        ("NaN", "expected a value at byte 0"),
        ("'a'", "expected a value at byte 0"),
        ("\u{feff}1", "a byte order mark, which JSON does not begin with, instead of a value at byte 0"),
        (" \u{feff}1", "expected a value at byte 1"),
        ("\u{a0}1", "expected a value at byte 0"),
        ("[1]//", "further text after the value at byte 3"),
        ("\"abc", "a string without its closing quote at byte 0"),
        ("\"a\nb\"", "a raw control character in a string at byte 2"),
        ("\"a\u{0}\"", "a raw control character in a string at byte 2"),
        ("\"\\x41\"", "an escape that JSON does not have at byte 1"),
        ("\"\\", "the text ends within an escape at byte 1"),
        ("\"\\u12\"", "`\\u` without four hexadecimal digits at byte 1"),
        ("\"\\u+123\"", "`\\u` without four hexadecimal digits at byte 1"),
        ("\"\\ud83d\"", "a high surrogate without its low one at byte 1"),
        ("\"\\ud83dxxdc00\"", "a high surrogate without its low one at byte 1"),
        ("\"\\ud83d\\ud83d\\ude00\"", "a high surrogate without its low one at byte 1"),
        ("\"\\uDE00\"", "a low surrogate without its high one at byte 1"),
    ] {
        let message = refused(text);
        assert!(message.ends_with(said), "{text:?}: {message}");
    }
}

#[test]
fn only_numbers_of_the_grammar_are_numbers() {
    for good in ["0", "-0", "-0.0", "10", "1.0", "0.00001", "1e-6", "1E16", "1e+16", "123456789012345678901"]
    {
        assert_eq!(parse(good).unwrap().raw(), good);
    }
    for bad in
        ["01", "-01", "+1", "1.", ".5", "1.e5", "1e", "1e+", "-", "- 1", "0x10", "1_0", "--1", "Infinity"]
    {
        refused(bad);
    }
}

#[test]
fn a_key_twice_is_refused_however_it_is_spelled_and_wherever() {
    assert_eq!(
        refused(r#"{"a":1,"b":2,"\u0061":3}"#),
        "the key \"a\" for the second time in one object at byte 13"
    );
    refused(r#"{"\ud83d\ude00":1,"😀":2}"#);
    refused(r#"{"\/":1,"/":2}"#);
    refused(r#"{"":1,"":2}"#);
    refused(r#"[[{"x":{"y":[{"k":1,"z":0,"k":1}]}}]]"#);
    refused(r#"{"b":1,"a":{"b":2},"b":3}"#);
    parse(r#"{"a":{"a":{"a":1}},"A":[{"a":1},{"a":2}]}"#).unwrap();
}

#[test]
fn sixty_four_levels_are_fine_and_one_more_is_not() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let mixed = |n: usize| format!("{}1{}", "{\"a\":[".repeat(n), "]}".repeat(n));
    parse(&nested(64)).unwrap();
    parse(&mixed(32)).unwrap();
    assert_eq!(refused(&nested(65)), "objects and arrays nested more than 64 deep at byte 64");
    assert!(refused(&format!("[{}]", mixed(32))).contains("more than 64 deep"));
    refused(&"[".repeat(5_000_000));
    // Side by side is not within each other.
    parse(&format!("[{}[]]", "[],".repeat(100_000))).unwrap();
    assert!(super::super::parse_within(&nested(63), 1).is_ok());
    assert!(super::super::parse_within(&nested(64), 1).is_err());
}

#[test]
fn many_keys_in_no_order_take_no_quadratic_time() {
    let started = Instant::now();
    let mut text = String::from("{");
    for n in 0_u32..300_000 {
        text.push_str(&format!("\"{:08x}\":0,", n.wrapping_mul(0x9e37_79b1)));
    }
    let twice = format!("{text}\"00000000\":1}}");
    text.push_str("\"last\":1}");
    assert_eq!(parse(&text).unwrap().members().count(), 300_001);
    assert!(refused(&twice).starts_with("the key \"00000000\" for the second time"));
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

/// Whatever serde_json refuses is refused here; what it accepts and we refuse is of the kinds we mean to
/// refuse. A seeded generator of texts near the grammar's edges.
#[test]
fn never_accepts_what_serde_json_refuses() {
    let bits = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"a\"",
        "\"b\"",
        "\"\\u0061\"",
        "\"\\ud83d\\ude00\"",
        "\"",
        "\\",
        "1",
        "-",
        "0",
        ".5",
        "e9",
        "true",
        "null",
        " ",
        "\n",
        "é",
        "\u{7f}",
        "\t",
        "\\n",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut accepted = 0;
    for _ in 0..300_000 {
        let mut text = String::new();
        loop {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if state.is_multiple_of(9) {
                break;
            }
            text.push_str(bits[(state >> 32) as usize % bits.len()]);
        }
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        match parse(&text) {
            Ok(json) => {
                accepted += 1;
                let theirs = theirs.unwrap_or_else(|error| panic!("{text:?}: {error}"));
                let ours: serde_json::Value = serde_json::from_str(json.raw()).unwrap();
                assert_eq!(ours, theirs, "{text:?}");
            }
            Err(wrong) => assert!(theirs.is_err() || wrong.what.contains("second time"), "{text:?}: {wrong}"),
        }
    }
    assert!(accepted > 10_000, "{accepted}");
}
