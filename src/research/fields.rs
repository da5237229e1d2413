//! JSON objects read strictly: each complaint names the field by its path, and unknown fields are refused.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use crate::wire::json::Json;

/// The fields of an object that were not asked for yet.
pub struct Fields<'a> {
    path: String,
    left: Vec<(Cow<'a, str>, Json<'a>)>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The fields of an object; `path` is where it stands, empty for the document.
    pub fn of(json: Json<'a>, path: &str) -> Result<Fields<'a>, String> {
        if !json.is_object() {
            let what = if path.is_empty() { "the document".to_owned() } else { format!("field {path}") };
            return Err(format!("{what} must be an object, not {}", json.kind()));
        }
        let left = json.members().map(|member| (member.key, member.value)).collect();
        Ok(Fields { path: path.to_owned(), left, known: Vec::new() })
    }

    /// The path of a field.
    pub fn path(&self, name: &str) -> String {
        match self.path.is_empty() {
            true => name.to_owned(),
            false => format!("{}.{name}", self.path),
        }
    }

    /// A complaint about a field.
    pub fn wrong<T>(&self, name: &str, what: &str) -> Result<T, String> {
        Err(format!("field {}: {what}", self.path(name)))
    }

    /// A field that may be missing; null is as good as that.
    pub fn maybe(&mut self, name: &'static str) -> Option<Json<'a>> {
        self.known.push(name);
        let at = self.left.iter().position(|(key, _)| key == name)?;
        let (_, value) = self.left.swap_remove(at);
        (value.raw() != "null").then_some(value)
    }

    /// A field that has to be there.
    pub fn needed(&mut self, name: &'static str) -> Result<Json<'a>, String> {
        match self.maybe(name) {
            Some(value) => Ok(value),
            None => self.wrong(name, "it is missing"),
        }
    }

    /// A string of 1 to 4096 bytes, if there is one.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, String> {
        let Some(value) = self.maybe(name) else { return Ok(None) };
        match value.as_str() {
            Some(text) if text.is_empty() => self.wrong(name, "it is empty"),
            Some(text) if text.len() > 4096 => self.wrong(name, "it is longer than 4096 bytes"),
            Some(text) => Ok(Some(text.into_owned())),
            None => self.wrong(name, &format!("it is {}, not a string", value.kind())),
        }
    }

    /// A string that has to be there.
    pub fn needed_text(&mut self, name: &'static str) -> Result<String, String> {
        match self.text(name)? {
            Some(text) => Ok(text),
            None => self.wrong(name, "it is missing"),
        }
    }

    /// A whole number within bounds, if there is one.
    pub fn whole(&mut self, name: &'static str, bounds: RangeInclusive<u64>) -> Result<Option<u64>, String> {
        let Some(value) = self.maybe(name) else { return Ok(None) };
        match value.raw().parse().ok().filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (least, most) = bounds.into_inner();
                self.wrong(
                    name,
                    &format!("it is {}, not a whole number from {least} to {most}", short(value)),
                )
            }
        }
    }

    /// A whole number that has to be there.
    pub fn needed_whole(&mut self, name: &'static str, bounds: RangeInclusive<u64>) -> Result<u64, String> {
        match self.whole(name, bounds)? {
            Some(number) => Ok(number),
            None => self.wrong(name, "it is missing"),
        }
    }

    /// A number within bounds, if there is one.
    pub fn number(&mut self, name: &'static str, bounds: RangeInclusive<f64>) -> Result<Option<f64>, String> {
        let Some(value) = self.maybe(name) else { return Ok(None) };
        // What the grammar calls a string parses as no number.
        match value.raw().parse().ok().filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => self.wrong(name, &format!("it is {}, not {}", short(value), allowed(&bounds))),
        }
    }

    /// `true` or `false`, if there is one.
    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, String> {
        let Some(value) = self.maybe(name) else { return Ok(None) };
        match value.as_bool() {
            Some(flag) => Ok(Some(flag)),
            None => self.wrong(name, &format!("it is {}, not true or false", value.kind())),
        }
    }

    /// An object, if there is one.
    pub fn object(&mut self, name: &'static str) -> Result<Option<Fields<'a>>, String> {
        let path = self.path(name);
        self.maybe(name).map(|value| Fields::of(value, &path)).transpose()
    }

    /// Refuses what was not asked for.
    pub fn end(self) -> Result<(), String> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(64).collect();
                self.wrong(&name, &format!("it is unknown; there are: {}", self.known.join(", ")))
            }
        }
    }
}

/// The numbers within bounds, in words: the ends of what can be stored are none that anybody meant.
fn allowed(bounds: &RangeInclusive<f64>) -> String {
    let shown = |number: f64| if number < 1e16 { number.to_string() } else { format!("{number:e}") };
    let (least, most) = (*bounds.start(), *bounds.end());
    let least = if least == f64::MIN_POSITIVE { "above 0".into() } else { format!("from {}", shown(least)) };
    match most {
        f64::MAX => format!("a finite number {least}"),
        most => format!("a number {least} to {}", shown(most)),
    }
}

/// A value as a complaint shows it.
fn short(value: Json<'_>) -> String {
    match value.kind() {
        "a number" => value.raw().chars().take(32).collect(),
        kind => kind.to_owned(),
    }
}
