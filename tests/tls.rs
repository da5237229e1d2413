//! TLS: the node's own connections, to commands, to shells and to other nodes. Certificates are made by openssl.

#[path = "support/lines.rs"]
mod lines;
#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::config::TlsKeys;
use agentcontainer::node::federation::{Pinned, TreeNode};
use agentcontainer::node::Keys;
use agentcontainer::wire::certificate::{check_time, read_certificates};
use agentcontainer::wire::{
    self, Address, ExchangeError, Fingerprint, Line, LineReader, ReceivedAnswer, Stream, Tls,
};
use lines::{admin, code, kept, Peer};
use rustix::process::Signal;
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::cli::{Home, Ran, Server};
use support::lab::{agent, keys, until, Lab};
use support::TempDir;

/// Ends a test that has no certificates to be made with.
macro_rules! needs_openssl {
    () => {
        if !is_there("openssl") {
            eprintln!("passed over: openssl is not installed");
            return;
        }
    };
}

fn openssl(dir: &Path, line: &str) {
    let output = Command::new("openssl").args(line.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate of its own and its key, as the README makes them: `NAME.crt`, `NAME.key`.
fn own(dir: &Path, name: &str) -> Fingerprint {
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    openssl(dir, &format!("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.crt -days 30 -subj /CN={name} -addext {names}"));
    pin(dir, name)
}

/// One that the authority `ca` has signed, good for `days`.
fn signed_by(dir: &Path, ca: &str, name: &str, days: i32) {
    openssl(dir, &format!("req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name} -addext subjectAltName=IP:127.0.0.1"));
    openssl(dir, &format!("x509 -req -in {name}.csr -CA {ca}.crt -CAkey {ca}.key -CAcreateserial -copy_extensions copy -days {days} -out {name}.crt"));
}

fn pin(dir: &Path, name: &str) -> Fingerprint {
    Fingerprint::of(&read_certificates(&dir.join(format!("{name}.crt"))).unwrap()[0])
}

fn files(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")))
}

fn tls_keys(dir: &Path, name: &str) -> TlsKeys {
    let (certificate, key) = files(dir, name);
    TlsKeys { certificate, key, client_ca: None, client_certificates: None, peer_ca: None }
}

/// Keys of a node that speaks TLS with that certificate.
fn secured(dir: &Path, name: &str) -> Keys {
    Keys { tls: Some(tls_keys(dir, name)), ..keys(name) }
}

/// A node with a certificate of its own.
fn secure_lab(certs: &TempDir, name: &str) -> Lab {
    own(certs.path(), name);
    Lab::with(secured(certs.path(), name))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Sends a signed line of the admin's.
fn ask(address: &Address) -> Result<ReceivedAnswer, ExchangeError> {
    wire::exchange(address, &admin("network_tree", json!({})).line, soon(), 1 << 20)
}

fn answer(reader: &mut LineReader) -> ReceivedAnswer {
    match reader.next_line(soon()).unwrap() {
        Line::Text(text) => ReceivedAnswer::parse(text).unwrap(),
        Line::End => panic!("no answer"),
    }
}

fn write(stream: &dyn Stream, text: &str) {
    stream.write_before(text.as_bytes(), soon()).unwrap();
}

fn is_there(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status().unwrap().success()
}

#[test]
fn agents_are_deployed_and_called_and_the_node_tells_its_fingerprint() {
    needs_openssl!();
    let certs = TempDir::new("tls-basic");
    let lab = secure_lab(&certs, "basic");
    lab.deploy(&agent("echo", "def on_message(self, ctx, message):\n    return [message]"));
    assert_eq!(lab.invoke("echo", json!({"a": "ä"})), json!([{"a": "ä"}]));
    let told = lab.ok("describe_container", json!({}));
    let fingerprint = pin(certs.path(), "basic").to_string();
    assert_eq!(told["tls"], json!({"fingerprint": fingerprint, "client_certificates": "none"}));
    assert!(lab.logged().contains(&format!("tls={fingerprint}")), "{}", lab.logged());
    // As openssl prints it, with colons.
    let crt = certs.path().join("basic.crt");
    let words = ["x509", "-noout", "-fingerprint", "-sha256", "-in", crt.to_str().unwrap()];
    let printed = lines::run("openssl", &words, &[], "").unwrap();
    assert_eq!(
        Fingerprint::parse(printed.trim().split('=').nth(1).unwrap()).unwrap().to_string(),
        fingerprint
    );
    // RSA and Ed25519 keys do as well, and keys in the files of their own tools.
    for (name, new) in [("rsa", "-newkey rsa:2048"), ("ed", "-newkey ed25519")] {
        openssl(
            certs.path(),
            &format!("req -x509 {new} -nodes -keyout {name}.key -out {name}.crt -days 3 -subj /CN={name}"),
        );
        assert!(ask(&Lab::with(secured(certs.path(), name)).address()).unwrap().is_ok(), "{name}");
    }
    openssl(certs.path(), "ecparam -name prime256v1 -genkey -noout -out sec1.key");
    openssl(certs.path(), "req -x509 -new -key sec1.key -out sec1.crt -days 3 -subj /CN=sec1");
    assert!(ask(&Lab::with(secured(certs.path(), "sec1")).address()).unwrap().is_ok());
}

#[test]
fn shells_speak_it_by_openssl_and_ncat() {
    needs_openssl!();
    let certs = TempDir::new("tls-shell");
    let lab = secure_lab(&certs, "shell");
    let port = lab.running.node.port();
    let mut clients = vec![format!("openssl s_client -quiet -connect 127.0.0.1:{port}")];
    match is_there("ncat") {
        true => clients.push(format!("ncat --ssl 127.0.0.1 {port}")),
        false => eprintln!("passed over: ncat is not installed"),
    }
    for client in clients {
        let request = admin("list_agents", json!({}));
        let words: Vec<&str> = client.split(' ').collect();
        let printed = lines::run(words[0], &words[1..], &[], &format!("{}\n", request.line)).unwrap();
        let answer = ReceivedAnswer::parse(printed.trim_end())
            .unwrap_or_else(|why| panic!("{client}: {why}: {printed}"));
        assert!(lines::is_signed(&answer, support::lab::ADMIN, &request), "{client}: {printed}");
    }
    // The certificate is checked where the shell asks for that.
    let crt = certs.path().join("shell.crt");
    let verified =
        format!("s_client -quiet -verify_return_error -CAfile {} -connect 127.0.0.1:{port}", crt.display());
    let line = format!("{}\n", admin("list_agents", json!({})).line);
    assert!(lines::run("openssl", &verified.split(' ').collect::<Vec<_>>(), &[], &line)
        .unwrap()
        .contains("\"ok\""));
    // Older protocols are refused.
    let old = format!("s_client -quiet -tls1_2 -connect 127.0.0.1:{port}");
    assert!(lines::run("openssl", &old.split(' ').collect::<Vec<_>>(), &[], &line)
        .unwrap_err()
        .contains("protocol version"));
}

#[test]
fn plain_text_to_tls_and_tls_to_plain_text_are_told_so_at_once() {
    needs_openssl!();
    let certs = TempDir::new("tls-mixed");
    let (secure, plain) = (secure_lab(&certs, "mixed"), Lab::start("plain"));
    let began = Instant::now();
    let mut peer = Peer::to(&secure);
    let request = admin("list_agents", json!({}));
    peer.send(format!("{}\n", request.line));
    let answer = peer.answer();
    assert_eq!(code(&answer), "bad_message");
    assert!(answer.error().unwrap().contains("TLS alone") && answer.field("signature").is_none());
    assert_eq!(answer.field("tls"), Some("\"required\""));
    assert_eq!(peer.line(), None);
    // That line was not acted on: over TLS it still counts, once.
    assert!(wire::exchange(&secure.address(), &request.line, soon(), 1 << 20).unwrap().is_ok());
    // Nor is half a line, or what is no text, waited for.
    let mut peer = Peer::to(&secure);
    peer.send("{");
    assert_eq!(code(&peer.answer()), "bad_message");
    let bare = plain.address();
    let wrong = ask(&bare.clone().with_tls(Some(Tls::pinned(vec![pin(certs.path(), "mixed")])))).unwrap_err();
    assert!(
        matches!(&wrong, ExchangeError::NotSent(why) if why.contains("probably speaks plain TCP")),
        "{wrong:?}"
    );
    // A handshake's first bytes, without a line's end in them.
    let mut peer = Peer::to(&plain);
    peer.send([0x16, 3, 1, 2, 0, 1, 0, 1]);
    let answer = peer.answer();
    assert!(
        code(&answer) == "bad_message" && answer.error().unwrap().contains("TLS handshake"),
        "{}",
        answer.line()
    );
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // Whoever only looks whether the port is open is no event.
    drop(Peer::to(&secure));
    drop(wire::open(&secure.address(), soon()).unwrap());
    assert!(ask(&secure.address()).unwrap().is_ok());
    assert!(!secure.logged().contains("handshake_failed"), "{}", secure.logged());
    assert!(
        secure.journal().contains("\"code\":\"bad_message\"")
            && plain.journal().contains("\"code\":\"bad_message\"")
    );
}

#[test]
fn lines_may_be_pipelined_kept_alive_and_half_closed_and_end_with_a_close_notify() {
    needs_openssl!();
    let certs = TempDir::new("tls-lines");
    let lab = Lab::with(Keys {
        keep_alive_timeout_s: 0.3,
        ..{
            own(certs.path(), "lines");
            secured(certs.path(), "lines")
        }
    });
    let stream = wire::open(&lab.address(), soon()).unwrap();
    let three: String = (0..3).map(|_| format!("{}\n", kept("network_tree", json!({})).line)).collect();
    // Three in one record, and one byte by byte.
    write(&*stream, &three);
    let mut reader = LineReader::new(&*stream, 1 << 20);
    for _ in 0..3 {
        assert!(answer(&mut reader).is_ok());
    }
    for byte in format!("{}\n", kept("network_tree", json!({})).line).chars() {
        write(&*stream, &byte.to_string());
    }
    assert!(answer(&mut reader).is_ok());
    // Silence beyond its time: the orderly end.
    assert_eq!(reader.next_line(soon()).unwrap(), Line::End);
    // Half-closed behind a line without its newline: that is a line, and is answered.
    let stream = wire::open(&lab.address(), soon()).unwrap();
    write(&*stream, &admin("network_tree", json!({})).line);
    stream.finish(soon()).unwrap();
    let mut reader = LineReader::new(&*stream, 1 << 20);
    assert!(answer(&mut reader).is_ok());
    assert_eq!(reader.next_line(soon()).unwrap(), Line::End);
    // Cut off without a close_notify: what came may not be all, and is not acted on.
    let before = lab.ok("describe_container", json!({}))["counters"]["requests"].as_u64().unwrap();
    let stream = wire::open(&lab.address(), soon()).unwrap();
    write(&*stream, &admin("network_tree", json!({})).line);
    stream.tcp().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = [0; 64];
    let end = stream.read_before(&mut rest, soon());
    assert!(!matches!(end, Ok(count) if count > 0), "no answer");
    assert_eq!(lab.ok("describe_container", json!({}))["counters"]["requests"].as_u64().unwrap(), before + 1);
    // A long line and a long answer, in many records.
    lab.deploy(&agent("long", "def on_message(self, ctx, message):\n    return message"));
    let long = "x".repeat(5 << 20);
    assert_eq!(lab.invoke("long", json!(long)), json!(long));
}

#[test]
fn a_handshake_that_drips_is_cut_off_in_the_time_of_a_line() {
    needs_openssl!();
    let certs = TempDir::new("tls-drip");
    own(certs.path(), "drip");
    let lab = Lab::with(Keys { request_timeout_s: 1.0, ..secured(certs.path(), "drip") });
    let began = Instant::now();
    let mut silent = TcpStream::connect(("127.0.0.1", lab.running.node.port())).unwrap();
    let mut peer = TcpStream::connect(("127.0.0.1", lab.running.node.port())).unwrap();
    // A hello of 512 bytes that never gets there.
    let mut sent = 0;
    for byte in [0x16_u8, 3, 1, 2, 0, 1, 0, 1, 0xfc].into_iter().chain(std::iter::repeat(0)) {
        if peer.write_all(&[byte]).is_err() || sent > 400 {
            break;
        }
        sent += 1;
        std::thread::sleep(Duration::from_millis(20));
        peer.set_nonblocking(true).unwrap();
        let ended = matches!(peer.read(&mut [0; 64]), Ok(0));
        peer.set_nonblocking(false).unwrap();
        if ended {
            break;
        }
    }
    assert!(sent > 20 && began.elapsed() >= Duration::from_millis(900), "{sent} in {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(silent.read(&mut [0; 64]).unwrap(), 0, "silence is cut off as well");
    // The time of the handshake is the line's own: what is left of it is not a second one.
    let stream = wire::open(&lab.address(), soon()).unwrap();
    let began = Instant::now();
    write(&*stream, "{");
    let late = answer(&mut LineReader::new(&*stream, 1 << 20));
    assert_eq!(code(&late), "timeout");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    until(5, "both are noted", || lab.logged().matches("handshake_failed").count() == 2);
    assert!(lab.logged().contains("not done in time"), "{}", lab.logged());
    assert!(lab.journal().contains("\"code\":\"handshake\""));
}

#[test]
fn bad_handshakes_count_against_their_address_and_lock_nobody_out() {
    needs_openssl!();
    let certs = TempDir::new("tls-budget");
    let lab = secure_lab(&certs, "budget");
    let began = Instant::now();
    for _ in 0..130 {
        let mut peer = TcpStream::connect(("127.0.0.1", lab.running.node.port())).unwrap();
        // A record that holds nothing of a handshake.
        peer.write_all(&[0x16, 3, 1, 0, 1, 0xff]).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest[0] == 0x15, "an alert, or nothing: {rest:?}");
    }
    assert!(ask(&lab.address()).unwrap().is_ok(), "the admin is served");
    let told = lab.logged().matches("handshake_failed").count();
    let recovered = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    assert!((99..=100 + recovered).contains(&told), "{told} of 130");
    assert!(lab.logged().contains("address_limited"), "{}", lab.logged());
}

#[test]
fn beyond_max_connections_the_busy_answer_comes_over_tls_and_threads_are_used_again() {
    needs_openssl!();
    let certs = TempDir::new("tls-full");
    own(certs.path(), "full");
    let lab = Lab::with(Keys { max_connections: 4, ..secured(certs.path(), "full") });
    for _ in 0..300 {
        assert!(ask(&lab.address()).unwrap().is_ok());
    }
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let comm =
        |entry: &std::fs::DirEntry| std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
    let threads = threads.filter(|entry| comm(entry).trim() == "connection").count();
    // Those of the nodes of other tests in this process are among them; one a connection would be more.
    assert!(threads < 200, "{threads}");
    let held: Vec<_> = (0..4)
        .map(|_| {
            let stream = wire::open(&lab.address(), soon()).unwrap();
            write(&*stream, &format!("{}\n", kept("network_tree", json!({})).line));
            assert!(answer(&mut LineReader::new(&*stream, 1 << 20)).is_ok());
            stream
        })
        .collect();
    let busy = (0..20).filter(|_| ask(&lab.address()).is_ok_and(|told| told.code() == Some("busy"))).count();
    // On a loaded machine a handshake may take longer than a refusal waits for.
    assert!(busy >= 15, "{busy} of 20");
    assert_eq!(
        code(&{
            let mut peer = Peer::to(&lab);
            peer.send("{}\n");
            peer.answer()
        }),
        "busy"
    );
    drop(held);
    until(10, "a place is given", || ask(&lab.address()).is_ok_and(|told| told.is_ok()));
}

#[test]
fn lines_on_their_way_are_bounded_over_tls_and_what_they_held_is_given_back() {
    needs_openssl!();
    const MB: usize = 1 << 20;
    let certs = TempDir::new("tls-flight");
    own(certs.path(), "flight");
    let keys = Keys {
        max_message_bytes: 4 * MB,
        max_bytes_in_flight: Some(8 * MB),
        ..secured(certs.path(), "flight")
    };
    let lab = Lab::with(keys);
    let held =
        || lab.ok("describe_container", json!({}))["counters"]["bytes_in_flight"].as_u64().unwrap() as usize;
    let stalled = || {
        let stream = wire::open(&lab.address(), soon()).unwrap();
        stream.write_before(&vec![b'x'; 3 * MB], soon()).unwrap();
        stream
    };
    let both = [stalled(), stalled()];
    until(10, "both have what they may", || held() >= 6 * MB);
    let third = stalled();
    let told = answer(&mut LineReader::new(&*third, MB));
    assert!(
        code(&told) == "busy" && told.error().unwrap().contains("max_bytes_in_flight"),
        "{}",
        told.line()
    );
    assert!(held() <= 8 * MB + 1);
    drop(both);
    until(10, "it is given back", || held() == 0);
}

#[test]
fn a_node_that_stops_gives_running_hooks_their_answers_over_tls() {
    needs_openssl!();
    let certs = TempDir::new("tls-stop");
    let lab = secure_lab(&certs, "stop");
    lab.deploy(&agent(
        "slow",
        "def on_message(self, ctx, message):\n    ctx.log('began')\n    __import__('time').sleep(0.7)\n    return 'done'",
    ));
    let idle = wire::open(&lab.address(), soon()).unwrap();
    let stream = wire::open(&lab.address(), soon()).unwrap();
    write(&*stream, &format!("{}\n", kept("invoke_agent", json!({"agent_id": "slow"})).line));
    until(10, "the hook runs", || lab.logged().contains("began"));
    lab.running.stop(Duration::from_secs(10));
    let mut reader = LineReader::new(&*stream, 1 << 20);
    let told = answer(&mut reader);
    assert!(told.is_ok() && told.result().unwrap().contains("done"), "{}", told.line());
    assert_eq!(reader.next_line(soon()).unwrap(), Line::End, "and a close_notify");
    drop(idle);
    assert!(wire::open(&lab.address(), soon()).is_err());
}

#[test]
fn a_pinned_child_is_moved_to_and_come_home_from_and_another_certificate_is_refused() {
    needs_openssl!();
    let certs = TempDir::new("tls-tree");
    let (pin_a, pin_b) = (own(certs.path(), "a"), own(certs.path(), "b"));
    own(certs.path(), "root");
    let a = Lab::with(secured(certs.path(), "a"));
    // Shows the certificate of b where another one is pinned.
    let impostor = Lab::with(Keys { container_name: "c".into(), ..secured(certs.path(), "b") });
    let plain = Lab::start("p");
    let port = free_port();
    let child =
        |lab: &Lab, pins: Vec<Fingerprint>| TreeNode { tls: Some(Pinned(pins)), ..lab.tree_node(vec![]) };
    let children =
        vec![child(&a, vec![pin_b, pin_a]), child(&impostor, vec![pin_a]), child(&plain, vec![pin_a])];
    let tree = TreeNode { children, ..TreeNode::leaf("root", "127.0.0.1", port) };
    let root = Lab::with(Keys { federation: Some(tree), listen_port: port, ..secured(certs.path(), "root") });
    let body = "def __init__(self):\n    self.seen = []\ndef on_activate(self, ctx, p):\n    self.seen.append(ctx.container_name)\n    if p.get('go'):\n        return ctx.move(p['go'], p.get('then', {}))\n    return self.seen\ndef on_message(self, ctx, p):\n    if p.get('how') == 'hops':\n        return ctx.trace\n    return self.seen if not p.get('go') else getattr(ctx, p.get('how', 'move'))(p['go'], p.get('then', {}))";
    root.deploy(&agent("tour", body));
    // There, and home again by the network view that it carries: the root's own certificate is in it.
    let told = root.invoke("tour", json!({"go": "a", "then": {"go": "root"}}));
    assert_eq!(told["status"], "ok", "{told}");
    assert_eq!(root.invoke("tour", json!({})), json!(["root", "a", "root"]));
    let hops = root.invoke("tour", json!({"how": "hops"}));
    let root_pin = pin(certs.path(), "root").to_string();
    assert_eq!(hops[0]["tls"]["fingerprint"], json!(root_pin), "{hops}");
    assert_eq!(hops[1]["tls"]["fingerprint"], json!(pin_a.to_string()));
    // Somebody else's certificate, and somebody who has none.
    for (name, why) in [("c", "another one is pinned"), ("p", "plain TCP")] {
        for how in ["move", "clone"] {
            let (code, text) =
                root.err("invoke_agent", json!({"agent_id": "tour", "message": {"go": name, "how": how}}));
            assert!(
                code == "agent_error" && text.contains(why) && text.contains("nothing was sent"),
                "{name}: {text}"
            );
        }
    }
    // By its address, under no name: what the tree pins there counts.
    for destination in [impostor.running.node.port(), plain.running.node.port()] {
        let order =
            json!({"agent_id": "tour", "destination": format!("127.0.0.1:{destination}"), "mode": "move"});
        assert_eq!(root.err("dispatch_agent", order).0, "unreachable");
    }
    assert!(root.has("tour") && !impostor.has("tour") && !plain.has("tour"));
    assert_eq!(root.ok("describe_container", json!({}))["counters"]["open_transfers"], 0);
    assert_eq!(root.ok("network_tree", json!({}))["tls"]["fingerprint"], json!(root_pin));
    // In words, without a tree.
    let lone = Lab::start("lone");
    lone.deploy(&agent("walker", "def on_message(self, ctx, m):\n    return 'still here'"));
    let there = |pin: Fingerprint| format!("tls://127.0.0.1:{}#{pin}", a.running.node.port());
    let order =
        |destination: String| json!({"agent_id": "walker", "destination": destination, "mode": "move"});
    assert_eq!(lone.err("dispatch_agent", order(there(pin_b))).0, "unreachable");
    // In plain text: it is told so, and does not hang between the two.
    let (code, text) = lone.err("dispatch_agent", order(format!("127.0.0.1:{}", a.running.node.port())));
    assert!(code == "unreachable" && text.contains("speaks TLS alone"), "{code}: {text}");
    assert_eq!(lone.invoke("walker", json!({})), json!("still here"));
    assert_eq!(lone.ok("describe_container", json!({}))["counters"]["open_transfers"], 0);
    assert!(!a.has("walker"));
}

#[test]
fn identities_are_handed_down_to_a_child_over_tls() {
    needs_openssl!();
    let certs = TempDir::new("tls-identities");
    let child = secure_lab(&certs, "below");
    let port = free_port();
    let node = TreeNode { tls: Some(Pinned(vec![pin(certs.path(), "below")])), ..child.tree_node(vec![]) };
    let tree = TreeNode { children: vec![node], ..TreeNode::leaf("above", "127.0.0.1", port) };
    let root = Lab::with(Keys { federation: Some(tree), listen_port: port, ..keys("above") });
    let told = root.ok("push_identities", json!({}));
    // It has no root to believe, and says so: it was reached.
    let said = told["children"].to_string();
    assert!(said.contains("below") && !said.contains("TLS"), "{told}");
    assert!(child.journal().contains("push_identities"), "{}", child.journal());
}

#[test]
fn client_certificates_are_required_or_optional_and_looked_at() {
    needs_openssl!();
    let certs = TempDir::new("tls-clients");
    let dir = certs.path();
    for name in ["ca", "other", "server", "friend"] {
        own(dir, name);
    }
    signed_by(dir, "ca", "client", 30);
    signed_by(dir, "ca", "late", -1);
    signed_by(dir, "other", "stranger", 30);
    // An authority, and one client as it is.
    let both = format!(
        "{}{}",
        std::fs::read_to_string(dir.join("ca.crt")).unwrap(),
        std::fs::read_to_string(dir.join("friend.crt")).unwrap()
    );
    certs.write("clients.pem", both);
    let node = |name: &str, wanted: Option<&str>| {
        let mut tls = tls_keys(dir, "server");
        tls.client_ca = Some(dir.join("clients.pem"));
        tls.client_certificates = wanted.map(|wanted| serde_json::from_value(json!(wanted)).unwrap());
        Lab::with(Keys { tls: Some(tls), container_name: name.into(), ..keys(name) })
    };
    let as_client = |lab: &Lab, name: Option<&str>| {
        let identity = name.map(|name| files(dir, name));
        let address = lab.address().with_tls(Some(Tls { identity, ..Tls::pinned(vec![pin(dir, "server")]) }));
        ask(&address)
    };
    let (required, optional) = (node("required", None), node("optional", Some("optional")));
    for name in ["client", "friend"] {
        assert!(
            as_client(&required, Some(name)).unwrap().is_ok()
                && as_client(&optional, Some(name)).unwrap().is_ok()
        );
    }
    assert!(as_client(&optional, None).unwrap().is_ok());
    let wrong =
        [(None, "wants a client certificate"), (Some("stranger"), "does not"), (Some("late"), "expired")];
    for (name, why) in wrong {
        let error = as_client(&required, name).unwrap_err();
        // The node says so before it reads a line: nothing was done.
        assert!(matches!(&error, ExchangeError::NotSent(text) if text.contains(why)), "{name:?}: {error:?}");
        if name.is_some() {
            assert!(as_client(&optional, name).is_err(), "{name:?}: one that is shown has to be good");
        }
    }
    let told = |lab: &Lab| {
        as_client(lab, Some("client")).map(|_| lab.running.node.describe("h")["tls"].clone()).unwrap()
    };
    assert_eq!(
        (told(&required)["client_certificates"].clone(), told(&optional)["client_certificates"].clone()),
        (json!("required"), json!("optional"))
    );
    assert!(required.logged().contains("handshake_failed"), "{}", required.logged());
    // A node shows its own certificate to one that asks.
    let port = free_port();
    let child = TreeNode { tls: Some(Pinned(vec![pin(dir, "server")])), ..required.tree_node(vec![]) };
    let tree =
        |name: &str| TreeNode { children: vec![child.clone()], ..TreeNode::leaf(name, "127.0.0.1", port) };
    let traveller = agent("guest", "def on_message(self, ctx, m):\n    return ctx.move('required', {})");
    for (name, lets_in) in [("friend", true), ("other", false)] {
        let source = Lab::with(Keys { federation: Some(tree(name)), ..secured(dir, name) });
        source.deploy(&traveller);
        match lets_in {
            true => assert_eq!(source.invoke("guest", json!({}))["status"], "ok"),
            false => assert!(
                source.err("invoke_agent", json!({"agent_id": "guest"})).1.contains("did not")
                    || source.has("guest")
            ),
        }
        assert_eq!(source.has("guest"), !lets_in);
    }
    // And a shell with a certificate.
    let line = format!("{}\n", admin("list_agents", json!({})).line);
    let client = format!(
        "s_client -quiet -cert {0}/client.crt -key {0}/client.key -connect 127.0.0.1:{1}",
        dir.display(),
        required.running.node.port()
    );
    assert!(lines::run("openssl", &client.split(' ').collect::<Vec<_>>(), &[], &line)
        .unwrap()
        .contains("\"ok\""));
}

#[test]
fn an_authority_vouches_for_a_node_by_the_name_it_is_reached_under() {
    needs_openssl!();
    let certs = TempDir::new("tls-ca");
    let dir = certs.path();
    for name in ["ca", "other"] {
        own(dir, name);
    }
    signed_by(dir, "ca", "node", 30);
    let node = Lab::with(secured(dir, "node"));
    let by = |host: &str, ca: &str| {
        let tls = Tls { authorities: Some(dir.join(format!("{ca}.crt"))), ..Tls::default() };
        ask(&Address::new(host, node.running.node.port()).unwrap().with_tls(Some(tls)))
    };
    assert!(by("127.0.0.1", "ca").unwrap().is_ok());
    assert!(by("127.0.0.1", "node").unwrap().is_ok(), "its own certificate is as good");
    assert!(by("127.0.0.1", "other").unwrap_err().to_string().contains("not good by"));
    assert!(by("localhost", "ca").unwrap_err().to_string().contains("not good by"), "it is for no such name");
    let nothing = node.address().with_tls(Some(Tls::default()));
    assert!(ask(&nothing).unwrap_err().to_string().contains("neither"), "nobody is believed for nothing");
    // A node whose tree pins nothing asks its peer_ca.
    let child = TreeNode { tls: Some(Pinned::default()), ..node.tree_node(vec![]) };
    for (ca, known) in [("ca", true), ("other", false)] {
        let tls = TlsKeys { peer_ca: Some(dir.join(format!("{ca}.crt"))), ..tls_keys(dir, "ca") };
        let tree =
            TreeNode { children: vec![child.clone()], ..TreeNode::leaf("up", "127.0.0.1", free_port()) };
        let up = Lab::with(Keys { federation: Some(tree), tls: Some(tls), ..keys("up") });
        up.deploy(&agent("guest", "def on_message(self, ctx, m):\n    return ctx.clone('node', {})"));
        let asked = up.ask("invoke_agent", json!({"agent_id": "guest"}));
        assert_eq!(asked.is_ok(), known, "{}", asked.line());
    }
}

#[test]
fn a_node_does_not_start_with_files_that_do_not_fit_and_says_which() {
    needs_openssl!();
    let home = Home::new("tls-start");
    let dir = home.dir.path();
    own(dir, "good");
    own(dir, "other");
    openssl(dir, "req -new -key good.key -subj /CN=x -out x.csr");
    openssl(dir, "x509 -req -in x.csr -signkey good.key -days -1 -out old.crt");
    openssl(dir, "pkey -in good.key -aes256 -passout pass:x -out locked.key");
    home.file("empty.pem", "");
    home.file("broken.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    for (certificate, key, more, parts) in [
        ("none.crt", "good.key", json!({}), vec!["reading", "none.crt", "No such file"]),
        ("good.crt", "none.key", json!({}), vec!["reading", "none.key", "No such file"]),
        ("good.crt", "other.key", json!({}), vec!["other.key", "is not that of the certificate", "good.crt"]),
        ("old.crt", "good.key", json!({}), vec!["old.crt", "has expired", "it was good until 20"]),
        ("good.crt", "locked.key", json!({}), vec!["locked.key", "is encrypted"]),
        ("empty.pem", "good.key", json!({}), vec!["empty.pem", "no certificate in it"]),
        ("good.crt", "empty.pem", json!({}), vec!["empty.pem", "no private key in it"]),
        ("good.key", "good.key", json!({}), vec!["good.key", "no certificate in it"]),
        ("broken.crt", "good.key", json!({}), vec!["broken.crt", "no X.509 certificate"]),
        (
            "good.crt",
            "good.key",
            json!({"client_ca": "empty.pem"}),
            vec!["empty.pem", "no certificate in it"],
        ),
        ("good.crt", "good.key", json!({"peer_ca": "none.pem"}), vec!["none.pem", "No such file"]),
        (".", "good.key", json!({}), vec!["reading", "directory"]),
    ] {
        let mut tls = json!({"certificate": certificate, "key": key});
        tls.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config =
            json!({"container_name": "n", "listen_port": 0, "state_dir": dir.join("st"), "tls": tls});
        let file = home.file("n.json", &config.to_string());
        let mut ran = home.run(&["server", "--config", &file]).exits(2).says("key \"tls\"");
        for part in parts {
            ran = ran.says(part);
        }
        assert_eq!(ran.err.lines().filter(|line| line.contains("tls")).count(), 1, "{}", ran.err);
    }
}

/// A node of the binary that speaks TLS with `NAME.crt`.
fn server(home: &Home, name: &str, more: Value) -> Server {
    let tls = json!({"certificate": format!("{name}.crt"), "key": format!("{name}.key")});
    let mut config = json!({"container_name": name, "listen_port": 0, "parked_workers": 1, "tls": tls});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let file = home.file(&format!("{name}.json"), &config.to_string());
    home.server(
        &format!("state/agentcontainer/{name}"),
        &["--config", &file, "--log-file", &format!("{name}.log")],
    )
}

#[test]
fn commands_speak_it_to_nodes_here_and_elsewhere() {
    needs_openssl!();
    let home = Home::new("tls-cli");
    let dir = home.dir.path();
    let fingerprint = own(dir, "node").to_string();
    let other = own(dir, "other").to_string();
    let node = server(&home, "node", json!({}));
    let at = node.at();
    // Of a node of this user nothing has to be said.
    home.run(&["list", &at]).exits(0);
    let status = home.run(&["status", &at, "--json"]).exits(0).json();
    assert_eq!((&status["tls"], &status["state"]), (&json!(fingerprint), &json!("running")));
    home.agent("echo", "    def on_message(self, ctx, message):\n        return [message]");
    home.run(&["deploy", "echo.py", &at]).exits(0);
    assert_eq!(
        home.run(&["invoke", "echo", &at, "--message", "1", "--json"]).exits(0).json()["result"],
        json!([1])
    );
    home.run(&["tree", &at, "--live"]).exits(0);
    // Elsewhere it has to be.
    let secret = node.dir.join("meta/admin.secret");
    let secret = secret.to_str().unwrap();
    let away = |arguments: &[&str]| -> Ran {
        let mut command = home.command(&[arguments, &["--secret-file", secret]].concat());
        command.env("XDG_STATE_HOME", home.path("elsewhere"));
        support::cli::ran(command)
    };
    away(&["list", &at]).exits(1).says("TLS alone");
    away(&["list", &at, "--tls"]).exits(2).says("--tls-fingerprint");
    away(&["list", &format!("tls://{at}")]).exits(2).says("--tls-ca");
    away(&["list", &at, "--tls-fingerprint", &fingerprint]).exits(0);
    away(&["list", &format!("tls://{at}#{fingerprint}")]).exits(0);
    away(&["list", &at, "--tls-ca", "node.crt"]).exits(0);
    away(&["describe", &at, "--tls", "--tls-ca", "node.crt"]).exits(0);
    for words in [
        vec!["status"],
        vec!["describe"],
        vec!["tree"],
        vec!["roster"],
        vec!["grants"],
        vec!["schedule", "list"],
        vec!["identity", "list"],
        vec!["token", "revoked"],
        vec!["call", "network_tree"],
        vec!["invoke", "echo"],
        vec!["grant", "echo", "files"],
        vec!["revoke", "echo", "files"],
    ] {
        let (words, last) = (words, [&*at, "--tls-fingerprint", &fingerprint]);
        away(&[&words[..], &last].concat()).exits(0);
    }
    away(&["outbox", "list", "--node", &format!("tls://{at}#{fingerprint}")]).exits(0);
    away(&["token", "show", "x", "--tls"]).exits(2).says("token show has no option --tls");
    away(&["list", &at, "--tls-fingerprint", &other]).exits(3).says("another one is pinned");
    away(&["list", &at, "--tls-ca", "other.crt"]).exits(3).says("not good by");
    away(&["list", &at, "--tls-fingerprint", "abc"]).exits(2).says("64 hexadecimal digits");
    away(&["list", &at, "--tls-ca", "nowhere.crt"]).exits(2).says("nowhere.crt");
    away(&["list", &at, "--tls-ca", "node.crt", "--tls-fingerprint", &other])
        .exits(2)
        .says("give one of them");
    away(&["list", &at, "--tls-key", "node.key"]).exits(2).says("--tls-cert");
    away(&["list", &at, "--tls-ca", "node.crt", "--tls-cert", "node.crt", "--tls-key", "other.key"])
        .exits(2)
        .says("is not that of");
    // The node's state directory knows it as well, and a configuration that names the port.
    home.file("named.json", &format!("{{\"listen_port\": {}, \"admin_secret_file\": \"{secret}\", \"tls\": {{\"certificate\": \"node.crt\", \"key\": \"node.key\"}}}}", node.port));
    for (option, value) in [("--state-dir", node.dir()), ("--config", "named.json")] {
        let mut command = home.command(&["list", &at, option, value]);
        command.env("XDG_STATE_HOME", home.path("elsewhere"));
        support::cli::ran(command).exits(0);
    }
    // A journey: to the node, and home to a stage that speaks TLS too.
    home.agent("tourist", "    def on_activate(self, ctx, payload):\n        if payload.get('home'):\n            return [hop.get('tls') is not None for hop in ctx.trace]\n        return ctx.return_to_stage({'home': True})");
    let sent = away(&[
        "send",
        "tourist.py",
        &at,
        "--tls-fingerprint",
        &fingerprint,
        "--tls-cert",
        "other.crt",
        "--tls-key",
        "other.key",
        "--json",
    ])
    .exits(0)
    .json();
    assert_eq!(sent["result"], json!([true, true]), "{sent}");
    let sent = home.run(&["send", "tourist.py", &at, "--json"]).exits(0).json();
    assert_eq!(sent["result"], json!([false, true]), "{sent}");
}

#[test]
fn a_reload_reads_the_certificate_anew_and_drops_no_connection() {
    needs_openssl!();
    let home = Home::new("tls-reload");
    let dir = home.dir.path();
    let first = own(dir, "node");
    let second = own(dir, "next");
    let mut node = server(&home, "node", json!({"admin_secret": support::lab::ADMIN}));
    let with = |pin: Fingerprint| {
        Address::new("127.0.0.1", node.port).unwrap().with_tls(Some(Tls::pinned(vec![pin])))
    };
    let stream = wire::open(&with(first), soon()).unwrap();
    let mut reader = LineReader::new(&*stream, 1 << 20);
    write(&*stream, &format!("{}\n", kept("network_tree", json!({})).line));
    assert!(answer(&mut reader).is_ok());
    let log = || std::fs::read_to_string(home.path("node.log")).unwrap();
    // A key that does not fit the certificate: everything stays.
    std::fs::copy(dir.join("next.key"), dir.join("node.key")).unwrap();
    node.signal(Signal::HUP);
    until(10, "it says why not", || log().contains("configuration_kept"));
    assert!(log().contains("is not that of the certificate"), "{}", log());
    assert!(ask(&with(first)).unwrap().is_ok());
    std::fs::copy(dir.join("next.crt"), dir.join("node.crt")).unwrap();
    node.signal(Signal::HUP);
    until(10, "it is taken", || log().contains("configuration_reloaded"));
    assert!(log().contains("changed=tls"), "{}", log());
    assert!(ask(&with(second)).unwrap().is_ok());
    assert!(ask(&with(first)).unwrap_err().to_string().contains("another one is pinned"));
    // The one that was open goes on, and gets its answer at the end too.
    write(&*stream, &format!("{}\n", kept("network_tree", json!({})).line));
    assert!(answer(&mut reader).is_ok());
    // The note for the commands of this machine is new, too.
    home.run(&["list", &node.at(), "--config", "node.json"]).exits(0);
    // TLS can be turned off, and on again.
    let log_has =
        |count: usize| until(10, "it is taken", || log().matches("configuration_reloaded").count() == count);
    let with_tls = std::fs::read_to_string(home.path("node.json")).unwrap();
    let mut without: Value = serde_json::from_str(&with_tls).unwrap();
    without.as_object_mut().unwrap().remove("tls");
    home.file("node.json", &without.to_string());
    node.signal(Signal::HUP);
    log_has(2);
    assert!(ask(&with(second).with_tls(None)).unwrap().is_ok());
    home.file("node.json", &with_tls);
    node.signal(Signal::HUP);
    log_has(3);
    assert!(ask(&with(second)).unwrap().is_ok());
    write(&*stream, &format!("{}\n", kept("network_tree", json!({})).line));
    assert!(answer(&mut reader).is_ok(), "still the same connection");
    node.signal(Signal::TERM);
    assert!(node.end().success());
    assert!(!matches!(reader.next_line(soon()), Ok(Line::Text(_))), "and it ends with the node");
}

#[test]
fn an_endless_line_takes_no_more_memory_over_tls() {
    needs_openssl!();
    let home = Home::new("tls-flat");
    let pin = own(home.dir.path(), "flat");
    let node =
        server(&home, "flat", json!({"max_message_bytes": 1 << 20, "admin_secret": support::lab::ADMIN}));
    let address = Address::new("127.0.0.1", node.port).unwrap().with_tls(Some(Tls::pinned(vec![pin])));
    assert!(ask(&address).unwrap().is_ok());
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", node.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().to_owned();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    let before = peak();
    for _ in 0..8 {
        let stream = wire::open(&address, soon()).unwrap();
        let part = vec![b'x'; 1 << 20];
        // 60 MB: what a connection that was answered may still send.
        let sent = (0..60).take_while(|_| stream.write_before(&part, soon()).is_ok()).count();
        assert!(sent >= 2);
        let told = answer(&mut LineReader::new(&*stream, 1 << 20));
        assert_eq!(code(&told), "too_large");
    }
    let grown = peak().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more after 480 MB");
    assert!(ask(&address).unwrap().is_ok());
}

#[test]
fn what_is_queued_waits_for_the_right_certificate_and_is_delivered_over_tls() {
    needs_openssl!();
    let home = Home::new("tls-queue");
    let dir = home.dir.path();
    let (right, _) = (own(dir, "far"), own(dir, "wrong"));
    let port = free_port();
    let secret = json!(support::lab::ADMIN);
    let near = json!({"name": "near", "host": "127.0.0.1", "port": 1, "children":
        [{"name": "far", "host": "127.0.0.1", "port": port, "tls": {"fingerprint": right.to_string()}}]});
    let more = json!({"admin_secret": secret, "federation": near});
    own(dir, "near");
    let mut source = server(&home, "near", more.clone());
    home.agent("parcel", "    def on_activate(self, ctx, payload):\n        return 1");
    let transfer = home
        .run(&["deploy", "parcel.py", "far", "--queue", "--node", &source.at(), "--config", "near.json"])
        .exits(0);
    assert!(!transfer.out.trim().is_empty());
    // And one to an address in words.
    home.agent("letter", "    def on_activate(self, ctx, payload):\n        return 1");
    let there = format!("127.0.0.1:{port}");
    let fingerprint = right.to_string();
    home.run(&[
        "deploy",
        "letter.py",
        &there,
        "--queue",
        "--tls-fingerprint",
        &fingerprint,
        "--node",
        &source.at(),
        "--config",
        "near.json",
    ])
    .exits(0);
    // Somebody else answers there.
    let wrong = server(&home, "wrong", json!({"listen_port": port, "admin_secret": secret}));
    let waiting = |source: &Server| {
        home.run(&["outbox", "list", "--json", "--node", &source.at(), "--config", "near.json"])
            .exits(0)
            .json()
    };
    until(20, "the other certificate is seen", || {
        let all = waiting(&source);
        all.as_array()
            .unwrap()
            .iter()
            .filter(|one| one["last_error"].as_str().unwrap().contains("another one is pinned"))
            .count()
            == 2
    });
    drop(wrong);
    // What is pinned is written down with the transfer.
    source.signal(Signal::KILL);
    source.end();
    let source = server(&home, "near", more);
    let far = server(&home, "far", json!({"listen_port": port, "admin_secret": secret}));
    until(30, "both arrive", || {
        let there = home.run(&["list", &far.at(), "--json", "--config", "far.json"]).exits(0).json();
        there.as_array().unwrap().len() == 2
    });
    until(20, "the outbox is empty", || waiting(&source).as_array().unwrap().is_empty());
}

#[test]
fn a_certificate_that_is_cut_or_damaged_is_none_and_harms_nobody() {
    needs_openssl!();
    let certs = TempDir::new("tls-damage");
    own(certs.path(), "whole");
    let whole = read_certificates(&certs.path().join("whole.crt")).unwrap().remove(0).to_vec();
    assert_eq!(check_time(&whole, wire::unix_now()), Ok(()));
    assert!(check_time(&whole, wire::unix_now() + 31 * 86_400).unwrap_err().contains("has expired"));
    assert!(check_time(&whole, wire::unix_now() - 86_400).unwrap_err().contains("not good before"));
    for end in 0..whole.len() {
        assert!(check_time(&whole[..end], 0).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            let _ = check_time(&damaged, 0); // whatever it says, it says something
        }
    }
}
