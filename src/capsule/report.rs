//! The report of a handoff: its recorded decisions as one page for people.
//!
//! [`render`] takes the two files that a handoff leaves (`examples/handoff/` makes them) and gives one
//! HTML document that needs nothing else: no script, and no style, font or image from anywhere. Whatever
//! the files say is shown as text, with a mark in place of each character that a reader would not see or
//! that would turn the line around.
//!
//! # `events.jsonl`
//!
//! One JSON object a line, one line a decision, in the order they were made.
//!
//! | field | type | what |
//! |---|---|---|
//! | `schema_version` | integer | 1 |
//! | `time` | string | UTC: `2026-05-09T00:00:00Z`, or with up to nine digits of a second |
//! | `step` | string | what was decided about: `keys`, `scan`, `verify`, … |
//! | `actor` | string | who decided |
//! | `decision` | string | `allow`, `review` or `block` |
//! | `reason` | string | why, for people |
//! | `audit` | object, optional | the event that the capsule program printed with `--audit-json` |
//!
//! # `evaluation.json`
//!
//! | field | type | what |
//! |---|---|---|
//! | `schema_version` | integer | 1 |
//! | `verdict` | string | `pass`, if every check passed and every receiver decided as expected; else `fail` |
//! | `score` | integer | 0 to 100 |
//! | `checklist` | array of objects | `check` (what should be so), `passed` (boolean), `detail`; at least one |
//! | `counts` | object | how many events decided `allow`, `review`, `block` |
//! | `policy_matrix` | array of objects | `receiver`, `operation`, `policy`, `expected` and `actual` (decisions), `reason`, `matched` (boolean: as expected, for the expected reason) |
//!
//! Strings that name something are not empty. A field that is missing, unknown, of another type or null
//! is an error, and so is an evaluation that contradicts the events or itself: the page must not say
//! `pass` above a check that failed.
//!
//! # An example
//!
//! ```
//! use agentcontainer::capsule::report::render;
//!
//! let event = r#"{"schema_version":1,"time":"2026-05-09T00:00:00Z","step":"verify","actor":"agent-b",
//!     "decision":"allow","reason":"key trusted by <b>local</b> registry"}"#.replace('\n', "");
//! let page = render(&event, None)?;
//! assert!(page.starts_with("<!DOCTYPE html>"));
//! assert!(page.contains("key trusted by &lt;b&gt;local&lt;/b&gt; registry"));
//!
//! let refused = render(&event.replace("allow", "maybe"), None).unwrap_err();
//! assert_eq!(refused.to_string(), r#"events, line 1, field decision: it is "maybe", not allow, review or block"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod page;
mod records;
pub(crate) mod text;

use std::fmt;

/// What is wrong with one of the two files, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportError {
    /// `events` or `evaluation`.
    pub document: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// The field, as a path: `audit.reasons[0]`; empty if it is about the line as a whole.
    pub field: String,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.document, self.line)?;
        if !self.field.is_empty() {
            write!(f, ", field {}", crate::log::escape(&self.field))?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for ReportError {}

/// The page for the text of `events.jsonl` and, if there is one, of `evaluation.json`.
///
/// # Errors
/// The first thing in either text that is not as the tables above say.
pub fn render(events: &str, evaluation: Option<&str>) -> Result<String, ReportError> {
    let events = records::events(events)?;
    let evaluation = evaluation.map(|text| records::evaluation(text, &events)).transpose()?;
    Ok(page::page(&events, evaluation.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"schema_version":1,"time":"2026-05-09T00:00:00.250Z","step":"scan","actor":"agent-b","decision":"review","reason":"dense","audit":{"event_type":"agent_capsule_audit","schema_version":1,"operation":"scan","disposition":"review","subject":"m.txt","policy":{},"reasons":["dense"],"result":{}}}"#;
    const EVALUATION: &str = r#"{
  "schema_version": 1,
  "verdict": "pass",
  "score": 100,
  "checklist": [{"check": "signed", "passed": true, "detail": "ok"}],
  "counts": {"allow": 0, "review": 1, "block": 0},
  "policy_matrix": [
    {"receiver": "strict", "operation": "verify", "policy": "strict", "expected": "block", "actual": "block",
     "reason": "unsigned", "matched": true}
  ]
}"#;

    fn refused(events: &str, evaluation: Option<&str>) -> String {
        render(events, evaluation).expect_err("it was rendered").to_string()
    }

    #[test]
    fn an_event_that_is_not_as_it_should_be_is_named_by_line_and_field() {
        for (from, to, error) in [
            ("\"step\":\"scan\",", "", "events, line 2, field step: it is missing"),
            ("\"step\":\"scan\"", "\"step\":\"\"", "events, line 2, field step: it is empty"),
            ("\"step\":\"scan\"", "\"step\":7", "events, line 2, field step: it is a number, not a string"),
            ("\"actor\":\"agent-b\"", "\"actor\":null", "field actor: it is null, not a string"),
            ("\"step\":", "\"more\":1,\"step\":", "events, line 2, field more: it is unknown"),
            ("\"step\":", "\"\\u202e\":1,\"step\":", r"field \u{202e}: it is unknown"),
            ("\"actor\"", "\"step\":\"x\",\"actor\"", "events, line 2: it is not JSON: "),
            ("{\"schema_version\":1", "{\"schema_version\":2", "field schema_version: it is 2, not 1"),
            (".250Z", "+02:00", "field time: it is \"2026-05-09T00:00:00+02:00\", not a time like"),
            ("-05-09", "-02-29", "field time: it is \"2026-02-29T"),
            ("\"operation\":\"scan\"", "\"operation\":[]", "field audit.operation: it is an array, not a"),
            ("[\"dense\"]", "[\"dense\",7]", "field audit.reasons[1]: it is a number, not a string"),
            ("\"disposition\":\"review\"", "\"disposition\":\"ok\"", "field audit.disposition: it is \"ok\""),
            ("agent_capsule_audit", "other", "field audit.event_type: it is \"other\", not agent_capsule"),
            (",\"result\":{}", "", "events, line 2, field audit.result: it is missing"),
        ] {
            assert!(EVENT.contains(from), "{from}");
            let second = EVENT.replacen(from, to, 1);
            let said = refused(&format!("{EVENT}\n{second}\n"), None);
            assert!(said.contains(error), "{error:?} is not in {said:?}");
        }
        assert_eq!(refused("", None), "events, line 1: there is no event");
        assert_eq!(refused(&format!("{EVENT}\n\n{EVENT}\n"), None), "events, line 2: it is empty");
        assert_eq!(refused("[]", None), "events, line 1: it is an array, not an object");
        assert!(refused("\u{feff}{}", None).starts_with("events, line 1: it is not JSON: "));
    }

    #[test]
    fn an_evaluation_that_is_wrong_or_contradicts_itself_or_the_events_is_refused() {
        assert!(render(EVENT, Some(EVALUATION)).is_ok());
        for (from, to, error) in [
            ("\"score\": 100", "\"score\": 101", "evaluation, line 4, field score: it is 101, not 0 to 100"),
            ("\"score\": 100", "\"score\": 1e2", "line 4, field score: it is 1e2, not a whole number"),
            ("\"score\": 100,", "", "evaluation, line 1, field score: it is missing"),
            ("\"pass\"", "\"good\"", "line 3, field verdict: it is \"good\", not pass or fail"),
            (
                "true, \"detail\"",
                "false, \"detail\"",
                "line 3, field verdict: it is pass, but checklist[0] is",
            ),
            (
                "\"matched\": true",
                "\"matched\": false",
                "field verdict: it is pass, but policy_matrix[0] is not",
            ),
            ("\"pass\"", "\"fail\"", "field verdict: it is fail, but every check passed and every receiver"),
            (
                "\"actual\": \"block\"",
                "\"actual\": \"allow\"",
                "line 9, field policy_matrix[0].matched: it is true",
            ),
            (
                "\"actual\": \"block\"",
                "\"actual\": \"none\"",
                "line 8, field policy_matrix[0].actual: it is \"none\"",
            ),
            (
                "\"review\": 1",
                "\"review\": 2",
                "line 6, field counts.review: it is 2, but 1 events say review",
            ),
            (
                "[{\"check\": \"signed\", \"passed\": true, \"detail\": \"ok\"}]",
                "[]",
                "field checklist: it is empty",
            ),
            ("\"ok\"", "ok", "evaluation, line 5: it is not JSON: "),
        ] {
            assert!(EVALUATION.contains(from), "{from}");
            let said = refused(EVENT, Some(&EVALUATION.replacen(from, to, 1)));
            assert!(said.contains(error), "{error:?} is not in {said:?}");
        }
    }

    #[test]
    fn a_page_loads_and_runs_nothing_whatever_the_files_say() {
        let hostile =
            r#"</code></pre></style><script>alert(1)</script><img src=x onerror='a'>\" & \u202e\u0000\u200b"#;
        let event = EVENT
            .replace("dense", hostile)
            .replace("\"scan\"", &format!("\"{hostile}\""))
            .replace("agent-b", hostile)
            .replace("m.txt", hostile)
            .replace("\"result\":{}", &format!("\"result\":{{\"{hostile}\":[\"{hostile}\",{{}},[]]}}"));
        let evaluation = EVALUATION
            .replace("\"signed\"", &format!("\"{hostile}\""))
            .replace("\"ok\"", &format!("\"{hostile}\""))
            .replace("\"unsigned\"", &format!("\"{hostile}\""))
            .replace("\"verify\"", &format!("\"{hostile}\""))
            .replace("\"strict\"", &format!("\"{hostile}\""));
        let page = render(&event, Some(&evaluation)).unwrap();
        for never in
            ["<script", "<img", "</code></pre></style>", "\u{202e}", "\u{200b}", "\0", "src=\"", "@import"]
        {
            assert!(!page.contains(never), "{never:?}");
        }
        assert_eq!(page.matches("<style>").count(), 1);
        assert_eq!(page.matches("</style>").count(), 1);
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(page.contains("<span class=\"odd\">U+202E</span><span class=\"odd\">U+0000</span>"));
        assert!(page.contains(r"&#39;a&#39;&gt;&quot; &amp; "));
        // Every address in the page is one within it.
        for address in page.split("href=\"").skip(1) {
            assert!(address.starts_with('#'), "{}", &address[..20]);
        }
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("url("));
    }

    #[test]
    fn a_decision_that_differs_from_the_audit_event_is_pointed_out() {
        let decided = EVENT.replace("\"decision\":\"review\"", "\"decision\":\"allow\"");
        assert!(render(&decided, None).unwrap().contains("the program said <b>review</b>"));
        assert!(!render(EVENT, None).unwrap().contains("Decided otherwise"));
    }
}
