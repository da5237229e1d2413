//! The page: HTML from what was read. Every text of others goes through [`shown`].

use super::records::{count, Audit, Check, Decision, Evaluation, Event, Row};
use super::text::{code, shown};
use crate::base64;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

const STYLE: &str = include_str!("page.css");

/// The signs, so that nothing is told by colour alone. Drawn here, because a font may lack them.
const SIGNS: &str = r##"<svg width="0" height="0" hidden aria-hidden="true"><defs>
<symbol id="sign-allow" viewBox="0 0 20 20"><path d="M4.5 10.5l3.6 3.7 7.4-8.2" fill="none" stroke="currentColor" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round"/></symbol>
<symbol id="sign-review" viewBox="0 0 20 20"><path d="M10 4.2v7.2M10 15.4v.2" fill="none" stroke="currentColor" stroke-width="2.8" stroke-linecap="round"/></symbol>
<symbol id="sign-block" viewBox="0 0 20 20"><path d="M5.2 5.2l9.6 9.6M14.8 5.2l-9.6 9.6" fill="none" stroke="currentColor" stroke-width="2.6" stroke-linecap="round"/></symbol>
</defs></svg>
"##;

/// The whole page.
pub fn page(events: &[Event<'_>], evaluation: Option<&Evaluation<'_>>) -> String {
    let mut out = head();
    out.push_str(
        "<header>\n<p class=\"above\">Agent Capsule</p>\n<h1>Handoff report</h1>\n</header>\n<main>\n",
    );
    out.push_str(&verdict(events, evaluation));
    out.push_str(&facts(events));
    if let Some(evaluation) = evaluation {
        out.push_str(&checklist(&evaluation.checklist));
        out.push_str(&matrix(&evaluation.matrix));
    }
    out.push_str(&timeline(events));
    out.push_str(&format!(
        "</main>\n<footer>\n<p>Made by agentcontainer {} from the recorded events. The page runs nothing and loads \
         nothing; what the records say is shown as text.</p>\n</footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    ));
    out
}

/// The style is the only thing that the page may use, and it is named by its hash: should a text ever
/// get out of its place, it still could neither run nor load nor style anything.
fn head() -> String {
    let style = format!("\n{STYLE}");
    let hash = base64::encode(&Sha256::digest(style.as_bytes()));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{hash}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Handoff report</title>\n<style>{style}</style>\n</head>\n<body>\n{SIGNS}"
    )
}

fn sign(decision: Decision) -> String {
    let name = decision.name();
    format!("<svg class=\"icon\" aria-hidden=\"true\"><use href=\"#sign-{name}\"/></svg>")
}

fn badge(decision: Decision) -> String {
    let name = decision.name();
    format!("<span class=\"badge {name}\">{}{name}</span>", sign(decision))
}

fn verdict(events: &[Event<'_>], evaluation: Option<&Evaluation<'_>>) -> String {
    let mut out = String::from("<section class=\"card verdict\" aria-labelledby=\"verdict\">\n");
    match evaluation {
        Some(evaluation) => {
            let (name, colour, title) = match evaluation.passed {
                true => ("pass", Decision::Allow, "The handoff passed"),
                false => ("fail", Decision::Block, "The handoff failed"),
            };
            out.push_str(&ring(evaluation.score, colour));
            let passed = evaluation.checklist.iter().filter(|check| check.passed).count();
            let matched = evaluation.matrix.iter().filter(|row| row.matched).count();
            out.push_str(&format!(
                "<div class=\"saying\">\n<h2 id=\"verdict\" class=\"{}\" data-verdict=\"{name}\">{}{title}</h2>\n\
                 <p class=\"soft\">{passed} of {} passed; {}.</p>\n</div>\n",
                colour.name(),
                sign(colour),
                some(evaluation.checklist.len(), "check"),
                match evaluation.matrix.len() {
                    0 => "no receiver was tried".to_owned(),
                    all => format!("{matched} of {} decided as expected", some(all, "receiver")),
                },
            ));
        }
        None => {
            out.push_str(&format!(
                "<div class=\"saying\">\n<h2 id=\"verdict\" data-verdict=\"none\">Not evaluated</h2>\n\
                 <p class=\"soft\">There are only the events. The gravest decision among them: {}</p>\n</div>\n",
                badge(worst(events)),
            ));
        }
    }
    out.push_str("<ul class=\"tally\" aria-label=\"Decisions\">\n");
    for decision in Decision::ALL {
        let found = count(events, decision);
        let look = if found == 0 { "none" } else { decision.name() };
        let (name, sign) = (decision.name(), sign(decision));
        out.push_str(&format!(
            "<li class=\"{look}\" data-count=\"{name}\"><b>{found}</b> <span>{sign} {name}</span></li>\n"
        ));
    }
    out.push_str("</ul>\n</section>\n");
    out
}

/// The score as a ring; `score` is 0 to 100.
fn ring(score: i64, colour: Decision) -> String {
    // A round cap would show a dot at 0.
    let part = match score {
        0 => String::new(),
        _ => format!(
            "<circle class=\"part\" cx=\"50\" cy=\"50\" r=\"42\" fill=\"none\" stroke-width=\"9\" pathLength=\"100\" \
             stroke-dasharray=\"{score} 100\" transform=\"rotate(-90 50 50)\"/>"
        ),
    };
    format!(
        "<div class=\"score {}\"><svg viewBox=\"0 0 100 100\" role=\"img\" aria-label=\"Score: {score} of 100\">\
         <circle class=\"track\" cx=\"50\" cy=\"50\" r=\"42\" fill=\"none\" stroke-width=\"9\"/>{part}\
         <text x=\"50\" y=\"55\" text-anchor=\"middle\" font-size=\"28\" font-weight=\"650\">{score}</text>\
         <text x=\"50\" y=\"71\" text-anchor=\"middle\" font-size=\"11\">of 100</text></svg></div>\n",
        colour.name()
    )
}

fn worst(events: &[Event<'_>]) -> Decision {
    let there = |decision: &Decision| count(events, *decision) > 0;
    Decision::ALL.into_iter().rev().find(there).unwrap_or(Decision::Block)
}

fn facts(events: &[Event<'_>]) -> String {
    let actors: BTreeSet<&str> = events.iter().map(|event| event.actor.as_ref()).collect();
    let actors: Vec<String> = actors.into_iter().map(shown).collect();
    let mut out = String::from("<dl class=\"facts\">\n");
    if let (Some(first), Some(last)) = (events.first(), events.last()) {
        out.push_str(&format!(
            "<div><dt>Begun</dt><dd>{}</dd></div>\n<div><dt>Took</dt><dd>{}</dd></div>\n",
            time(first),
            took(last.millis - first.millis)
        ));
    }
    out.push_str(&format!("<div><dt>Actors</dt><dd>{}</dd></div>\n</dl>\n", actors.join(", ")));
    out
}

/// The moment of an event; its text was checked to be a time.
fn time(event: &Event<'_>) -> String {
    format!("<time>{}</time>", shown(&event.time.replace('T', " ").replace('Z', " UTC")))
}

fn took(millis: i64) -> String {
    let sign = if millis < 0 { "\u{2212}" } else { "" }; // a clock that was set back
    let millis = millis.unsigned_abs();
    match millis {
        0..=9_999 => format!("{sign}{}.{:03}\u{a0}s", millis / 1000, millis % 1000),
        10_000..=119_999 => format!("{sign}{}\u{a0}s", millis / 1000),
        120_000..=7_199_999 => format!("{sign}{}\u{a0}min", millis / 60_000),
        _ => format!("{sign}{}\u{a0}h", millis / 3_600_000),
    }
}

fn since(millis: i64) -> String {
    let sign = if millis < 0 { "" } else { "+" };
    format!("{sign}{}", took(millis))
}

fn checklist(checks: &[Check<'_>]) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"checklist\">\n<h2 id=\"checklist\">Checklist</h2>\n\
         <p class=\"lead\">What the evidence shows, each point by itself.</p>\n<ul class=\"checks card\">\n",
    );
    for check in checks {
        let (decision, word, look) = match check.passed {
            true => (Decision::Allow, "passed", ""),
            false => (Decision::Block, "failed", " class=\"missed\""),
        };
        let detail = match check.detail.is_empty() {
            true => word.to_owned(),
            false => format!("{word}: {}", shown(&check.detail)),
        };
        out.push_str(&format!(
            "<li{look}><span class=\"mark {}\">{}</span><div>{}<div class=\"soft small\">{detail}</div></div></li>\n",
            decision.name(),
            sign(decision),
            shown(&check.check),
        ));
    }
    out.push_str("</ul>\n</section>\n");
    out
}

fn matrix(rows: &[Row<'_>]) -> String {
    let mut out =
        String::from("<section aria-labelledby=\"matrix\">\n<h2 id=\"matrix\">Policy matrix</h2>\n");
    if rows.is_empty() {
        out.push_str(
            "<p class=\"lead\">No receiver was tried: the handoff had ended before.</p>\n</section>\n",
        );
        return out;
    }
    // The roles say again what the elements are, because the narrow layout takes it from them.
    out.push_str(
        "<p class=\"lead\">The same handoff at receivers with other policies, keys or capsules.</p>\n\
         <div class=\"card\">\n<table role=\"table\" aria-labelledby=\"matrix\">\n\
         <thead role=\"rowgroup\"><tr role=\"row\">",
    );
    for column in ["Receiver", "Asked", "Expected", "Actual", "Reason"] {
        out.push_str(&format!("<th role=\"columnheader\" scope=\"col\">{column}</th>"));
    }
    out.push_str("</tr></thead>\n<tbody role=\"rowgroup\">\n");
    for row in rows {
        let (look, differs) = match (row.matched, row.expected == row.actual) {
            (true, _) => ("", ""),
            (false, true) => (" class=\"differs\"", "<b>not for the expected reason:</b> "),
            (false, false) => (" class=\"differs\"", "<b>not as expected:</b> "),
        };
        out.push_str(&format!(
            "<tr role=\"row\"{look}><th role=\"rowheader\" scope=\"row\">{}</th>\
             <td role=\"cell\" data-label=\"Asked\"><span>{} under {}</span></td>\
             <td role=\"cell\" data-label=\"Expected\">{}</td><td role=\"cell\" data-label=\"Actual\">{}</td>\
             <td role=\"cell\" data-label=\"Reason\"><span>{differs}{}</span></td></tr>\n",
            shown(&row.receiver),
            shown(&row.operation),
            shown(&row.policy),
            badge(row.expected),
            badge(row.actual),
            shown(&row.reason),
        ));
    }
    out.push_str("</tbody>\n</table>\n</div>\n</section>\n");
    out
}

fn timeline(events: &[Event<'_>]) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"timeline\">\n<h2 id=\"timeline\">Timeline</h2>\n\
         <p class=\"lead\">Every decision, in the order they were made.</p>\n<ol class=\"line\">\n",
    );
    let begun = events.first().map_or(0, |event| event.millis);
    for event in events {
        let decision = event.decision;
        out.push_str(&format!(
            "<li data-decision=\"{name}\"><span class=\"dot {name}\">{}</span>\n\
             <h3>{} <span class=\"who\">by {}</span> {}</h3>\n<p>{}</p>\n<p class=\"soft small\"><span class=\"whole\">{}</span> · {}</p>\n",
            sign(decision),
            shown(&event.step),
            shown(&event.actor),
            badge(decision),
            shown(&event.reason),
            since(event.millis - begun),
            time(event),
            name = decision.name(),
        ));
        if let Some(audit) = &event.audit {
            out.push_str(&told(audit, decision));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n</section>\n");
    out
}

/// What the program said, folded away.
fn told(audit: &Audit<'_>, decision: Decision) -> String {
    let mut out = String::new();
    if audit.disposition != decision {
        out.push_str(&format!(
            "<p class=\"small\">Decided otherwise by the actor: the program said <b>{}</b>.</p>\n",
            audit.disposition.name()
        ));
    }
    let reasons: Vec<String> = audit.reasons.iter().map(|reason| shown(reason)).collect();
    out.push_str(&format!(
        "<details>\n<summary>What the program said</summary>\n<div class=\"audit card\">\n<dl>\n\
         <dt>Operation</dt><dd>{}</dd>\n<dt>Disposition</dt><dd>{}</dd>\n<dt>Subject</dt><dd>{}</dd>\n\
         <dt>Reasons</dt><dd>{}</dd>\n</dl>\n<p>Policy</p>\n<pre>{}</pre>\n<p>Result</p>\n\
         <pre>{}</pre>\n</div>\n</details>\n",
        shown(&audit.operation),
        audit.disposition.name(),
        shown(&audit.subject),
        reasons.join("; "),
        code(audit.policy),
        code(audit.result),
    ));
    out
}

fn some(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
