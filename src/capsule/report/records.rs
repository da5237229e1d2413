//! The two files, read strictly.

use super::ReportError;
use crate::wire;
use crate::wire::json::{Json, Member};
use std::borrow::Cow;

/// What was decided about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Review,
    Block,
}

impl Decision {
    pub const ALL: [Decision; 3] = [Decision::Allow, Decision::Review, Decision::Block];

    pub fn name(self) -> &'static str {
        match self {
            Decision::Allow => "allow",
            Decision::Review => "review",
            Decision::Block => "block",
        }
    }
}

/// A line of `events.jsonl`.
#[derive(Debug)]
pub struct Event<'a> {
    pub time: Cow<'a, str>,
    /// The time, in milliseconds since 1970.
    pub millis: i64,
    pub step: Cow<'a, str>,
    pub actor: Cow<'a, str>,
    pub decision: Decision,
    pub reason: Cow<'a, str>,
    pub audit: Option<Audit<'a>>,
}

/// What the capsule program said.
#[derive(Debug)]
pub struct Audit<'a> {
    pub operation: Cow<'a, str>,
    pub disposition: Decision,
    pub subject: Cow<'a, str>,
    pub reasons: Vec<Cow<'a, str>>,
    pub policy: Json<'a>,
    pub result: Json<'a>,
}

/// `evaluation.json`.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub passed: bool,
    pub score: i64,
    pub checklist: Vec<Check<'a>>,
    pub matrix: Vec<Row<'a>>,
}

/// An item of the checklist.
#[derive(Debug)]
pub struct Check<'a> {
    pub check: Cow<'a, str>,
    pub passed: bool,
    pub detail: Cow<'a, str>,
}

/// A receiver in the policy matrix.
#[derive(Debug)]
pub struct Row<'a> {
    pub receiver: Cow<'a, str>,
    pub operation: Cow<'a, str>,
    pub policy: Cow<'a, str>,
    pub expected: Decision,
    pub actual: Decision,
    pub reason: Cow<'a, str>,
    pub matched: bool,
}

/// How many of the events decided so.
pub fn count(events: &[Event<'_>], decision: Decision) -> usize {
    events.iter().filter(|event| event.decision == decision).count()
}

/// Reads `events.jsonl`.
pub fn events(text: &str) -> Result<Vec<Event<'_>>, ReportError> {
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let source = Source { document: "events", text: line, first_line: index + 1 };
        if line.trim().is_empty() {
            return Err(source.error(line, "", "it is empty"));
        }
        all.push(event(source.parse()?)?);
    }
    match all.is_empty() {
        true => Err(Source { document: "events", text, first_line: 1 }.error(text, "", "there is no event")),
        false => Ok(all),
    }
}

fn event(mut fields: Object<'_>) -> Result<Event<'_>, ReportError> {
    fields.version()?;
    let (time, millis) = fields.time("time")?;
    let event = Event {
        time,
        millis,
        step: fields.name("step")?,
        actor: fields.name("actor")?,
        decision: fields.decision("decision")?,
        reason: fields.text("reason")?,
        audit: fields.optional_object("audit")?.map(audit).transpose()?,
    };
    fields.end()?;
    Ok(event)
}

fn audit(mut fields: Object<'_>) -> Result<Audit<'_>, ReportError> {
    fields.one_of("event_type", &["agent_capsule_audit"])?;
    fields.version()?;
    let reasons = fields.array("reasons")?;
    let audit = Audit {
        operation: fields.name("operation")?,
        disposition: fields.decision("disposition")?,
        subject: fields.text("subject")?,
        reasons: reasons
            .into_iter()
            .map(|(place, value)| fields.source.text(&place, value))
            .collect::<Result<_, _>>()?,
        policy: fields.object("policy")?.json,
        result: fields.object("result")?.json,
    };
    fields.end()?;
    Ok(audit)
}

/// Reads `evaluation.json`, which must agree with the events and with itself.
pub fn evaluation<'a>(text: &'a str, events: &[Event<'_>]) -> Result<Evaluation<'a>, ReportError> {
    let source = Source { document: "evaluation", text, first_line: 1 };
    let mut fields = source.parse()?;
    fields.version()?;
    let verdict = fields.take("verdict")?;
    let passed = source.one_of("verdict", verdict, &["pass", "fail"])? == "pass";
    let score_field = fields.take("score")?;
    let score = source.integer("score", score_field)?;
    if !(0..=100).contains(&score) {
        return Err(source.error(score_field.raw(), "score", &format!("it is {score}, not 0 to 100")));
    }
    let list = fields.take("checklist")?;
    let checklist =
        source.objects("checklist", list)?.into_iter().map(check).collect::<Result<Vec<_>, _>>()?;
    if checklist.is_empty() {
        return Err(source.error(list.raw(), "checklist", "it is empty"));
    }
    let rows = fields.take("policy_matrix")?;
    let matrix =
        source.objects("policy_matrix", rows)?.into_iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let mut counts = fields.object("counts")?;
    for decision in Decision::ALL {
        let value = counts.take(decision.name())?;
        let place = counts.place(decision.name());
        let (told, found) = (source.integer(&place, value)?, count(events, decision));
        if i64::try_from(found) != Ok(told) {
            let what = format!("it is {told}, but {found} events say {}", decision.name());
            return Err(source.error(value.raw(), &place, &what));
        }
    }
    counts.end()?;
    fields.end()?;

    let failed =
        checklist.iter().position(|check| !check.passed).map(|at| format!("checklist[{at}] is not passed"));
    let failed = failed.or_else(|| {
        matrix.iter().position(|row| !row.matched).map(|at| format!("policy_matrix[{at}] is not matched"))
    });
    let contradiction = match (passed, failed) {
        (true, Some(failed)) => format!("it is pass, but {failed}"),
        (false, None) => "it is fail, but every check passed and every receiver decided as expected".into(),
        _ => return Ok(Evaluation { passed, score, checklist, matrix }),
    };
    Err(source.error(verdict.raw(), "verdict", &contradiction))
}

fn check(mut fields: Object<'_>) -> Result<Check<'_>, ReportError> {
    let check = Check {
        check: fields.name("check")?,
        passed: fields.flag("passed")?,
        detail: fields.text("detail")?,
    };
    fields.end()?;
    Ok(check)
}

fn row(mut fields: Object<'_>) -> Result<Row<'_>, ReportError> {
    let matched = fields.take("matched")?;
    let place = fields.place("matched");
    let row = Row {
        receiver: fields.name("receiver")?,
        operation: fields.name("operation")?,
        policy: fields.name("policy")?,
        expected: fields.decision("expected")?,
        actual: fields.decision("actual")?,
        reason: fields.text("reason")?,
        matched: fields.source.flag(&place, matched)?,
    };
    fields.end()?;
    if row.matched && row.expected != row.actual {
        let what = format!("it is true, but {} was expected, not {}", row.expected.name(), row.actual.name());
        return Err(fields.source.error(matched.raw(), &place, &what));
    }
    Ok(row)
}

/// A text and where it stands in its file.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    document: &'static str,
    text: &'a str,
    first_line: usize,
}

/// An object whose members are taken one by one, so that what is left over at the end is unknown.
#[derive(Debug)]
struct Object<'a> {
    source: Source<'a>,
    place: String,
    json: Json<'a>,
    left: Vec<Member<'a>>,
}

impl<'a> Source<'a> {
    /// An error about `part`, a slice of the text.
    fn error(&self, part: &str, field: &str, what: &str) -> ReportError {
        let before = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        self.error_at(before, field, what)
    }

    fn error_at(&self, before: usize, field: &str, what: &str) -> ReportError {
        let head = self.text.as_bytes().get(..before).unwrap_or_default();
        let line = self.first_line + head.iter().filter(|byte| **byte == b'\n').count();
        ReportError { document: self.document, line, field: field.to_owned(), what: what.to_owned() }
    }

    fn parse(self) -> Result<Object<'a>, ReportError> {
        let json = wire::parse(self.text)
            .map_err(|why| self.error_at(why.at, "", &format!("it is not JSON: {why}")))?;
        self.as_object("", json)
    }

    fn wrong(&self, place: &str, value: Json<'_>, wanted: &str) -> ReportError {
        self.error(value.raw(), place, &format!("it is {}, not {wanted}", value.kind()))
    }

    fn as_object(self, place: &str, json: Json<'a>) -> Result<Object<'a>, ReportError> {
        if !json.is_object() {
            return Err(self.wrong(place, json, "an object"));
        }
        Ok(Object { source: self, place: place.to_owned(), json, left: json.members().collect() })
    }

    fn elements(&self, place: &str, json: Json<'a>) -> Result<Vec<(String, Json<'a>)>, ReportError> {
        if json.kind() != "an array" {
            return Err(self.wrong(place, json, "an array"));
        }
        Ok(json.elements().enumerate().map(|(index, value)| (format!("{place}[{index}]"), value)).collect())
    }

    fn objects(&self, place: &str, json: Json<'a>) -> Result<Vec<Object<'a>>, ReportError> {
        self.elements(place, json)?.into_iter().map(|(place, value)| self.as_object(&place, value)).collect()
    }

    fn text(&self, place: &str, value: Json<'a>) -> Result<Cow<'a, str>, ReportError> {
        value.as_str().ok_or_else(|| self.wrong(place, value, "a string"))
    }

    fn flag(&self, place: &str, value: Json<'a>) -> Result<bool, ReportError> {
        value.as_bool().ok_or_else(|| self.wrong(place, value, "true or false"))
    }

    fn integer(&self, place: &str, value: Json<'a>) -> Result<i64, ReportError> {
        value.as_i64().ok_or_else(|| match value.kind() {
            "a number" => {
                self.error(value.raw(), place, &format!("it is {}, not a whole number", value.raw()))
            }
            _ => self.wrong(place, value, "a number"),
        })
    }

    fn one_of(
        &self,
        place: &str,
        value: Json<'a>,
        wanted: &[&'static str],
    ) -> Result<&'static str, ReportError> {
        let text = self.text(place, value)?;
        wanted.iter().find(|one| **one == text).copied().ok_or_else(|| {
            let wanted = match wanted {
                [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
                _ => wanted.concat(),
            };
            self.error(value.raw(), place, &format!("it is {:?}, not {wanted}", clipped(&text)))
        })
    }
}

impl<'a> Object<'a> {
    fn place(&self, name: &str) -> String {
        if self.place.is_empty() {
            return name.to_owned();
        }
        format!("{}.{name}", self.place)
    }

    fn take_optional(&mut self, name: &str) -> Option<Json<'a>> {
        let at = self.left.iter().position(|member| member.key == name)?;
        Some(self.left.swap_remove(at).value)
    }

    fn take(&mut self, name: &str) -> Result<Json<'a>, ReportError> {
        self.take_optional(name)
            .ok_or_else(|| self.source.error(self.json.raw(), &self.place(name), "it is missing"))
    }

    fn text(&mut self, name: &str) -> Result<Cow<'a, str>, ReportError> {
        let value = self.take(name)?;
        self.source.text(&self.place(name), value)
    }

    /// A text that names something.
    fn name(&mut self, name: &str) -> Result<Cow<'a, str>, ReportError> {
        let value = self.take(name)?;
        let text = self.source.text(&self.place(name), value)?;
        match text.trim().is_empty() {
            true => Err(self.source.error(value.raw(), &self.place(name), "it is empty")),
            false => Ok(text),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool, ReportError> {
        let value = self.take(name)?;
        self.source.flag(&self.place(name), value)
    }

    fn one_of(&mut self, name: &str, wanted: &[&'static str]) -> Result<&'static str, ReportError> {
        let value = self.take(name)?;
        self.source.one_of(&self.place(name), value, wanted)
    }

    fn decision(&mut self, name: &str) -> Result<Decision, ReportError> {
        let told = self.one_of(name, &Decision::ALL.map(Decision::name))?;
        // `one_of` gave one of their names.
        Ok(Decision::ALL.into_iter().find(|decision| decision.name() == told).unwrap_or(Decision::Block))
    }

    fn version(&mut self) -> Result<(), ReportError> {
        let value = self.take("schema_version")?;
        match self.source.integer(&self.place("schema_version"), value)? {
            1 => Ok(()),
            other => Err(self.source.error(
                value.raw(),
                &self.place("schema_version"),
                &format!("it is {other}, not 1"),
            )),
        }
    }

    fn time(&mut self, name: &str) -> Result<(Cow<'a, str>, i64), ReportError> {
        let value = self.take(name)?;
        let text = self.source.text(&self.place(name), value)?;
        match millis(&text) {
            Some(millis) => Ok((text, millis)),
            None => {
                let what = format!("it is {:?}, not a time like 2026-05-09T00:00:00Z", clipped(&text));
                Err(self.source.error(value.raw(), &self.place(name), &what))
            }
        }
    }

    fn array(&mut self, name: &str) -> Result<Vec<(String, Json<'a>)>, ReportError> {
        let value = self.take(name)?;
        self.source.elements(&self.place(name), value)
    }

    fn object(&mut self, name: &str) -> Result<Object<'a>, ReportError> {
        let value = self.take(name)?;
        self.source.as_object(&self.place(name), value)
    }

    fn optional_object(&mut self, name: &str) -> Result<Option<Object<'a>>, ReportError> {
        let value = self.take_optional(name);
        value.map(|value| self.source.as_object(&self.place(name), value)).transpose()
    }

    /// Nothing may be left.
    fn end(&self) -> Result<(), ReportError> {
        match self.left.first() {
            Some(member) => {
                let place = self.place(clipped(&member.key));
                Err(self.source.error(member.value.raw(), &place, "it is unknown"))
            }
            None => Ok(()),
        }
    }
}

/// The head of a text, for an error.
fn clipped(text: &str) -> &str {
    crate::log::clipped(text, 80)
}

/// Milliseconds since 1970 of `2026-05-09T00:00:00Z`, also with a fraction of up to nine digits.
/// The day number is Howard Hinnant's `days_from_civil`.
fn millis(text: &str) -> Option<i64> {
    let (clock, fraction) = match text.strip_suffix('Z')?.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (text.strip_suffix('Z')?, None),
    };
    let bytes = clock.as_bytes();
    let shape = |(at, byte): (usize, &u8)| match at {
        4 | 7 => *byte == b'-',
        10 => *byte == b'T',
        13 | 16 => *byte == b':',
        _ => byte.is_ascii_digit(),
    };
    if bytes.len() != 19 || !bytes.iter().enumerate().all(shape) {
        return None;
    }
    let number = |from: usize, to: usize| clock.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let last = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let thousandths = match fraction {
        None => 0,
        Some(digits)
            if (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            format!("{digits:0<3}").get(..3)?.parse().ok()?
        }
        Some(_) => return None,
    };
    let from_march = year - i64::from(month <= 2);
    let era = from_march.div_euclid(400);
    let year_of_era = from_march.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + thousandths)
}

#[cfg(test)]
mod tests {
    use super::millis;

    #[test]
    fn times_are_read_as_they_are_written() {
        for seconds in [0, 951_782_399, 951_782_400, 1_778_284_800, 4_107_542_400, -1, -62_135_596_800] {
            assert_eq!(millis(&crate::clock::utc(seconds)), Some(seconds * 1000));
        }
        assert_eq!(millis("1970-01-01T00:00:00.05Z"), Some(50));
        assert_eq!(millis("1970-01-01T00:00:01.123456789Z"), Some(1123));
        for wrong in [
            "",
            "Z",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-02-30T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.1234567890Z",
            "1970-01-01T00:00:00.+1Z",
            "+970-01-01T00:00:00Z",
            "1970-01-01T00:00:00ZZ",
            "197\u{e9}-01-01T00:00:00Z",
        ] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }
}
