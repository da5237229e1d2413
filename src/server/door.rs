//! The TLS of a connection that comes in: its handshake, and what is said to whoever does not speak it.

use super::budget::Budgets;
use super::requests::is_written_down;
use crate::log::Level;
use crate::node::Node;
use crate::wire::stream::{Handshake, TlsStream, Trouble};
use crate::wire::tls::{Acceptor, HELLO};
use crate::wire::{self, Answer, Code, Failure};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long the end of a connection that was not let in may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// Speaks TLS with whoever has come, before the deadline. `None`: nothing more is to be done with the
/// connection; whoever did not get in has been told why, and it is noted as a line without a good signature is.
pub(super) fn enter<'s>(
    node: &Node,
    tcp: &'s TcpStream,
    acceptor: &Acceptor,
    deadline: Instant,
    budgets: &Budgets,
) -> Option<TlsStream<&'s TcpStream>> {
    match begins_well(tcp, deadline) {
        Ok(true) => {}
        // It came and went: somebody looked whether the port is open.
        Ok(false) => return None,
        Err(None) => {
            let failure = Failure::new(Code::BadMessage, speaks_tls_alone()).with_value("tls", "required");
            if is_written_down(node, tcp, budgets) {
                node.note_unread(tcp, failure.code);
                let fields = [("sender", "?"), ("code", failure.code.as_str()), ("error", &failure.message)];
                node.log.event(Level::Warn, "request_refused", &fields);
            }
            let _ = wire::write_line(
                tcp,
                &Answer::failure(node.name(), &failure).to_line(None),
                Instant::now() + FAREWELL,
            );
            return None;
        }
        Err(Some(why)) => {
            refused(node, tcp, budgets, &why);
            return None;
        }
    }
    acceptor.accept(tcp, deadline).inspect_err(|why| refused(node, tcp, budgets, why)).ok()
}

/// The same for one that is told only that there is no place for it, and is not noted.
pub(super) fn enter_briefly<'s>(
    tcp: &'s TcpStream,
    acceptor: &Acceptor,
    deadline: Instant,
) -> Option<TlsStream<&'s TcpStream>> {
    match begins_well(tcp, deadline) {
        Ok(true) => acceptor.accept(tcp, deadline).ok(),
        _ => None,
    }
}

fn speaks_tls_alone() -> &'static str {
    "this node speaks TLS alone: agentcontainer --tls, openssl s_client -quiet, ncat --ssl"
}

/// Whether a handshake begins; false: nothing came, and nothing will. `Err(None)`: something else begins.
fn begins_well(tcp: &TcpStream, deadline: Instant) -> Result<bool, Option<Handshake>> {
    match first_byte(tcp, deadline) {
        Ok(Some(HELLO)) => Ok(true),
        Ok(Some(_)) => Err(None),
        Ok(None) => Ok(false),
        Err(Trouble::Late) => Err(Some(Handshake::Late)),
        Err(Trouble::Io(_)) => Ok(false),
    }
}

/// The first byte, which stays to be read.
fn first_byte(tcp: &TcpStream, deadline: Instant) -> Result<Option<u8>, Trouble> {
    let mut first = [0];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.as_micros() == 0 {
            return Err(Trouble::Late);
        }
        tcp.set_read_timeout(Some(left))?;
        match tcp.peek(&mut first) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(first[0])),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(Trouble::Io(error)),
        }
    }
}

fn refused(node: &Node, tcp: &TcpStream, budgets: &Budgets, why: &Handshake) {
    if is_written_down(node, tcp, budgets) {
        node.note_handshake(tcp, &why.to_string());
    }
}
