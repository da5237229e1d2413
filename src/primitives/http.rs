//! One HTTP request for an agent: bounded in time, size and redirects.
//!
//! Redirects are followed here and not by the HTTP library, hop by hop in `follow`, so that each
//! target is looked at before it is connected to and credentials stay with whom they were meant for.

mod gate;
mod location;

use super::deadline_after;
use crate::agent::host::CallError;
use crate::base64;
use crate::roster::scope::Scope;
use gate::Gate;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant};
use ureq::http::{header, HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

/// The largest body of a response: 8 MiB.
pub const MAX_BODY_BYTES: u64 = 8 * 1024 * 1024;

/// How many redirects are followed.
pub const MAX_REDIRECTS: usize = 5;

/// The names and values of a request's headers together, in bytes: 64 KiB.
pub const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Headers that the node sets itself: they frame the message or say whom it is for, and a second
/// opinion on that is how requests are smuggled.
const OURS: [&str; 8] =
    ["connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"];

/// Headers that do not go to another origin than the one they were given for.
const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// A response, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// By lower-case name; the values of a repeated header are joined with `, `.
    pub headers: BTreeMap<String, String>,
    /// The body as text; empty when it is not UTF-8.
    pub body: String,
    /// The body as base64 when it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// The address that answered in the end, without fragment.
    pub url: String,
    /// The length of the body, bytes.
    #[serde(skip)]
    pub size: u64,
}

/// Sends one request and follows its redirects; `timeout` is for all of it, names, connections,
/// redirects and body. Proxies named by the node's environment are not used.
///
/// # Errors
/// - `bad_payload`: a method other than GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS; an address that
///   is not http or https, or has a user and password in it; a header that is malformed or is the
///   node's to set
/// - `unreachable`: no such host, no connection, TLS fails, no HTTP spoken, too many redirects or
///   one to something else than http and https
/// - `forbidden`: the method or the host, of the request or of a redirect, is out of the grant's `scope`;
///   the host leads to this machine or its link and is not named there exactly
/// - `timeout`, `too_large` (body above [`MAX_BODY_BYTES`], or endless headers)
pub fn http_request(
    method: &str,
    url: &str,
    body: Option<&[u8]>,
    headers: &BTreeMap<String, String>,
    scope: Option<&Scope>,
    timeout: Duration,
) -> Result<Response, CallError> {
    http_request_within(method, url, body, headers, scope, timeout, MAX_BODY_BYTES)
}

/// The same, with a body of at most `most` bytes, or [`MAX_BODY_BYTES`] if that is less.
///
/// # Errors
/// As [`http_request`].
pub fn http_request_within(
    method: &str,
    url: &str,
    body: Option<&[u8]>,
    headers: &BTreeMap<String, String>,
    scope: Option<&Scope>,
    timeout: Duration,
    most: u64,
) -> Result<Response, CallError> {
    let deadline = deadline_after(timeout);
    let bad = |what: String| CallError::new("bad_payload", what);
    let hop = Hop {
        method: parse_method(method)?,
        target: location::parse(url).map_err(|what| bad(format!("the address {what}")))?,
        headers: parse_headers(headers)?,
        body,
    };
    let gate = Gate::new(scope);
    let (target, response) =
        follow(&agent(&gate), hop, deadline, &|method, target| gate.admit(method, target))
            .map_err(|error| gate.explained(error))?;
    receive(&target, response, most.min(MAX_BODY_BYTES))
}

/// The HTTP library, set up to make one exchange and nothing on its own accord.
fn agent(gate: &Gate) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(concat!("agentcontainer/", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::with_parts(config, DefaultConnector::default(), gate.resolver())
}

/// One request on the way to the final answer.
struct Hop<'a> {
    method: Method,
    target: Uri,
    headers: HeaderMap,
    body: Option<&'a [u8]>,
}

/// Exchange after exchange until an answer is no redirect. `admit` sees method and target of each hop, the
/// first one too, before anything is resolved or connected to, and may refuse it.
fn follow(
    agent: &Agent,
    mut hop: Hop<'_>,
    deadline: Instant,
    admit: &dyn Fn(&Method, &Uri) -> Result<(), CallError>,
) -> Result<(Uri, ureq::http::Response<Body>), CallError> {
    for _ in 0..=MAX_REDIRECTS {
        admit(&hop.method, &hop.target)?;
        let response = exchange(agent, &hop, deadline)?;
        let Some(next) = redirect_target(&hop.target, &response)? else {
            return Ok((hop.target, response));
        };
        hop = hop.redirected(response.status(), next);
    }
    let what = format!("`{}` answered with more than {MAX_REDIRECTS} redirects", hop.target);
    Err(CallError::new("unreachable", what))
}

/// One request and the head of its answer.
fn exchange(
    agent: &Agent,
    hop: &Hop<'_>,
    deadline: Instant,
) -> Result<ureq::http::Response<Body>, CallError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(CallError::new("timeout", format!("no time was left to ask `{}`", hop.target)));
    }
    let mut request = Request::builder().method(hop.method.clone()).uri(hop.target.clone());
    if let Some(headers) = request.headers_mut() {
        headers.clone_from(&hop.headers);
    }
    let usually_has_body = matches!(hop.method, Method::POST | Method::PUT | Method::PATCH);
    let answer = match hop.body.or(usually_has_body.then_some(b"")) {
        Some(body) => request.body(body).map_err(ureq::Error::from).and_then(|request| {
            agent.run(agent.configure_request(request).timeout_global(Some(left)).build())
        }),
        None => request.body(()).map_err(ureq::Error::from).and_then(|request| {
            agent.run(agent.configure_request(request).timeout_global(Some(left)).build())
        }),
    };
    answer.map_err(|error| explain(error, &hop.target))
}

/// Where the answer sends us, if it does.
fn redirect_target(from: &Uri, response: &ureq::http::Response<Body>) -> Result<Option<Uri>, CallError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(place) = response.headers().get(header::LOCATION) else { return Ok(None) };
    let place = String::from_utf8_lossy(place.as_bytes());
    let target = location::join(from, &place).map_err(|what| {
        CallError::new("unreachable", format!("`{from}` redirects to an address that {what}"))
    })?;
    Ok(Some(target))
}

impl<'a> Hop<'a> {
    /// The request that follows a redirect, as browsers make it: 303, and 301 and 302 after a POST,
    /// ask for the target with GET and without body; 307 and 308 repeat the request.
    fn redirected(mut self, status: StatusCode, target: Uri) -> Hop<'a> {
        let becomes_get = match status.as_u16() {
            303 => self.method != Method::HEAD,
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = None;
            let of_the_body = [
                header::CONTENT_TYPE,
                header::CONTENT_ENCODING,
                header::CONTENT_LANGUAGE,
                header::CONTENT_LOCATION,
            ];
            for name in of_the_body {
                self.headers.remove(name);
            }
        }
        if location::origin(&self.target) != location::origin(&target) {
            for name in CREDENTIALS {
                self.headers.remove(name);
            }
        }
        self.target = target;
        self
    }
}

/// Reads the answer's body, within the deadline that the request was made with.
fn receive(target: &Uri, response: ureq::http::Response<Body>, most: u64) -> Result<Response, CallError> {
    let status = response.status().as_u16();
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in response.headers() {
        let value = String::from_utf8_lossy(value.as_bytes());
        headers
            .entry(name.as_str().to_owned())
            .and_modify(|joined| {
                joined.push_str(", ");
                joined.push_str(&value);
            })
            .or_insert_with(|| value.into_owned());
    }
    let body = response.into_body();
    let too_large = || {
        let what = format!("the body of `{target}` has more than the {most} bytes that are allowed");
        CallError::new("too_large", what)
    };
    if body.content_length().is_some_and(|length| length > most) && body_follows(status) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut reader = body.into_reader().take(most + 1);
    reader.read_to_end(&mut bytes).map_err(|error| explain(ureq::Error::from(error), target))?;
    if bytes.len() as u64 > most {
        return Err(too_large());
    }
    let (url, size) = (target.to_string(), bytes.len() as u64);
    Ok(match String::from_utf8(bytes) {
        Ok(body) => Response { status, headers, body, body_base64: None, url, size },
        Err(error) => {
            let body_base64 = Some(base64::encode(error.as_bytes()));
            Response { status, headers, body: String::new(), body_base64, url, size }
        }
    })
}

/// A 204 or 304 has no body, whatever its Content-Length says.
fn body_follows(status: u16) -> bool {
    !matches!(status, 204 | 304)
}

fn parse_method(method: &str) -> Result<Method, CallError> {
    Ok(match method.to_ascii_uppercase().as_str() {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        "OPTIONS" => Method::OPTIONS,
        _ => {
            let what = "the method is none of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
            return Err(CallError::new("bad_payload", what));
        }
    })
}

fn parse_headers(headers: &BTreeMap<String, String>) -> Result<HeaderMap, CallError> {
    let size: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > MAX_HEADER_BYTES {
        let what = format!("the headers have {size} bytes where {MAX_HEADER_BYTES} are allowed");
        return Err(CallError::new("bad_payload", what));
    }
    let mut parsed = HeaderMap::new();
    for (name, value) in headers {
        let bad = |what: &str| Err(CallError::new("bad_payload", format!("the header {name:?} {what}")));
        // The value may be a secret and is not quoted.
        match (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str())) {
            (Err(_), _) => return bad("does not have the form of a header's name"),
            (_, Err(_)) => return bad("has a value with a line end or another control character"),
            (Ok(known), _) if OURS.contains(&known.as_str()) => return bad("is set by the node itself"),
            (Ok(name), Ok(value)) => {
                parsed.append(name, value);
            }
        }
    }
    Ok(parsed)
}

/// The library's errors in the protocol's words.
fn explain(error: ureq::Error, target: &Uri) -> CallError {
    use ureq::Error as E;
    let (code, what) = match error {
        E::Timeout(_) => ("timeout", "did not answer in time".to_owned()),
        E::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            ("timeout", "did not answer in time".to_owned())
        }
        E::BadUri(what) => ("bad_payload", format!("is not an address that can be asked: {what}")),
        E::Http(error) => ("bad_payload", format!("cannot be asked so: {error}")),
        E::LargeResponseHeader(..) => ("too_large", "answered with more headers than are allowed".to_owned()),
        E::HostNotFound => ("unreachable", "has a host name that is not known".to_owned()),
        error => ("unreachable", format!("could not be asked: {error}")),
    };
    CallError::new(code, format!("`{target}` {what}"))
}
