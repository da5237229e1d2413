//! One capsule before all commands that judge it.

use crate::case::Case;
use crate::place::Entry;

/// What becomes of it. The word is what a complaint must name.
#[derive(Clone, Copy)]
pub enum Verdict {
    /// Everybody takes it.
    Good,
    /// It is not even inspected.
    Unreadable(&'static str),
    /// It is inspected, with the remark that it does not verify.
    Invalid(&'static str),
    /// Inspecting finds nothing to say against it, verifying does.
    Unproven(&'static str),
}

/// The commands before which `m.txt` comes.
pub fn judged(
    name: &str,
    text: impl AsRef<[u8]>,
    around: &[(String, Entry)],
    options: &str,
    verdict: Verdict,
) -> Vec<Case> {
    let case = |operation: &str, command: &str| {
        Case::new(format!("{name} ({operation})"), &format!("{command} {options}"))
            .entries(around)
            .file("m.txt", &text)
            .env("K", crate::kit::SECRET)
    };
    let inspect = case("inspect", "inspect m.txt --json");
    let verify = case("verify", "verify m.txt --json");
    let unpack = case("unpack", "unpack m.txt --out out");
    match verdict {
        Verdict::Good => vec![inspect.field("/verification_status", "ok"), verify, unpack],
        Verdict::Unreadable(word) => vec![inspect.refused(word), verify.refused(word), unpack.refused(word)],
        Verdict::Invalid(word) => {
            vec![inspect.field("/verification_status", "failed"), verify.refused(word), unpack.refused(word)]
        }
        Verdict::Unproven(word) => {
            vec![inspect.field("/verification_status", "ok"), verify.refused(word), unpack.refused(word)]
        }
    }
}
