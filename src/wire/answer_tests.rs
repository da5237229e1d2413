use super::super::testing::try_run;
use super::*;

fn secret() -> Secret {
    Secret::new("top secret").unwrap()
}

#[test]
fn an_unsigned_answer_is_canonical_and_not_genuine() {
    let line = Answer::ok("n1", "{\"b\": 1.0, \"a\":\"é\"}").unwrap().to_line(None);
    assert_eq!(line, r#"{"node":"n1","result":{"a":"\u00e9","b":1.0},"status":"ok"}"#);
    let answer = ReceivedAnswer::parse(line).unwrap();
    assert!(answer.is_ok());
    assert_eq!(answer.result(), Some(r#"{"a":"\u00e9","b":1.0}"#));
    assert_eq!(answer.node(), Some("n1"));
    assert!(!answer.genuine(&secret(), ""));
}

#[test]
fn an_error_carries_its_members() {
    let failure =
        Failure::new(Code::StaleTimestamp, "too \"old\"").with_value("node_time", 7).with_value("node", 1);
    let answer = Answer::failure("n1", &failure).field("transfer", "{ \"id\":\"t\" }").unwrap();
    let line = answer.to_line(None);
    assert_eq!(
        line,
        r#"{"code":"stale_timestamp","error":"too \"old\"","node":"n1","node_time":7,"status":"error","transfer":{"id":"t"}}"#
    );
    let answer = ReceivedAnswer::parse(line).unwrap();
    assert!(!answer.is_ok());
    assert_eq!(answer.code(), Some("stale_timestamp"));
    assert_eq!(answer.known_code(), Some(Code::StaleTimestamp));
    assert_eq!(answer.error(), Some("too \"old\""));
    assert_eq!(answer.field("transfer"), Some(r#"{"id":"t"}"#));
    assert_eq!(answer.field("absent"), None);
    assert_eq!(answer.result(), None);
}

#[test]
fn what_reads_in_two_ways_is_not_signed() {
    assert!(Answer::ok("n", r#"{"1":1,"1":2}"#).is_err());
    assert!(Answer::ok("n", "NaN").is_err());
    let nested = |n| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(Answer::ok("n", &nested(63)).is_ok());
    assert!(Answer::ok("n", &nested(64)).is_err());
    let answer = Answer::ok("n", "1").unwrap();
    assert!(answer.clone().field("signature", "1").is_err());
    assert!(answer.field("x", "1 2").is_err());
}

#[test]
fn a_signed_answer_is_genuine_for_its_secret_and_nonce_only() {
    let line = Answer::ok("n", "[1.0,\"\u{7f}é\"]").unwrap().to_line(Some(("a \"nonce\" é", &secret())));
    let genuine =
        |line: &str, secret: &Secret, nonce| ReceivedAnswer::parse(line).unwrap().genuine(secret, nonce);
    assert!(genuine(&line, &secret(), "a \"nonce\" é"));
    assert!(!genuine(&line, &secret(), "another"));
    assert!(!genuine(&line, &Secret::new("other").unwrap(), "a \"nonce\" é"));
    assert!(!genuine(&line.replace("1.0", "1.00"), &secret(), "a \"nonce\" é"));
    let unsigned = &line[..line.find(",\"signature\"").unwrap()];
    assert!(!genuine(&format!("{unsigned}}}"), &secret(), "a \"nonce\" é"));
    assert!(!genuine(&format!("{unsigned},\"signature\":7}}"), &secret(), "a \"nonce\" é"));
}

#[test]
fn sed_cuts_the_signature_off_and_openssl_checks_it() {
    // Members on both sides of "signature" in the alphabet, and a result that looks like the end.
    let result = r#"{"z":",\"signature\":\"00\"}"}"#;
    let answer = Answer::ok("n", result).unwrap().field("a", "1").unwrap().field("zz", "2").unwrap();
    let line = answer.to_line(Some(("n-1", &secret())));
    let script = r#"
        command -v openssl >/dev/null || { echo skipped; exit 0; }
        read -r line
        signature=$(printf %s "$line" | sed 's/.*,"signature":"\([0-9a-f]*\)"}$/\1/')
        text=$(printf %s "$line" | sed 's/,"signature":"[0-9a-f]*"}$/}/')
        [ "$signature" = "$(printf %s "$text" | openssl dgst -sha256 -hmac 'top secret' | sed 's/^.* //')" ] && echo good
    "#;
    let said = try_run("bash", &["-c", script], format!("{line}\n").as_bytes()).expect("bash is needed");
    assert!(matches!(&*said, "good\n" | "skipped\n"), "{said}");
}

#[test]
fn what_is_no_answer_is_refused() {
    for (line, said) in [
        ("", "the answer is not JSON: no JSON value"),
        ("[]", "the answer is an array, not an object"),
        ("{}", "status is neither"),
        (r#"{"status":"fine"}"#, "status is neither"),
        (r#"{"status":"ok","result":1,"result":2}"#, "second time"),
    ] {
        let error = ReceivedAnswer::parse(line).unwrap_err().to_string();
        assert!(error.contains(said), "{line}: {error}");
    }
    assert!(ReceivedAnswer::parse(&b"\xff"[..]).unwrap_err().0.contains("not UTF-8 at byte 0"));
    // A stranger's code and missing members are the caller's to judge.
    let answer = ReceivedAnswer::parse(r#"{"status":"error","code":"odd"}"#).unwrap();
    assert_eq!((answer.code(), answer.known_code(), answer.error()), (Some("odd"), None, None));
}
