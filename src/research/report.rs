//! Results as one page for people: plots, each with its numbers in a table.
//!
//! The page needs nothing else: no script, and no style, font or image from anywhere. What the files say is shown as
//! text ([`crate::capsule::report`] is the other page, and lends its way of escaping).

mod draw;
mod page;
mod speed;

use super::record::{self, Record, Results};
use super::speed::Speed;

/// How many results a page shows at most.
pub const MAX_RESULTS: usize = 2000;

/// The page for the texts of result files, each with the name that complaints give it.
///
/// # Errors
/// The first file that is none of results, and what is wrong in it; no file at all; too many results.
pub fn render<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<String, String> {
    let (mut records, mut speeds): (Vec<Record>, Vec<Speed>) = Default::default();
    for (name, text) in files {
        match record::read(text).map_err(|why| format!("{name}: {why}"))? {
            Results::Records(more) => records.extend(more),
            Results::Speeds(more) => speeds.extend(more),
        }
        if records.len() + speeds.len() > MAX_RESULTS {
            return Err(format!(
                "{name}: with it there are more than {MAX_RESULTS} results, too many for a page"
            ));
        }
    }
    match records.is_empty() && speeds.is_empty() {
        true => Err("there is no result".into()),
        false => Ok(page::page(&records, &speeds)),
    }
}
