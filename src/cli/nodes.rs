//! `describe`: what a node says about itself.

use super::agents::wait;
use super::args::Given;
use super::ask::ask;
use super::fault::Fault;
use super::{out, pretty, secrets};
use crate::wire::{self, Json, Value};

/// `describe`.
pub fn describe(given: &Given) -> Result<(), Fault> {
    let address = given.address(0)?;
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "describe_container", "{}", wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    match wire::parse(result) {
        Ok(told) if !given.flag("json") && told.is_object() => {
            let mut rows = Vec::new();
            for member in told.members() {
                add(&out::shown(&member.key), member.value, &mut rows);
            }
            out::line(&out::table(&rows))
        }
        _ => out::result(result, given.flag("json")),
    }
}

/// A line for each plain value; those of an object stand under its name.
fn add(name: &str, value: Json<'_>, rows: &mut Vec<Vec<String>>) {
    let text = match value.value() {
        Value::Object(members) => {
            for member in members {
                add(&format!("{name}.{}", out::shown(&member.key)), member.value, rows);
            }
            return;
        }
        Value::String(text) => out::shown(&text),
        Value::Null => "-".to_owned(),
        // Children: where they are is what `tree` is for.
        Value::Array(elements) => {
            let names: Vec<String> = elements.map(|element| short(element)).collect();
            if names.is_empty() {
                "-".to_owned()
            } else {
                names.join(", ")
            }
        }
        _ => value.raw().to_owned(),
    };
    rows.push(vec![name.to_owned(), text]);
}

fn short(element: Json<'_>) -> String {
    match element.get("name").and_then(|name| name.as_str().map(|name| out::shown(&name))) {
        Some(name) => name,
        None => pretty::flat(element, out::speaks_utf8()),
    }
}
