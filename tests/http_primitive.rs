//! HTTP requests against small servers of the tests' own.

mod support;

use agentcontainer::agent::host::CallError;
use agentcontainer::primitives::http::{self, Response, MAX_BODY_BYTES, MAX_REDIRECTS};
use agentcontainer::roster::scope::Scope;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A scope that names this machine, where every server of these tests is.
fn this_machine() -> Scope {
    let hosts = ["*", "127.0.0.1", "localhost", "::1"];
    Scope::read("http_request", &serde_json::json!({"hosts": hosts})).unwrap()
}

fn http_request(
    method: &str,
    url: &str,
    body: Option<&[u8]>,
    headers: &BTreeMap<String, String>,
    timeout: Duration,
) -> Result<Response, CallError> {
    http::http_request(method, url, body, headers, Some(&this_machine()), timeout)
}

#[test]
fn this_machine_must_be_named_in_whatever_form_it_is_asked() {
    let server = Server::fixed(|_| ok("reached"));
    let port = server.port;
    let public = Scope::read("http_request", &serde_json::json!({"hosts": ["*"]})).unwrap();
    for host in
        ["127.0.0.1", "localhost", "2130706433", "127.1", "0x7f.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]"]
    {
        for scope in [None, Some(&public)] {
            let url = format!("http://{host}:{port}/");
            let error = http::http_request("GET", &url, None, &BTreeMap::new(), scope, LONG).unwrap_err();
            assert_eq!(error.code, "forbidden", "{host}: {error}");
        }
    }
    let named = serde_json::json!({"hosts": [format!("127.0.0.1:{port}")], "methods": ["GET"]});
    let named = Scope::read("http_request", &named).unwrap();
    let ask = |method: &str, host: &str| {
        let url = format!("http://{host}:{port}/");
        http::http_request(method, &url, None, &BTreeMap::new(), Some(&named), LONG)
    };
    assert_eq!(ask("GET", "127.0.0.1").unwrap().body, "reached");
    assert!(ask("POST", "127.0.0.1").unwrap_err().message.contains("the method POST"));
    assert_eq!(ask("GET", "localhost").unwrap_err().code, "forbidden");
}

#[test]
fn a_redirect_is_checked_like_the_first_request() {
    let inner = Server::fixed(|_| ok("secret"));
    let target = inner.url("/").replace("127.0.0.1", "localhost");
    let outer = Server::fixed(move |_| redirect(302, &target));
    let host = outer.url("").trim_start_matches("http://").to_owned();
    let scope = Scope::read("http_request", &serde_json::json!({"hosts": [host]})).unwrap();
    let error =
        http::http_request("GET", &outer.url("/"), None, &BTreeMap::new(), Some(&scope), LONG).unwrap_err();
    assert!(error.code == "forbidden" && error.message.contains("localhost"), "{error}");
}

const LONG: Duration = Duration::from_secs(20);

/// A request as the server saw it.
#[derive(Clone, Debug)]
struct Seen {
    line: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// A server on a port of its own; its thread ends with the test process.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// `answer` writes whatever it likes for each request.
    fn start(answer: impl Fn(&Seen, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (seen.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || {
                    let mut stream = stream;
                    if let Some(request) = read_request(&mut stream) {
                        log.lock().unwrap().push(request.clone());
                        answer(&request, &mut stream);
                    }
                });
            }
        });
        Server { port, seen }
    }

    /// Answers each path with the text that `table` has for it.
    fn fixed(table: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Server::start(move |request, stream| {
            let path = request.line.split(' ').nth(1).unwrap_or("/");
            let _ = stream.write_all(table(path).as_bytes());
        })
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).ok()?;
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(n, v)| (n.to_lowercase(), v.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Seen { line, headers, body })
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn redirect(status: u16, location: &str) -> String {
    format!(
        "HTTP/1.1 {status} Go\r\nLocation: {location}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
    )
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn get(url: &str) -> Result<Response, CallError> {
    http_request("GET", url, None, &BTreeMap::new(), LONG)
}

#[test]
fn a_response_is_status_headers_body_and_address() {
    let server = Server::fixed(|_| {
        "HTTP/1.1 200 OK\r\nX-One: a\r\nx-one: b\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\ngr\u{fc}\u{df}e".to_owned()
    });
    let response = get(&server.url("/x y?q=1#fragment")).unwrap();
    assert_eq!(
        (response.status, response.body.as_str(), response.body_base64.as_deref()),
        (200, "grüße", None)
    );
    assert_eq!(response.headers["x-one"], "a, b");
    assert_eq!(response.url, server.url("/x%20y?q=1"));
    let seen = &server.seen()[0];
    assert_eq!(seen.line, "GET /x%20y?q=1 HTTP/1.1");
    assert!(seen.headers["user-agent"].starts_with("agentcontainer/"));
}

#[test]
fn methods_bodies_and_headers_arrive() {
    let server = Server::fixed(|_| ok("yes"));
    let headers = map(&[("X-Thing", "1"), ("Content-Type", "text/csv"), ("Authorization", "Bearer t")]);
    for method in ["post", "PUT", "PATCH", "DELETE", "GET"] {
        let response =
            http_request(method, &server.url("/"), Some(b"\x00bytes\xff"), &headers, LONG).unwrap();
        assert_eq!(response.body, "yes");
        let seen = server.seen().pop().unwrap();
        assert!(seen.line.starts_with(&method.to_uppercase()));
        assert_eq!(seen.body, b"\x00bytes\xff", "{method}");
        assert_eq!(
            (seen.headers["x-thing"].as_str(), seen.headers["content-type"].as_str()),
            ("1", "text/csv")
        );
    }
    http_request("POST", &server.url("/"), None, &BTreeMap::new(), LONG).unwrap();
    assert_eq!(server.seen().pop().unwrap().headers["content-length"], "0");
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n";
    let server = Server::fixed(move |_| head.to_owned());
    // What a HEAD says of the body's length is information, no body.
    let response = http_request("HEAD", &server.url("/"), None, &BTreeMap::new(), LONG).unwrap();
    assert_eq!((response.headers["content-length"].as_str(), response.body.as_str()), ("99999999", ""));
}

#[test]
fn any_status_is_a_result() {
    let server = Server::fixed(|path| match path {
        "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 99999999\r\n\r\n".to_owned(),
        "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        path => format!("HTTP/1.1 {} X\r\nContent-Length: 4\r\n\r\ntext", &path[1..]),
    });
    for status in [204, 300, 302, 304, 305, 400, 404, 418, 500, 503] {
        assert_eq!(get(&server.url(&format!("/{status}"))).unwrap().status, status);
    }
}

#[test]
fn bytes_that_are_not_text_come_as_base64() {
    let server = Server::start(|_, stream| {
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\xff\x00\xfe\r\n0\r\n\r\n",
        );
    });
    let response = get(&server.url("/")).unwrap();
    assert_eq!((response.body.as_str(), response.body_base64.as_deref()), ("", Some("/wD+")));
}

#[test]
fn malformed_requests_are_refused_before_anything_is_sent() {
    let server = Server::fixed(|_| ok(""));
    let url = server.url("/");
    for bad in [
        "",
        "/x",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "http://",
        "http://u:p@127.0.0.1/",
        "http://127.0.0.1/\r\nX: 1",
    ] {
        assert_eq!(get(bad).unwrap_err().code, "bad_payload", "{bad}");
    }
    for bad in ["", "G ET", "CONNECT", "TRACE", "GET / HTTP/1.1\r\nX: y"] {
        assert_eq!(
            http_request(bad, &url, None, &BTreeMap::new(), LONG).unwrap_err().code,
            "bad_payload",
            "{bad}"
        );
    }
    for (name, value) in [
        ("X-A", "1\r\nX-B: 2"),
        ("X-A", "1\n2"),
        ("X-A", "\0"),
        ("X\r\nA", "1"),
        ("X A", "1"),
        ("", "1"),
        ("X:A", "1"),
        ("Host", "other"),
        ("Content-Length", "5"),
        ("transfer-encoding", "chunked"),
        ("Connection", "upgrade"),
    ] {
        let error = http_request("GET", &url, None, &map(&[(name, value)]), LONG).unwrap_err();
        assert_eq!(error.code, "bad_payload", "{name:?}");
    }
    let huge = "x".repeat(100_000);
    let error = http_request("GET", &url, None, &map(&[("X-Huge", &huge)]), LONG).unwrap_err();
    assert_eq!(error.code, "bad_payload");
    assert!(server.seen().is_empty());
}

#[test]
fn who_cannot_be_reached_is_unreachable() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert_eq!(get(&format!("http://127.0.0.1:{closed}/")).unwrap_err().code, "unreachable");
    assert_eq!(get("http://no-such-host.invalid/").unwrap_err().code, "unreachable");
    let noise = Server::fixed(|_| "SSH-2.0-noise\r\n".to_owned());
    assert_eq!(get(&noise.url("/")).unwrap_err().code, "unreachable");
    let no_tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let https = format!("https://127.0.0.1:{}/", no_tls.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for mut stream in no_tls.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 This is no TLS\r\n\r\n");
        }
    });
    let error = get(&https).unwrap_err();
    assert_eq!(error.code, "unreachable", "{error}");
    let cut = Server::fixed(|_| "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this".to_owned());
    assert_eq!(get(&cut.url("/")).unwrap_err().code, "unreachable");
    let silent = Server::start(|_, _| {});
    assert_eq!(get(&silent.url("/")).unwrap_err().code, "unreachable");
}

#[test]
fn the_deadline_is_for_everything_together() {
    let wait = Duration::from_secs(3600);
    let silent = Server::start(move |_, _| std::thread::sleep(wait));
    let drip = |stream: &mut TcpStream, bytes: &mut dyn FnMut() -> &'static [u8]| {
        while stream.write_all(bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let slow_head = Server::start(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Slow: ");
        drip(stream, &mut || b"x");
    });
    let slow_body = Server::start(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        drip(stream, &mut || b"x");
    });
    let slow_redirects = Server::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(250));
        let _ = stream.write_all(redirect(302, "/again").as_bytes());
    });
    // Its backlog takes the connection; nobody ever reads.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let deaf_url = format!("http://127.0.0.1:{}/", deaf.local_addr().unwrap().port());
    let large = vec![b'x'; 32 * 1024 * 1024];
    for (url, body) in [
        (silent.url("/"), None),
        (slow_head.url("/"), None),
        (slow_body.url("/"), None),
        (slow_redirects.url("/"), None),
        (deaf_url.clone(), None),
        (deaf_url, Some(large.as_slice())),
    ] {
        let start = Instant::now();
        let error =
            http_request("POST", &url, body, &BTreeMap::new(), Duration::from_millis(600)).unwrap_err();
        assert_eq!(error.code, "timeout", "{error}");
        assert!(start.elapsed() < Duration::from_millis(1500), "{url} took {:?}", start.elapsed());
    }
    assert_eq!(
        http_request("GET", &silent.url("/"), None, &BTreeMap::new(), Duration::ZERO).unwrap_err().code,
        "timeout"
    );
    drop(deaf);
}

#[test]
fn bodies_and_headers_are_bounded() {
    let announced =
        Server::fixed(|_| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_BODY_BYTES + 1));
    let endless = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
    });
    let headers = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Long: ");
        while stream.write_all(&[b'x'; 0x1000]).is_ok() {}
    });
    let redirecting = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 302 Go\r\nLocation: /next\r\nContent-Length: 999999999\r\n\r\n");
        while stream.write_all(&[b'x'; 0x10000]).is_ok() {}
    });
    for server in [&announced, &endless, &headers] {
        let error = get(&server.url("/")).unwrap_err();
        assert_eq!(error.code, "too_large", "{error}");
    }
    let start = Instant::now();
    assert_eq!(get(&redirecting.url("/")).unwrap_err().code, "unreachable");
    assert!(start.elapsed() < Duration::from_secs(5), "a redirect's body is not read");
    let exact = Server::start(|_, stream| {
        let _ = stream
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {MAX_BODY_BYTES}\r\n\r\n").as_bytes());
        let _ = stream.write_all(&vec![b'x'; MAX_BODY_BYTES as usize]);
    });
    assert_eq!(get(&exact.url("/")).unwrap().body.len() as u64, MAX_BODY_BYTES);
}

#[test]
fn redirects_are_followed_up_to_the_limit() {
    let server = Server::fixed(|path| match path.trim_start_matches('/').parse::<usize>() {
        Ok(0) => ok("there"),
        Ok(left) => redirect(302, &format!("{}", left - 1)),
        Err(_) => redirect(301, "/loop"),
    });
    let response = get(&server.url(&format!("/{MAX_REDIRECTS}"))).unwrap();
    assert_eq!((response.body.as_str(), response.url), ("there", server.url("/0")));
    let error = get(&server.url(&format!("/{}", MAX_REDIRECTS + 1))).unwrap_err();
    assert_eq!(error.code, "unreachable");
    assert!(error.message.contains("redirects"), "{error}");
    assert_eq!(get(&server.url("/loop")).unwrap_err().code, "unreachable");
}

#[test]
fn redirects_change_the_method_as_browsers_do() {
    let server = Server::fixed(|path| match path[1..].parse() {
        Ok(status) => redirect(status, "/end"),
        Err(_) => ok("end"),
    });
    let headers = map(&[("Content-Type", "text/csv"), ("X-Kept", "1")]);
    for (method, status, then, body) in [
        ("POST", 301, "GET", ""),
        ("POST", 302, "GET", ""),
        ("POST", 303, "GET", ""),
        ("PUT", 303, "GET", ""),
        ("PUT", 302, "PUT", "data"),
        ("POST", 307, "POST", "data"),
        ("POST", 308, "POST", "data"),
        ("DELETE", 308, "DELETE", "data"),
    ] {
        http_request(method, &server.url(&format!("/{status}")), Some(b"data"), &headers, LONG).unwrap();
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.line, format!("{then} /end HTTP/1.1"), "{method} {status}");
        assert_eq!(String::from_utf8(seen.body).unwrap(), body, "{method} {status}");
        assert_eq!(seen.headers.contains_key("content-type"), !body.is_empty(), "{method} {status}");
        assert_eq!(seen.headers["x-kept"], "1");
    }
    http_request("HEAD", &server.url("/303"), None, &headers, LONG).unwrap();
    assert_eq!(server.seen().pop().unwrap().line, "HEAD /end HTTP/1.1");
}

#[test]
fn credentials_stay_with_their_origin() {
    let other = Server::fixed(|_| ok("other"));
    let away = other.url("/away");
    let server = Server::fixed(move |path| match path {
        "/here" => redirect(302, "/there"),
        "/away" => redirect(307, &away),
        _ => ok("same"),
    });
    let headers = map(&[("Authorization", "Bearer secret"), ("Cookie", "session=1"), ("X-Other", "1")]);
    http_request("GET", &server.url("/here"), None, &headers, LONG).unwrap();
    let seen = server.seen().pop().unwrap();
    assert_eq!(
        (seen.line.as_str(), seen.headers["authorization"].as_str()),
        ("GET /there HTTP/1.1", "Bearer secret")
    );
    http_request("GET", &server.url("/away"), None, &headers, LONG).unwrap();
    let seen = other.seen().pop().unwrap();
    assert!(!seen.headers.contains_key("authorization") && !seen.headers.contains_key("cookie"), "{seen:?}");
    assert_eq!(seen.headers["x-other"], "1");
    // The same machine by another name is another origin.
    let port = other.port;
    let renaming = Server::fixed(move |_| redirect(302, &format!("http://localhost:{port}/")));
    http_request("GET", &renaming.url("/"), None, &headers, LONG).unwrap();
    assert!(!other.seen().pop().unwrap().headers.contains_key("authorization"));
}

#[test]
fn redirects_to_anything_but_http_are_not_followed() {
    for place in
        ["file:///etc/passwd", "ftp://127.0.0.1/", "javascript:alert(1)", "http://u:p@127.0.0.1/", "http://"]
    {
        let server = Server::fixed(move |_| redirect(302, place));
        assert_eq!(get(&server.url("/")).unwrap_err().code, "unreachable", "{place}");
    }
}

#[test]
fn a_proxy_in_the_environment_is_not_used() {
    const NAME: &str = "AGENTCONTAINER_TEST_PROXIED";
    if let Ok(url) = std::env::var(NAME) {
        assert_eq!(get(&url).unwrap().body, "direct");
        return;
    }
    let proxy = Server::fixed(|_| ok("proxied"));
    let server = Server::fixed(|_| ok("direct"));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "a_proxy_in_the_environment_is_not_used", "--nocapture"])
        .env(NAME, server.url("/"));
    for variable in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy", "https_proxy"] {
        child.env(variable, proxy.url(""));
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(proxy.seen().is_empty());
}
