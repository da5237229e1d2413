//! A request line: reading it, checking it, and making one.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::rand::{getrandom, GetRandomFlags};

use super::code::Code;
use super::failure::Failure;
use super::hex;
use super::json::{canonical, object, parse_within, quote, scan, Form, Json, Order};
use super::secret::Secret;

/// The longest nonce, in bytes of what it means.
pub const MAX_NONCE_BYTES: usize = 128;

/// A well-formed request. Whether it is genuine, fresh and allowed is another matter.
///
/// It owns its line, and the payload stays in it as it was sent.
#[derive(Debug)]
pub struct Request {
    /// The `type`.
    pub kind: String,
    /// Who claims to have sent it.
    pub sender: String,
    /// When it claims to have been sent, in Unix seconds.
    pub timestamp: i64,
    /// 1 to [`MAX_NONCE_BYTES`] bytes.
    pub nonce: String,
    /// The decoded signature.
    pub signature: [u8; 32],
    /// Whether the sender wants to send another line on this connection.
    pub keep_alive: bool,
    line: String,
    order: Order,
    payload: Range<usize>,
}

impl Request {
    /// Reads a line, with or without its line end. Every failure is a `bad_message` that names the
    /// field, or the byte, and what was expected there. A `Vec<u8>` or `String` is not copied.
    pub fn parse(line: impl Into<Vec<u8>>) -> Result<Request, Failure> {
        let line = String::from_utf8(line.into())
            .map_err(|error| bad(format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to())))?;
        let (json, order) = scan(&line, 0).map_err(|malformed| bad(format!("not JSON: {malformed}")))?;
        if !json.is_object() {
            return Err(bad(format!("a message is an object, this is {}", json.kind())));
        }
        let mut fields = Fields::default();
        for member in json.members() {
            match member.key.as_ref() {
                "type" => fields.kind = Some(member.value),
                "sender" => fields.sender = Some(member.value),
                "timestamp" => fields.timestamp = Some(member.value),
                "nonce" => fields.nonce = Some(member.value),
                "payload" => fields.payload = Some(member.value),
                "signature" => fields.signature = Some(member.value),
                "keep_alive" => fields.keep_alive = Some(member.value),
                _ => {}
            }
        }
        let kind = string("type", fields.kind)?;
        let sender = string("sender", fields.sender)?;
        let timestamp = required("timestamp", "an integer", fields.timestamp, Json::as_i64)?;
        let nonce = string("nonce", fields.nonce)?;
        check_nonce(&nonce)?;
        let payload =
            required("payload", "an object", fields.payload, |json| json.is_object().then_some(json))?;
        let digits = "a string of 64 hexadecimal digits";
        let decode = |json: Json<'_>| hex::decode32(&json.as_str()?);
        let signature = required("signature", digits, fields.signature, decode)?;
        let keep_alive = match fields.keep_alive {
            None => false,
            given => required("keep_alive", "a boolean", given, Json::as_bool)?,
        };
        let start = payload.raw().as_ptr() as usize - line.as_ptr() as usize;
        let payload = start..start + payload.raw().len();
        Ok(Request { kind, sender, timestamp, nonce, signature, keep_alive, order, payload, line })
    }

    /// The payload: an object, as it stands in the line.
    pub fn payload(&self) -> &str {
        &self.line[self.payload.clone()]
    }

    /// The payload, to be looked at; it need not be parsed again.
    pub fn payload_json(&self) -> Json<'_> {
        Json::trusted(self.payload())
    }

    /// Lets go of the line, with the payload: an empty object from now on. For when a request is carried out
    /// that has been checked and read, as it may have megabytes and what it asks for may take minutes.
    pub fn release(&mut self) {
        self.line = "{}".into();
        self.payload = 0..self.line.len();
        self.order = Order::default();
    }

    /// Whether it only asks if a node is here, without claiming a secret: see [`knock`]. It tries nothing.
    pub fn only_knocks(&self) -> bool {
        self.kind == KNOCK && self.signature == [0; 32]
    }

    /// Whether the signature is this secret's, over any accepted canonical form of the message.
    pub fn verify(&self, secret: &Secret) -> bool {
        secret.verify_signed(&self.line, &self.order, &self.signature)
    }
}

#[derive(Default)]
struct Fields<'a> {
    kind: Option<Json<'a>>,
    sender: Option<Json<'a>>,
    timestamp: Option<Json<'a>>,
    nonce: Option<Json<'a>>,
    payload: Option<Json<'a>>,
    signature: Option<Json<'a>>,
    keep_alive: Option<Json<'a>>,
}

fn string(name: &str, field: Option<Json<'_>>) -> Result<String, Failure> {
    required(name, "a string", field, |json| json.as_str().map(String::from))
}

fn required<'a, T>(
    name: &str,
    expected: &str,
    field: Option<Json<'a>>,
    read: impl FnOnce(Json<'a>) -> Option<T>,
) -> Result<T, Failure> {
    let json = field.ok_or_else(|| bad(format!("the field `{name}` is missing; it is {expected}")))?;
    read(json).ok_or_else(|| match json.kind() {
        kind if expected.starts_with(kind) => bad(format!("the field `{name}` is not {expected}")),
        "a number" if expected == "an integer" => {
            bad(format!("the field `{name}` is {}, not an integer within 64 bits", json.raw()))
        }
        kind => bad(format!("the field `{name}` is {kind}, not {expected}")),
    })
}

fn check_nonce(nonce: &str) -> Result<(), Failure> {
    match nonce.len() {
        0 => Err(bad("the field `nonce` is empty")),
        1..=MAX_NONCE_BYTES => Ok(()),
        len => Err(bad(format!("the field `nonce` has {len} bytes; {MAX_NONCE_BYTES} are allowed"))),
    }
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::new(Code::BadMessage, message)
}

/// Refuses a timestamp that is more than `skew` seconds before or after `now` (all Unix seconds). The
/// failure tells the node's clock, so that the sender can see which of the two is wrong.
pub fn freshness(timestamp: i64, now: i64, skew: u64) -> Result<(), Failure> {
    let apart = timestamp.abs_diff(now);
    if apart <= skew {
        return Ok(());
    }
    let side = if timestamp < now { "behind" } else { "ahead of" };
    let message = format!(
        "the message's timestamp {timestamp} is {apart} s {side} this node's clock, {now}; {skew} s are allowed"
    );
    let failure = Failure::new(Code::StaleTimestamp, message);
    Err(failure.with_value("node_time", now).with_value("clock_skew_s", skew))
}

/// What may be chosen about a request that is made here.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// Unix seconds; the clock's when absent.
    pub timestamp: Option<i64>,
    /// 1 to [`MAX_NONCE_BYTES`] bytes; random when absent.
    pub nonce: Option<String>,
    /// Asks the node to keep the connection open.
    pub keep_alive: bool,
}

/// A request ready to be sent.
#[derive(Clone, Debug)]
pub struct SignedRequest {
    /// The line, without a newline.
    pub line: String,
    /// Its nonce, which a genuine answer repeats.
    pub nonce: String,
}

/// Makes a signed request in canonical ASCII form. `payload` is the text of a JSON object; its numbers
/// stay as they are. Fails with `bad_message` if it is not one or the nonce's length is wrong.
pub fn signed_request(
    kind: &str,
    sender: &str,
    secret: &Secret,
    payload: &str,
    options: RequestOptions,
) -> Result<SignedRequest, Failure> {
    let payload =
        parse_within(payload, 1).map_err(|wrong| bad(format!("the payload is not JSON: {wrong}")))?;
    if !payload.is_object() {
        return Err(bad(format!("the payload is {}, not an object", payload.kind())));
    }
    let nonce = match options.nonce {
        Some(nonce) => nonce,
        None => random_nonce()
            .map_err(|error| Failure::new(Code::Internal, format!("making a nonce: {error}")))?,
    };
    check_nonce(&nonce)?;
    let mut members = BTreeMap::from([
        ("type", quote(kind)),
        ("sender", quote(sender)),
        ("timestamp", options.timestamp.unwrap_or_else(unix_now).to_string()),
        ("nonce", quote(&nonce)),
        ("payload", canonical(&payload, Form::Ascii, None)),
    ]);
    if options.keep_alive {
        members.insert("keep_alive", "true".into());
    }
    let signature = secret.sign(&object(&members));
    members.insert("signature", quote(&hex::encode(&signature)));
    Ok(SignedRequest { line: object(&members), nonce })
}

/// What a caller without a secret asks: any answer shows that there is a node.
const KNOCK: &str = "describe_container";

/// Makes a request of nobody's: its signature is all zeros, which no secret makes.
///
/// # Errors
/// The system has no random bytes for the nonce.
pub fn knock() -> io::Result<String> {
    let zeros = hex::encode(&[0; 32]);
    let (kind, now) = (quote(KNOCK), unix_now().to_string());
    let members = [
        ("type", kind),
        ("sender", quote("admin")),
        ("timestamp", now),
        ("nonce", quote(&random_nonce()?)),
        ("payload", "{}".into()),
        ("signature", quote(&zeros)),
    ];
    Ok(object(&BTreeMap::from(members)))
}

/// Sixteen random bytes in hexadecimal.
pub fn random_nonce() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    // Sixteen bytes come whole once the kernel's generator is ready, for which this call waits.
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled < bytes.len() {
        return Err(io::Error::other("the kernel gave too few random bytes"));
    }
    Ok(hex::encode(&bytes))
}

/// The clock, in Unix seconds.
pub fn unix_now() -> i64 {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map(|since| since.as_secs());
    seconds(SystemTime::now()).ok().and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(0) + set_by()
}

/// By how much a test has set the clock of this process, in seconds: what the file says that the
/// environment variable `AGENTCONTAINER_CLOCK_FILE` names. A release build knows no such thing.
#[cfg(debug_assertions)]
fn set_by() -> i64 {
    use std::sync::OnceLock;
    static FILE: OnceLock<Option<std::ffi::OsString>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("AGENTCONTAINER_CLOCK_FILE"));
    let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(not(debug_assertions))]
#[inline(always)]
fn set_by() -> i64 {
    0
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
