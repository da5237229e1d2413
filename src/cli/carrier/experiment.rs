//! `experiment CONFIG.json`: what a configuration asks for, and the verdict.

use super::args::{Command, Given};
use super::meter::Telling;
use super::table::table;
use super::Outcome;
use crate::research::experiment::{self, Config};

pub(super) static COMMAND: Command = Command {
    name: "experiment",
    about: "Runs what a configuration describes, and says whether it is good enough to be promoted.",
    operand: Some("CONFIG.json"),
    flags: &[],
};

pub(super) fn run(given: &Given) -> Outcome {
    let config = Config::read(given.operand())?;
    let mut telling = Telling::default();
    let done = experiment::run(&config, &mut |what, done, of| telling.tell(what, done, of))?;
    drop(telling);
    let mut text = format!("experiment: {}\n{}", config.name, table(&done.records));
    if let [record] = &done.records[..] {
        for check in record.promotion.iter().flat_map(|promotion| &promotion.checks) {
            let mark = if check.passed { "passed" } else { "failed" };
            text.push_str(&format!("{} {mark}: {}\n", check.check, check.detail));
        }
    }
    let is_promoted = |verdict: &str| verdict == "promote";
    let promoted = done
        .records
        .iter()
        .all(|record| record.promotion.as_ref().is_some_and(|promotion| is_promoted(&promotion.verdict)));
    let verdict = if promoted { "promote" } else { "reject" };
    Ok(text + &format!("result path: {}\nverdict: {verdict}\n", done.result_path.display()))
}
