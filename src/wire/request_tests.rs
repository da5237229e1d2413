use super::super::testing::{python, try_run};
use super::*;

const GOOD: &str = r#"{"type":"t","sender":"admin","timestamp":1700000000,"nonce":"n","payload":{"x":1.0},"signature":"SIG","keep_alive":true,"extra":[1]}"#;

fn good() -> String {
    GOOD.replace("SIG", &"aB".repeat(32))
}

fn refused(line: &str) -> String {
    let failure = Request::parse(line).unwrap_err();
    assert_eq!(failure.code, Code::BadMessage);
    failure.message
}

#[test]
fn reads_the_fields_and_leaves_the_payload_as_it_is() {
    for end in ["", "\r", "\n", "\r\n"] {
        let request = Request::parse(good() + end).unwrap();
        assert_eq!((&*request.kind, &*request.sender, &*request.nonce), ("t", "admin", "n"));
        assert_eq!(request.timestamp, 1_700_000_000);
        assert_eq!(request.signature, [0xab; 32]);
        assert!(request.keep_alive);
        assert_eq!(request.payload(), r#"{"x":1.0}"#);
        assert_eq!(request.payload_json().get("x").unwrap().raw(), "1.0");
    }
    assert!(!Request::parse(good().replace(r#","keep_alive":true"#, "")).unwrap().keep_alive);
}

#[test]
fn each_wrong_field_is_named() {
    for (was, is, said) in [
        (r#""type":"t","#, "", "the field `type` is missing; it is a string"),
        (r#""type":"t""#, r#""type":null"#, "the field `type` is null, not a string"),
        (r#""sender":"admin""#, r#""sender":7"#, "the field `sender` is a number, not a string"),
        ("1700000000", "\"1700000000\"", "the field `timestamp` is a string, not an integer"),
        (
            "1700000000",
            "1700000000.0",
            "the field `timestamp` is 1700000000.0, not an integer within 64 bits",
        ),
        ("1700000000", "1e3", "the field `timestamp` is 1e3, not an integer within 64 bits"),
        ("1700000000", "9223372036854775808", "9223372036854775808, not an integer within 64 bits"),
        (r#""nonce":"n""#, r#""nonce":"""#, "the field `nonce` is empty"),
        (r#""nonce":"n","#, "", "the field `nonce` is missing; it is a string"),
        (r#"{"x":1.0}"#, "[1]", "the field `payload` is an array, not an object"),
        (r#"{"x":1.0}"#, "\"{}\"", "the field `payload` is a string, not an object"),
        ("aBaB", "aBa", "the field `signature` is not a string of 64 hexadecimal digits"),
        ("aBaB", "aBag", "the field `signature` is not a string of 64 hexadecimal digits"),
        (r#""keep_alive":true"#, r#""keep_alive":1"#, "the field `keep_alive` is a number, not a boolean"),
        (r#""keep_alive":true"#, r#""keep_alive":null"#, "the field `keep_alive` is null, not a boolean"),
        (r#""extra":"#, r#""\u0074ype":"#, "not JSON: the key \"type\" for the second time"),
        (r#"[1]}"#, r#"[1]"#, "not JSON: the text ends before `,` or `}`"),
    ] {
        let message = refused(&good().replacen(was, is, 1));
        assert!(message.contains(said), "{message}");
    }
    let unsigned = good().replace(&format!(r#""signature":"{}","#, "aB".repeat(32)), "");
    assert!(refused(&unsigned).starts_with("the field `signature` is missing"));
    assert_eq!(refused("[]"), "a message is an object, this is an array");
    assert_eq!(refused(""), "not JSON: no JSON value, only an empty text at byte 0");
    assert_eq!(Request::parse(&b"{\"a\":\"\xff\"}"[..]).unwrap_err().message, "not UTF-8 at byte 6");
}

#[test]
fn the_nonce_is_measured_in_bytes_of_what_it_means() {
    let with = |nonce: &str| good().replace(r#""nonce":"n""#, &format!("\"nonce\":\"{nonce}\""));
    Request::parse(with(&"\\u0041".repeat(128))).unwrap();
    Request::parse(with(&"é".repeat(64))).unwrap();
    assert_eq!(refused(&with(&"é".repeat(65))), "the field `nonce` has 130 bytes; 128 are allowed");
}

#[test]
fn freshness_is_symmetric_and_tells_the_clocks() {
    for fresh in [700, 1000, 1300] {
        freshness(fresh, 1000, 300).unwrap();
    }
    let failure = freshness(699, 1000, 300).unwrap_err();
    assert_eq!(failure.code, Code::StaleTimestamp);
    assert_eq!(
        failure.message,
        "the message's timestamp 699 is 301 s behind this node's clock, 1000; 300 s are allowed"
    );
    let fields: Vec<_> = failure.fields.iter().map(|(name, value)| (*name, value.get())).collect();
    assert_eq!(fields, [("node_time", "1000"), ("clock_skew_s", "300")]);
    assert!(freshness(1301, 1000, 300).unwrap_err().message.contains("ahead of"));
    freshness(i64::MIN, i64::MAX, 300).unwrap_err();
}

#[test]
fn what_we_sign_verifies_and_nothing_else_does() {
    let secret = Secret::new("s3cret").unwrap();
    let payload = "{ \"b\":1E16, \"a\":\"é\u{7f}\" }";
    let sent = signed_request("t", "ädmin", &secret, payload, RequestOptions::default()).unwrap();
    assert_eq!(sent.nonce.len(), 32);
    assert!(sent.line.contains(r#""payload":{"a":"\u00e9\u007f","b":1E16}"#), "{}", sent.line);
    let request = Request::parse(sent.line.clone()).unwrap();
    assert!(request.verify(&secret));
    assert!(!request.keep_alive);
    assert!((request.timestamp - unix_now()).abs() < 60);
    assert!(!request.verify(&Secret::new("other").unwrap()));
    for (was, is) in [("1E16", "1e16"), ("\"t\"", "\"u\""), (r"\u007f", ""), ("{\"nonce", "{\"x\":0,\"nonce")]
    {
        assert!(!Request::parse(sent.line.replacen(was, is, 1)).unwrap().verify(&secret), "{was}");
    }
    let again =
        signed_request("t", "a", &secret, "{}", RequestOptions { keep_alive: true, ..Default::default() });
    let again = again.unwrap();
    assert_ne!(again.nonce, sent.nonce);
    let again = Request::parse(again.line).unwrap();
    assert!(again.keep_alive && again.verify(&secret));
}

#[test]
fn what_cannot_be_signed_is_refused() {
    let secret = Secret::new("s").unwrap();
    let refused = |payload: &str, nonce: &str| {
        let options = RequestOptions { nonce: Some(nonce.into()), ..Default::default() };
        signed_request("t", "a", &secret, payload, options).unwrap_err().message
    };
    assert_eq!(refused("[]", "n"), "the payload is an array, not an object");
    assert!(refused("{\"a\":1,\"a\":2}", "n").starts_with("the payload is not JSON: the key \"a\""));
    assert_eq!(refused("{}", ""), "the field `nonce` is empty");
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(63), "]".repeat(63));
    assert!(refused(&deep, "n").contains("more than 64 deep"));
}

/// The README's recipe for Python, with strings and numbers that tempt a verifier to rewrite them. Four
/// lines: ASCII and UTF-8, each sent as signed and sent in another order, spacing and spelling.
#[test]
fn what_stock_python_signs_verifies() {
    let script = r#"
import hashlib, hmac, json
message = {"type": "invoke_agent", "sender": "admin", "timestamp": 1700000000, "nonce": "é\x7f😀",
    "payload": {"\U0001f600": 1, "\ue000": 2, "z": [0.00001, 1e-6, 1e16, 1.0, -0.0, 2**64 + 1, True, None],
    "a": "\"\\/\b\f\n\r\t\x00\x1f\x7f\x80é\u2028😀", "": {"b": {}, "a": []}}}
for ascii in (True, False):
    text = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii)
    signature = hmac.new("schlüssel".encode(), text.encode(), hashlib.sha256).hexdigest()
    signed = dict(message, signature=signature.upper())
    print(json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii))
    print(json.dumps(signed, ensure_ascii=not ascii))
"#;
    let secret = Secret::new("schlüssel").unwrap();
    let printed = python(script, "");
    let lines: Vec<_> = printed.split_terminator('\n').collect();
    assert_eq!(lines.len(), 4);
    for line in lines {
        assert!(Request::parse(line).unwrap().verify(&secret), "{line}");
        let forged = line.replace("invoke_agent", "remove_agent");
        assert!(!Request::parse(forged).unwrap().verify(&secret));
    }
}

#[test]
fn what_jq_and_openssl_sign_verifies() {
    let script = r#"
        command -v jq >/dev/null && command -v openssl >/dev/null || exit 0
        message=$(jq -cnS --arg odd "$(printf 'é\177😀')" \
            '{type:"t",sender:"admin",timestamp:1700000000,nonce:"n",payload:{"\ue000":1,"😀":2,a:$odd,"/":1.5}}')
        signature=$(printf %s "$message" | openssl dgst -sha256 -hmac 'top secret' | sed 's/^.* //')
        printf %s "$message" | jq -c --arg s "$signature" '.signature = $s'
    "#;
    let line = try_run("bash", &["-c", script], b"").expect("bash is needed");
    if !line.is_empty() {
        assert!(Request::parse(&*line).unwrap().verify(&Secret::new("top secret").unwrap()), "{line}");
    }
}

#[test]
fn only_a_question_without_any_secret_is_a_knock() {
    let line = knock().unwrap();
    let read = |line: String| Request::parse(line).unwrap();
    assert!(read(line.clone()).only_knocks());
    assert!(!read(line.clone()).verify(&Secret::new("s").unwrap()));
    assert!(!read(line.replace("describe_container", "deploy_agent")).only_knocks());
    assert!(!read(line.replace(&"0".repeat(64), &("0".repeat(63) + "1"))).only_knocks());
}
