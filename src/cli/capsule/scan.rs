//! `scan FILE`.

use super::args::{Command, Given};
use super::receive::{audited, read_rules, read_text, AUDIT, JSON, POLICY, REGISTRY};
use super::{line, Outcome};
use crate::capsule::{audit, scan, Keys};

pub(super) static COMMAND: Command = Command {
    name: "scan",
    about: "Reports capsules and other dense or hidden text in a text file.",
    operand: Some("FILE"),
    flags: &[POLICY, REGISTRY, JSON, AUDIT],
};

pub(super) fn run(given: &Given) -> Outcome {
    audited("scan", given, |policy| {
        let registry = read_rules(given, policy)?;
        let text = read_text(given.operand(), policy)?;
        let keys = Keys { registry: registry.as_ref(), ..Keys::default() };
        let report = scan::scan(&text, policy, &keys);
        Ok(if given.has(AUDIT.name) {
            let reasons: Vec<String> = report.reasons.iter().cloned().collect();
            let json = report.json(policy);
            line(audit::event("scan", &given.subject(), policy, report.disposition(), &reasons, json))
        } else if given.has(JSON.name) {
            line(report.json(policy))
        } else {
            report.text(policy)
        })
    })
}
