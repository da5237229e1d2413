use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::super::testing::later;
use super::*;

/// A node that accepts one connection, reads a line and then does `then`.
fn node(then: impl FnOnce(TcpStream, Vec<u8>) + Send + 'static) -> (Address, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let thread = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let Ok(Line::Text(line)) = LineReader::new(&stream, 1 << 20).next_line(later()) else {
            panic!("no line");
        };
        then(stream, line);
    });
    (address, thread)
}

fn unclear(address: &Address, deadline: Instant) -> String {
    match exchange(address, "question", deadline, 1000) {
        Err(ExchangeError::Unclear(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_answer_comes_back() {
    let (address, thread) = node(|mut stream, line| {
        assert_eq!(line, b"question");
        stream.write_all(b"{\"status\":\"ok\",\"result\":1.0}\n").unwrap();
    });
    let answer = exchange(&address, "question", later(), 1000).unwrap();
    assert_eq!(answer.result(), Some("1.0"));
    thread.join().unwrap();
}

#[test]
fn without_a_connection_nothing_was_sent() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address: Address = format!("127.0.0.1:{port}").parse().unwrap();
    match exchange(&address, "question", later(), 1000) {
        Err(ExchangeError::NotSent(why)) => {
            assert!(why.starts_with(&format!("connecting to {address}: ")), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let late = exchange(&address, "question", Instant::now(), 1000).unwrap_err();
    assert_eq!(late, ExchangeError::NotSent(format!("connecting to {address} took too long")));
}

#[test]
fn after_the_line_was_sent_every_failure_is_unclear() {
    let (address, thread) = node(|stream, _| drop(stream));
    assert_eq!(unclear(&address, later()), format!("{address} closed the connection without an answer"));
    thread.join().unwrap();

    let (address, thread) = node(|mut stream, _| stream.write_all(b"{\"status\":\"o").unwrap());
    let why = unclear(&address, later());
    assert!(why.starts_with(&format!("{address} answered, but the answer is not JSON")), "{why}");
    thread.join().unwrap();

    let (address, thread) = node(|mut stream, _| stream.write_all(&[b'x'; 2000]).unwrap());
    assert_eq!(unclear(&address, later()), format!("the answer of {address} is longer than 1000 bytes"));
    thread.join().unwrap();

    let (address, thread) = node(|stream, _| {
        // Holds the connection until the caller has gone.
        let _ = LineReader::new(&stream, 10).next_line(later());
    });
    let why = unclear(&address, Instant::now() + Duration::from_millis(200));
    assert_eq!(why, format!("{address} did not answer in time"));
    thread.join().unwrap();
}

#[test]
fn the_writing_side_stays_open_while_waiting() {
    let (address, thread) = node(|mut stream, _| {
        let early = LineReader::new(&stream, 10).next_line(Instant::now() + Duration::from_millis(50));
        assert!(matches!(early, Err(ReadError::TimedOut { .. })), "{early:?}");
        stream.write_all(b"{\"status\":\"error\",\"code\":\"busy\"}\n").unwrap();
    });
    assert_eq!(exchange(&address, "question", later(), 1000).unwrap().code(), Some("busy"));
    thread.join().unwrap();
}
