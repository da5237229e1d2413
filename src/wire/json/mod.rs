//! JSON as it stands in a line: checked once, then looked at in place.
//!
//! A signature covers the number tokens and the payload exactly as they were sent, so nothing here
//! converts a document into values of its own. [`parse`] checks the whole text in one pass and hands
//! out a [`Json`], which is no more than the checked slice; members and elements are found by walking
//! it. A document therefore costs no memory beyond its text, whatever it is made of (a tree would
//! spend some fifty bytes on each `0` of `[0,0,0,…]`). While it checks, the scanner keeps eight bytes
//! for each key of the objects that are open.
//!
//! The caller bounds the length of the text; more than 4 GiB is refused.

mod canonical;
mod scan;
mod text;
mod view;

use std::fmt;

pub use canonical::{canonical, Form};
pub use text::quote;
pub use view::{Elements, Json, Member, Members, Value};

pub(super) use canonical::{object, write_canonical};
pub(super) use scan::{scan, Order};

/// How many objects and arrays may stand within each other.
pub const MAX_NESTING: usize = 64;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong, without the place.
    pub what: String,
    /// How many bytes stand before it.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at)
    }
}

impl std::error::Error for Malformed {}

/// Checks a text to be one JSON value by RFC 8259, and more strictly than most do: no key twice in an
/// object (whatever escapes spell it), no lone surrogate, no more than [`MAX_NESTING`] levels.
///
/// Time is linear in the text but for the sorting of keys.
pub fn parse(text: &str) -> Result<Json<'_>, Malformed> {
    parse_within(text, 0)
}

/// [`parse`], for a value that will stand `outer` levels deep in another.
///
/// # Errors
/// As [`parse`]; the levels around it count.
pub fn parse_within(text: &str, outer: usize) -> Result<Json<'_>, Malformed> {
    scan(text, outer).map(|(json, _)| json)
}
