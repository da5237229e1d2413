use std::sync::mpsc;
use std::thread;

use super::super::testing::{connection, later};
use super::*;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

fn text(line: &str) -> Line {
    Line::Text(line.as_bytes().to_vec())
}

#[test]
fn lines_come_one_by_one_whatever_the_packets() {
    let (server, mut client) = connection();
    client.write_all(b"one\r\n\n  \r\ntwo\nthr").unwrap();
    let mut reader = LineReader::new(&server, 100);
    assert_eq!(reader.next_line(later()).unwrap(), text("one\r"));
    assert_eq!(reader.next_line(later()).unwrap(), text("two"));
    assert!(reader.wait(later()).unwrap());
    client.write_all(b"ee").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(reader.next_line(later()).unwrap(), text("three"));
    assert!(!reader.wait(later()).unwrap());
    assert_eq!(reader.next_line(later()).unwrap(), Line::End);
    assert_eq!(reader.next_line(later()).unwrap(), Line::End);
}

#[test]
fn white_space_at_the_end_is_no_line() {
    let (server, mut client) = connection();
    client.write_all(b" \r\n  ").unwrap();
    drop(client);
    assert_eq!(LineReader::new(&server, 100).next_line(later()).unwrap(), Line::End);
}

#[test]
fn the_limit_is_for_the_line_without_its_newline() {
    let (server, mut client) = connection();
    client.write_all(b"12345\n12345\n123456\n").unwrap();
    let mut reader = LineReader::new(&server, 5);
    assert_eq!(reader.next_line(later()).unwrap(), text("12345"));
    assert_eq!(reader.next_line(later()).unwrap(), text("12345"));
    assert!(matches!(reader.next_line(later()), Err(ReadError::TooLarge { limit: 5 })));

    let (server, mut client) = connection();
    client.write_all(b"123456").unwrap();
    let mut reader = LineReader::new(&server, 5);
    assert!(matches!(reader.next_line(later()), Err(ReadError::TooLarge { .. })));
}

#[test]
fn a_stream_without_newline_is_refused_at_the_limit_with_flat_memory() {
    let (server, mut client) = connection();
    let flood = thread::spawn(move || {
        let block = vec![b'x'; 1 << 20];
        (0..64).take_while(|_| client.write_all(&block).is_ok()).count()
    });
    let mut reader = LineReader::new(&server, 1 << 20);
    assert!(matches!(reader.next_line(later()), Err(ReadError::TooLarge { .. })));
    assert!(reader.buffer.capacity() <= (1 << 20) + 1, "{}", reader.buffer.capacity());
    drop(server);
    // Buffers of the kernel take some megabytes.
    assert!(flood.join().unwrap() < 64);
}

#[test]
fn a_long_line_takes_its_memory_along() {
    let (server, mut client) = connection();
    let long = "y".repeat(3 << 20);
    let sent = format!("first\n{long}\nlast\n");
    let writer = thread::spawn(move || client.write_all(sent.as_bytes()).map(|()| client));
    let mut reader = LineReader::new(&server, 4 << 20);
    assert_eq!(reader.next_line(later()).unwrap(), text("first"));
    assert!(reader.next_line(later()).unwrap() == text(&long));
    assert!(reader.buffer.capacity() <= 2 * CHUNK, "{}", reader.buffer.capacity());
    assert_eq!(reader.next_line(later()).unwrap(), text("last"));
    drop(writer.join().unwrap());
}

#[test]
fn a_dripping_client_is_cut_at_the_total_deadline() {
    let (server, mut client) = connection();
    let (stop, stopped) = mpsc::channel::<()>();
    let drip = thread::spawn(move || {
        // Far more often than the deadline: each byte would renew a timeout between bytes.
        while stopped.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout) {
            if client.write_all(b"z").is_err() {
                return;
            }
        }
    });
    let started = Instant::now();
    let mut reader = LineReader::new(&server, 1 << 20);
    let outcome = reader.next_line(started + Duration::from_millis(200));
    assert!(matches!(outcome, Err(ReadError::TimedOut { partial: true })), "{outcome:?}");
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(199) && took < Duration::from_secs(10), "{took:?}");
    drop(stop);
    drip.join().unwrap();
}

#[test]
fn silence_is_told_apart_from_half_a_line() {
    let (server, client) = connection();
    let outcome = LineReader::new(&server, 100).next_line(Instant::now() + Duration::from_millis(20));
    assert!(matches!(outcome, Err(ReadError::TimedOut { partial: false })), "{outcome:?}");
    drop(client);
}

#[test]
fn a_written_line_arrives_whole() {
    for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 << 20] {
        let (server, client) = connection();
        let line = "w".repeat(size) + "!";
        let expected = text(&line);
        let writer = thread::spawn(move || write_line(&client, &line, later()));
        assert!(LineReader::new(&server, 4 << 20).next_line(later()).unwrap() == expected);
        writer.join().unwrap().unwrap();
    }
}

#[test]
fn a_peer_that_does_not_read_holds_nobody_beyond_the_deadline() {
    let (server, client) = connection();
    let started = Instant::now();
    let error = write_line(&server, &"v".repeat(64 << 20), started + Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(10));
    drop(client);
}

/// Without draining, the input that nobody read makes the kernel reset the connection.
#[test]
fn a_closed_connection_still_delivers_the_answer() {
    let (server, mut client) = connection();
    let sender = thread::spawn(move || {
        let sent = client.write_all(&vec![b'u'; 8 << 20]);
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).map(|_| (sent.is_ok(), answer))
    });
    let outcome = LineReader::new(&server, 1000).next_line(later());
    assert!(matches!(outcome, Err(ReadError::TooLarge { .. })));
    write_line(&server, "too large", later()).unwrap();
    close(&server, 64 << 20, Duration::from_secs(60));
    drop(server);
    assert_eq!(sender.join().unwrap().unwrap(), (true, "too large\n".to_owned()));
}

#[test]
fn closing_is_bounded_in_bytes_and_in_time() {
    let (server, mut client) = connection();
    let flood = thread::spawn(move || while client.write_all(&[b't'; CHUNK]).is_ok() {});
    close(&server, 1 << 20, Duration::from_secs(3600));
    drop(server);
    flood.join().unwrap();

    let (server, client) = connection();
    let started = Instant::now();
    close(&server, usize::MAX, Duration::from_millis(20));
    assert!(started.elapsed() < Duration::from_secs(10));
    drop(client);
}
