//! For scripts that were written for another program. One table of options a command: it is what is parsed, what is explained, and what is asked.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use lexopt::{Arg, Parser};

/// A command's words.
#[derive(Debug)]
pub(in crate::cli) struct Command {
    /// `verify`, `keys generate`.
    pub(in crate::cli) name: &'static str,
    /// One line about it.
    pub(in crate::cli) about: &'static str,
    /// Its argument, if it has one; it may have several if the name ends with `…`.
    pub(in crate::cli) operand: Option<&'static str>,
    /// Its options.
    pub(in crate::cli) flags: &'static [Flag],
}

/// An option.
#[derive(Debug)]
pub(in crate::cli) struct Flag {
    pub(in crate::cli) name: &'static str,
    /// What its value is called; empty for a switch.
    pub(in crate::cli) value: &'static str,
    pub(in crate::cli) required: bool,
    pub(in crate::cli) help: &'static str,
}

impl Flag {
    /// Whether its value is a path, which is never empty.
    fn names_a_file(&self) -> bool {
        matches!(self.value, "FILE" | "DIR")
    }
}

/// An option with a value.
pub(in crate::cli) const fn option(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, value, required: false, help }
}

/// An option that has to be given.
pub(in crate::cli) const fn required(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, value, required: true, help }
}

/// An option without a value.
pub(in crate::cli) const fn switch(name: &'static str, help: &'static str) -> Flag {
    Flag { name, value: "", required: false, help }
}

/// What was given.
#[derive(Debug, Default)]
pub(in crate::cli) struct Given {
    operand: OsString,
    more_operands: Vec<OsString>,
    values: Vec<(&'static str, OsString)>,
}

impl Given {
    /// The command's argument.
    pub(in crate::cli) fn operand(&self) -> &Path {
        Path::new(&self.operand)
    }

    /// All of them, where there may be several.
    pub(in crate::cli) fn operands(&self) -> Vec<&Path> {
        std::iter::once(&self.operand).chain(&self.more_operands).map(Path::new).collect()
    }

    /// The command's argument, as reports name it.
    pub(in crate::cli) fn subject(&self) -> String {
        self.operand.to_string_lossy().into_owned()
    }

    /// Whether an option was given.
    pub(in crate::cli) fn has(&self, name: &str) -> bool {
        self.values.iter().any(|(given, _)| *given == name)
    }

    /// The value of an option as a path; the last one counts.
    pub(in crate::cli) fn path(&self, name: &str) -> Option<PathBuf> {
        self.raw(name).map(PathBuf::from)
    }

    /// The value of an option that has to be given, as a path.
    pub(in crate::cli) fn needed(&self, name: &str) -> PathBuf {
        self.path(name).unwrap_or_default()
    }

    /// The value of an option.
    pub(in crate::cli) fn raw(&self, name: &str) -> Option<&OsString> {
        self.values.iter().rev().find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    /// The value of an option as text.
    pub(in crate::cli) fn text(&self, name: &str) -> Result<Option<String>, String> {
        self.raw(name).map(|value| utf8(name, value)).transpose()
    }

    /// The values of an option that may be given again and again.
    pub(in crate::cli) fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let values = self.values.iter().filter(|(given, _)| *given == name);
        values.map(|(_, value)| utf8(name, value)).collect()
    }

    /// The value of an option, one of a few.
    pub(in crate::cli) fn choice(&self, name: &str, choices: &[&str]) -> Result<Option<String>, String> {
        match self.text(name)? {
            Some(value) if !choices.contains(&&*value) => {
                Err(format!("--{name} is one of {}, and not {value:?}", choices.join(", ")))
            }
            value => Ok(value),
        }
    }
}

fn utf8(name: &str, value: &OsString) -> Result<String, String> {
    value.to_str().map(String::from).ok_or_else(|| format!("the value of --{name} is not UTF-8"))
}

/// Reads the arguments; nothing if help is wanted. Options may be shortened as long as they are clear.
pub(in crate::cli) fn parse(
    command: &'static Command,
    args: impl Iterator<Item = OsString>,
) -> Result<Option<Given>, String> {
    let wrong = |what: String| format!("{}: {what}", command.name);
    let mut parser = Parser::from_args(args);
    let mut given = Given::default();
    let mut operand = None;
    while let Some(arg) = parser.next().map_err(|error| wrong(error.to_string()))? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            Arg::Long(name) => {
                let flag = flag(command, name).map_err(wrong)?;
                let value = if flag.value.is_empty() {
                    OsString::new()
                } else {
                    value(&mut parser, flag).map_err(wrong)?
                };
                if flag.names_a_file() && value.is_empty() {
                    return Err(wrong(format!("--{} {} is empty", flag.name, flag.value)));
                }
                given.values.push((flag.name, value));
            }
            Arg::Value(value) if operand.is_none() && command.operand.is_some() => operand = Some(value),
            Arg::Value(value) if command.operand.is_some_and(|name| name.ends_with('…')) => {
                given.more_operands.push(value);
            }
            other => return Err(wrong(other.unexpected().to_string())),
        }
    }
    if let Some(name) = command.operand {
        given.operand = operand.ok_or_else(|| wrong(format!("{name} is missing")))?;
        if given.operands().iter().any(|operand| operand.as_os_str().is_empty()) {
            return Err(wrong(format!("{name} is empty")));
        }
    }
    let missing = command.flags.iter().find(|flag| flag.required && !given.has(flag.name));
    match missing {
        Some(flag) => Err(wrong(format!("--{} {} is missing", flag.name, flag.value))),
        None => Ok(Some(given)),
    }
}

/// The value of an option. What looks like another option is none, unless it is joined with `=`: a value
/// that was forgotten must not swallow what follows.
fn value(parser: &mut Parser, flag: &Flag) -> Result<OsString, String> {
    if let Some(value) = parser.optional_value() {
        return Ok(value);
    }
    let option = parser.raw_args().ok().and_then(|next| next.peek().map(OsStr::to_os_string));
    if let Some(option) = option.filter(|option| looks_like_an_option(option)) {
        let (name, option) = (flag.name, option.to_string_lossy());
        return Err(format!(
            "missing argument for option '--{name}', before {option} (--{name}={option} if it is meant)"
        ));
    }
    parser.value().map_err(|error| error.to_string())
}

/// A hyphen and more, and no negative number.
fn looks_like_an_option(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    word.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && rest.parse::<f64>().is_err())
}

/// An option that the reference lacks: it must not make an abbreviation ambiguous that is none there.
const OURS_ALONE: &str = "created-at";

fn flag(command: &'static Command, name: &str) -> Result<&'static Flag, String> {
    if let Some(flag) = command.flags.iter().find(|flag| flag.name == name) {
        return Ok(flag);
    }
    let similar: Vec<&Flag> =
        command.flags.iter().filter(|flag| flag.name.starts_with(name) && flag.name != OURS_ALONE).collect();
    match similar[..] {
        [flag] => Ok(flag),
        [] => Err(format!("there is no option --{name}")),
        _ => {
            let names: Vec<_> = similar.iter().map(|flag| format!("--{}", flag.name)).collect();
            Err(format!("--{name} may be {}", names.join(" or ")))
        }
    }
}

/// The command explained; `program` is what was typed before its name.
pub(in crate::cli) fn help(program: &str, command: &Command) -> String {
    let mut usage = format!("usage: {program} {}", command.name);
    for flag in command.flags.iter().filter(|flag| flag.required) {
        usage.push_str(&format!(" --{} {}", flag.name, flag.value));
    }
    usage.push_str(" [options]");
    if let Some(operand) = command.operand {
        usage.push_str(&format!(" {operand}"));
    }
    let mut text = format!("{usage}\n\n{}\n", command.about);
    if !command.flags.is_empty() {
        text.push_str("\noptions:\n");
    }
    for flag in command.flags {
        let left = format!("--{} {}", flag.name, flag.value);
        text.push_str(&format!("  {left:<42} {}\n", flag.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    static COMMAND: Command = Command {
        name: "try",
        about: "",
        operand: Some("FILE"),
        flags: &[
            required("out", "FILE", ""),
            option("key-env", "VAR", ""),
            option("key-id", "ID", ""),
            switch("json", ""),
        ],
    };

    fn given(words: &[&str]) -> Result<Option<Given>, String> {
        parse(&COMMAND, words.iter().map(OsString::from))
    }

    #[test]
    fn options_stand_anywhere_and_the_last_of_a_kind_counts() {
        let given = given(&["--out=a", "--js", "f", "--out", "b", "--key-id", "x", "--key-id", "-"])
            .unwrap()
            .unwrap();
        assert_eq!((given.operand(), given.needed("out")), (Path::new("f"), "b".into()));
        assert!(given.has("json") && !given.has("key-env"));
        assert_eq!(given.texts("key-id").unwrap(), ["x", "-"]);
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for (words, what) in [
            (&["--out", "x"][..], "try: FILE is missing"),
            (&["f"], "try: --out FILE is missing"),
            (&["f", "--out"], "try: missing argument for option '--out'"),
            (&["f", "--key", "x"], "try: --key may be --key-env or --key-id"),
            (&["f", "--bogus"], "try: there is no option --bogus"),
            (&["f", "g"], "try: unexpected argument \"g\""),
            (&["f", "--out", ""], "try: --out FILE is empty"),
            (&["f", "--out="], "try: --out FILE is empty"),
            (&["", "--out", "x"], "try: FILE is empty"),
        ] {
            assert_eq!(given(words).unwrap_err(), what);
        }
        assert!(given(&["-h"]).unwrap().is_none());
    }

    #[test]
    fn an_option_is_no_value_of_another() {
        for words in [&["f", "--out", "--json"][..], &["f", "--out", "-x"], &["--out", "--", "f"]] {
            let why = given(words).unwrap_err();
            assert!(why.starts_with("try: missing argument for option '--out', before -"), "{why}");
        }
        for (words, value) in [(&["f", "--out=--json"][..], "--json"), (&["f", "--out", "-"], "-")] {
            assert_eq!(given(words).unwrap().unwrap().needed("out"), Path::new(value));
        }
        assert_eq!(given(&["f", "--out", "-1.5"]).unwrap().unwrap().needed("out"), Path::new("-1.5"));
    }
}
