//! Sending one line to a node and waiting for its answer.

use std::fmt;
use std::io;
use std::time::Instant;

use super::address::Address;
use super::answer::ReceivedAnswer;
use super::frame::{write_line, Line, LineReader, ReadError};
use super::stream::said_by;
use super::tls::open;
use rustls::AlertDescription;

/// Why there is no answer. What matters to a sender is whether the node can have acted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeError {
    /// Not one byte was written: the name did not resolve, no connection came about, or nobody who is
    /// known is there. Or the node looked at our certificate before the line, and did not want it.
    NotSent(String),
    /// Something may have been written; whether the node has acted on it is not known.
    Unclear(String),
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeError::NotSent(why) | ExchangeError::Unclear(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ExchangeError {}

/// Sends `line` (without newline) and reads one answer of at most `max_answer_bytes`, all before the
/// deadline. Whether the answer is genuine is for the caller to check. The writing side stays open
/// until the answer is there: a node may take its end for a caller that has gone.
pub fn exchange(
    address: &Address,
    line: &str,
    deadline: Instant,
    max_answer_bytes: usize,
) -> Result<ReceivedAnswer, ExchangeError> {
    let stream = open(address, deadline).map_err(|error| ExchangeError::NotSent(error.to_string()))?;
    let written = write_line(&*stream, line, deadline);
    // A node that refuses a line early (busy, too large) answers and closes while it is being written,
    // so that its answer may be there although writing failed.
    let read = LineReader::new(&*stream, max_answer_bytes).next_line(deadline);
    let why = match (read, written) {
        (Ok(Line::Text(text)), _) => {
            return ReceivedAnswer::parse(text)
                .map_err(|wrong| ExchangeError::Unclear(format!("{address} answered, but {wrong}")));
        }
        (Err(ReadError::Io(error)), _) if turned_away(&error).is_some() => {
            let why = turned_away(&error).unwrap_or_default();
            return Err(ExchangeError::NotSent(format!("{address} ended the TLS handshake: {why}")));
        }
        (_, Err(error)) => format!("sending to {address}: {error}"),
        (Ok(Line::End), _) => format!("{address} closed the connection without an answer"),
        (Err(ReadError::TimedOut { .. }), _) => format!("{address} did not answer in time"),
        (Err(ReadError::TooLarge { limit }), _) => {
            format!("the answer of {address} is longer than {limit} bytes")
        }
        (Err(error @ (ReadError::NoRoom | ReadError::Secured)), _) => {
            format!("the answer of {address}: {error}")
        }
        (Err(ReadError::Io(error)), _) => format!("waiting for the answer of {address}: {error}"),
    };
    Err(ExchangeError::Unclear(why))
}

/// The reason of a node that did not want our certificate. With TLS 1.3 it says so after our side of the
/// handshake is done, and before it reads a line; nobody else can say it.
fn turned_away(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError),
        ) => Some(said_by(*alert)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
