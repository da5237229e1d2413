//! The wire protocol: messages, their signatures, and how they get over a connection.
//!
//! TCP, UTF-8, one JSON object a line; a request is one line and so is its answer. This module knows
//! messages and nothing of nodes or agents.
//!
//! # A request
//!
//! | field | type | rule |
//! |---|---|---|
//! | `type` | string | what is asked for |
//! | `sender` | string | who asks |
//! | `timestamp` | integer | Unix seconds; close to the node's clock ([`freshness`]) |
//! | `nonce` | string | 1 to 128 bytes; the answer repeats it |
//! | `payload` | object | the type's own fields |
//! | `signature` | string | 64 hexadecimal digits: HMAC-SHA256 of the message without this field, in canonical form ([`Form`]) |
//! | `keep_alive` | boolean, optional | whether another line will follow on the connection |
//!
//! None of them may be `null`. Other fields are allowed, and signed like these. An error names the
//! field: ``the field `nonce` is missing; it is a string``.
//!
//! # An answer
//!
//! `status` is `ok`, with a `result` of any kind, or `error`, with a `code` ([`Code`]) and one sentence
//! in `error`. Both name the `node`. If the request's signature was good, `nonce` repeats the request's
//! and `signature`, the last member of the line, is made like the request's and with the same secret.
//!
//! # An example
//!
//! With the secret `correct horse`:
//!
//! ```
//! use agentcontainer::wire::{signed_request, Answer, ReceivedAnswer, Request, RequestOptions, Secret};
//!
//! let secret = Secret::new("correct horse")?;
//! let options = RequestOptions {
//!     timestamp: Some(1_700_000_000),
//!     nonce: Some("n-1".into()),
//!     ..RequestOptions::default()
//! };
//! let sent = signed_request("invoke_agent", "admin", &secret, r#"{"message":{"n":1.0},"agent_id":"a"}"#, options)?;
//! assert_eq!(
//!     sent.line,
//!     concat!(
//!         r#"{"nonce":"n-1","payload":{"agent_id":"a","message":{"n":1.0}},"sender":"admin","#,
//!         r#""signature":"ab4ee384690e701ee04b7f2030c0c444a81c55d9e5901a0db117cdbf1738d536","#,
//!         r#""timestamp":1700000000,"type":"invoke_agent"}"#
//!     )
//! );
//!
//! let request = Request::parse(sent.line)?;
//! assert!(request.verify(&secret));
//! assert_eq!(request.payload(), r#"{"agent_id":"a","message":{"n":1.0}}"#);
//!
//! let line = Answer::ok("alpha", r#"{"n":2.0}"#)?.to_line(Some((&request.nonce, &secret)));
//! assert_eq!(
//!     line,
//!     concat!(
//!         r#"{"node":"alpha","nonce":"n-1","result":{"n":2.0},"status":"ok","#,
//!         r#""signature":"905c342795b6d9eac1dbd1d06208a4d8bc07ada437df7f4dbee283f609ceef16"}"#
//!     )
//! );
//! let answer = ReceivedAnswer::parse(line)?;
//! assert!(answer.genuine(&secret, "n-1"));
//! assert_eq!(answer.result(), Some(r#"{"n":2.0}"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod address;
pub mod answer;
pub mod certificate;
pub mod client;
pub mod code;
pub mod failure;
pub mod frame;
pub mod hex;
pub mod json;
pub mod replay;
pub mod request;
pub mod room;
pub mod secret;
pub mod stream;
pub mod tls;

pub use address::{connect, Address, AddressError, ConnectError};
pub use answer::{Answer, BadAnswer, ReceivedAnswer};
pub use certificate::Fingerprint;
pub use client::{exchange, ExchangeError};
pub use code::Code;
pub use failure::Failure;
pub use frame::{close, write_line, Line, LineReader, ReadError};
pub use json::{canonical, parse, parse_within, Form, Json, Malformed, Value};
pub use replay::{ReplayWindow, Verdict};
pub use request::{
    freshness, knock, random_nonce, signed_request, unix_now, Request, RequestOptions, SignedRequest,
};
pub use room::{Hold, NoRoom, Room};
pub use secret::{Secret, SecretError};
pub use stream::Stream;
pub use tls::{open, Tls};

#[cfg(test)]
mod testing;
