//! What is scheduled on a node: `schedule list`.

use super::agents::wait;
use super::args::Given;
use super::ask::ask;
use super::fault::Fault;
use super::{out, secrets};
use crate::clock;
use crate::wire::{self, Json};

/// `schedule list`.
pub fn run(given: &Given) -> Result<(), Fault> {
    match given.word(0)? {
        "list" => {}
        other => return Err(Fault::Usage(format!("schedule does list, not {other:?}"))),
    }
    let address = given.address(1)?;
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "list_schedules", "{}", wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    let schedules = wire::parse(result).map(|json| json.elements().collect::<Vec<_>>()).unwrap_or_default();
    if schedules.is_empty() {
        out::note(&format!("nothing is scheduled on {}", answer.node().unwrap_or("the node")));
        return Ok(());
    }
    let head = ["SCHEDULE", "AGENT", "WHEN", "NEXT", "FIRED", "SKIPPED", "FAILED", "LAST ERROR"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for schedule in schedules {
        let text = |name: &str| schedule.get(name).and_then(|value| value.as_str());
        let shown = |name: &str| text(name).map_or("-".to_owned(), |text| out::shown(&text));
        let number = |name: &str| schedule.get(name).map_or("-".to_owned(), |value| value.raw().to_owned());
        let next = time(schedule.get("next")).unwrap_or_else(|| "-".into());
        rows.push(vec![
            shown("id"),
            shown("agent_id"),
            when(schedule),
            next,
            number("fired"),
            number("skipped"),
            number("failed"),
            shown("last_error"),
        ]);
    }
    out::line(&out::table(&rows))
}

/// `every 2 s`, `daily 07:00`, `once`.
fn when(schedule: Json<'_>) -> String {
    let raw = |name: &str| schedule.get(name).map(|value| value.raw().to_owned());
    match (raw("every"), schedule.get("daily").and_then(|daily| daily.as_str())) {
        (Some(seconds), _) => format!("every {seconds} s"),
        (_, Some(daily)) => format!("daily {}", out::shown(&daily)),
        _ => "once".into(),
    }
}

fn time(at: Option<Json<'_>>) -> Option<String> {
    at?.raw().parse().ok().map(clock::utc)
}
