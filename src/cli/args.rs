//! The command line: read by a table that also makes the help, so that the two cannot disagree.

use super::fault::Fault;
use super::tls;
use crate::node::config::nearest;
use crate::wire::{self, Address};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest JSON that is taken from a file or from standard input, bytes.
const JSON_BYTES: u64 = 128 << 20;

/// The longest time that can be asked for, seconds; some thirty years.
const MOST_SECONDS: f64 = 1e9;

/// A command, as its help describes it and the parser reads it.
pub struct Command {
    /// What it is called.
    pub name: &'static str,
    /// What it does, on one line.
    pub summary: &'static str,
    /// Its words, in order; one in brackets may be left out.
    pub words: &'static [&'static str],
    /// Its options, in groups that commands share.
    pub options: &'static [&'static [Opt]],
    /// What else there is to know.
    pub notes: &'static str,
    /// One that works.
    pub example: &'static str,
    /// Does it.
    pub run: fn(&Given) -> Result<(), Fault>,
}

/// An option of a command.
pub struct Opt {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What its value is called; `None`: it has none.
    pub value: Option<&'static str>,
    /// Whether it may be given several times.
    pub many: bool,
    /// What it does; empty: it is none of a user's, and the help does not show it.
    pub help: &'static str,
}

/// An option with a value.
pub const fn opt(name: &'static str, value: &'static str, help: &'static str) -> Opt {
    Opt { name, value: Some(value), many: false, help }
}

/// An option without one.
pub const fn flag(name: &'static str, help: &'static str) -> Opt {
    Opt { name, value: None, many: false, help }
}

/// What was given to a command.
pub struct Given {
    words: Vec<OsString>,
    options: Vec<(&'static str, OsString)>,
    command: &'static Command,
    stdin_read: AtomicBool,
}

/// What a command line asks for.
pub enum Wish {
    /// To do it.
    Do(Given),
    /// To explain it.
    Help,
}

impl Command {
    /// Every option.
    pub fn all_options(&self) -> impl Iterator<Item = &'static Opt> {
        self.options.iter().flat_map(|group| group.iter())
    }

    /// Every option that is a user's to give.
    pub fn shown_options(&self) -> impl Iterator<Item = &'static Opt> {
        self.all_options().filter(|option| !option.help.is_empty())
    }

    /// Reads its arguments.
    ///
    /// # Errors
    /// `Usage`: the option that is unknown (and the nearest), given twice or without its value; the
    /// word that is missing or too much.
    pub fn read(&'static self, arguments: Vec<OsString>) -> Result<Wish, Fault> {
        let mut parser = lexopt::Parser::from_args(arguments);
        let mut given = Given {
            words: Vec::new(),
            options: Vec::new(),
            command: self,
            stdin_read: AtomicBool::new(false),
        };
        loop {
            let name = match parser.next().map_err(wrong)? {
                None => break,
                Some(lexopt::Arg::Value(word)) => {
                    given.words.push(word);
                    continue;
                }
                Some(lexopt::Arg::Short('h')) => return Ok(Wish::Help),
                Some(lexopt::Arg::Short(letter)) => {
                    let name = letter.to_string();
                    if self.all_options().all(|option| option.name != name) {
                        return Err(Fault::Usage(format!("there is no option -{letter}")));
                    }
                    name
                }
                Some(lexopt::Arg::Long("help")) => return Ok(Wish::Help),
                Some(lexopt::Arg::Long(name)) => name.to_owned(),
            };
            let option = self.all_options().find(|option| option.name == name);
            let dashed = dashed(&name);
            let option = option.ok_or_else(|| {
                let hint = match nearest(&name, self.shown_options().map(|option| option.name)) {
                    Some(near) => format!("; the nearest is --{near}"),
                    None => String::new(), // whoever is told is pointed to --help anyway
                };
                Fault::Usage(format!("{} has no option --{name}{hint}", self.name))
            })?;
            if !option.many && given.flag(option.name) {
                return Err(Fault::Usage(format!("{dashed} is given twice")));
            }
            let value = match option.value {
                Some(what) => {
                    parser.value().map_err(|_| Fault::Usage(format!("{dashed} needs a value: {what}")))?
                }
                None => OsString::new(),
            };
            if option.value.is_some() && value.is_empty() {
                return Err(Fault::Usage(format!("{dashed} is empty")));
            }
            given.options.push((option.name, value));
        }
        if let Some(surplus) = given.words.get(self.words.len()) {
            let text = format!("{} takes no further word, but {surplus:?} was given", self.name);
            return Err(Fault::Usage(text));
        }
        let missing = self.words.iter().skip(given.words.len()).find(|word| !word.starts_with('['));
        match missing {
            Some(word) => Err(Fault::Usage(format!("{word} is missing: {}", self.usage()))),
            None => Ok(Wish::Do(given)),
        }
    }

    /// `agentcontainer NAME WORD… [OPTION]…`
    pub fn usage(&self) -> String {
        let mut usage = format!("agentcontainer {}", self.name);
        for word in self.words {
            usage.push(' ');
            usage.push_str(word);
        }
        if self.all_options().next().is_some() {
            usage.push_str(" [OPTION]…");
        }
        usage
    }
}

/// An option as it is typed: one of a single letter has one dash.
pub fn dashed(name: &str) -> String {
    match name.len() {
        1 => format!("-{name}"),
        _ => format!("--{name}"),
    }
}

fn wrong(error: lexopt::Error) -> Fault {
    Fault::Usage(error.to_string())
}

impl Given {
    /// Whether the option was given.
    pub fn flag(&self, name: &str) -> bool {
        self.options.iter().any(|(given, _)| *given == name)
    }

    /// The options that were given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.options.iter().map(|(name, _)| *name)
    }

    /// The option's value, a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.value(name).map(PathBuf::from)
    }

    /// The option's value, a text.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Fault> {
        self.value(name).map(|value| utf8(&format!("--{name}"), value)).transpose()
    }

    /// A word, which a text is.
    ///
    /// # Errors
    /// It is not UTF-8, or was left out.
    pub fn word(&self, index: usize) -> Result<&str, Fault> {
        let what = self.command.words.get(index).copied().unwrap_or("a word");
        match self.words.get(index) {
            Some(word) => utf8(what, word),
            None => Err(Fault::Usage(format!("{what} is missing"))),
        }
    }

    /// A word, which a path is.
    ///
    /// # Errors
    /// It was left out.
    pub fn word_path(&self, index: usize) -> Result<PathBuf, Fault> {
        self.words.get(index).map(PathBuf::from).ok_or_else(|| Fault::Usage("a file is missing".into()))
    }

    /// Whether that many words were given, and one more.
    pub fn has_word(&self, index: usize) -> bool {
        self.words.len() > index
    }

    /// A word, which the address of a node is, and how it is spoken to.
    ///
    /// # Errors
    /// What is wrong with it, or with the options about TLS.
    pub fn address(&self, index: usize) -> Result<Address, Fault> {
        let address = self.word(index)?.parse();
        tls::to(self, address.map_err(|why: wire::AddressError| Fault::Usage(why.to_string()))?)
    }

    /// The option's value, a positive number of seconds.
    ///
    /// # Errors
    /// It is none.
    pub fn seconds(&self, name: &str) -> Result<Option<f64>, Fault> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let seconds = text.parse::<f64>().ok().filter(|seconds| {
            *seconds > 0.0 && seconds.is_finite() && Duration::try_from_secs_f64(*seconds).is_ok()
        });
        match seconds {
            Some(seconds) => Ok(Some(seconds)),
            None => Err(Fault::Usage(format!("--{name} needs a positive number of seconds, not {text:?}"))),
        }
    }

    /// The option's value, a time as `30s`, `10m` or `2h`.
    ///
    /// # Errors
    /// It is none, or longer than some thirty years.
    pub fn span(&self, name: &str) -> Result<Option<Duration>, Fault> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let unit = |text: &str| match text.chars().last()? {
            's' => Some(1.0),
            'm' => Some(60.0),
            'h' => Some(3600.0),
            _ => None,
        };
        let seconds = unit(text).and_then(|unit| Some(text[..text.len() - 1].parse::<f64>().ok()? * unit));
        match seconds.filter(|seconds| *seconds > 0.0 && *seconds <= MOST_SECONDS) {
            Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
            None => Err(Fault::Usage(format!("--{name} needs a time such as 30s, 10m or 2h, not {text:?}"))),
        }
    }

    /// The option's value, JSON: as it stands, `@FILE`, or `-` for standard input.
    ///
    /// # Errors
    /// It can't be read, or is not JSON; names the option and what is wrong.
    pub fn json(&self, name: &str) -> Result<Option<String>, Fault> {
        self.value(name).map(|value| self.read_json(name, value)).transpose()
    }

    /// The same, an object.
    ///
    /// # Errors
    /// As [`Given::json`], and for anything but an object.
    pub fn json_object(&self, name: &str) -> Result<Option<String>, Fault> {
        let text = self.json(name)?;
        if let Some(Ok(json)) = text.as_deref().map(wire::parse) {
            if !json.is_object() {
                return Err(Fault::Usage(format!("--{name} must be an object, {{…}}, not {}", json.kind())));
            }
        }
        Ok(text)
    }

    /// All values of an option that may be repeated, JSON.
    ///
    /// # Errors
    /// As [`Given::json`].
    pub fn all_json(&self, name: &str) -> Result<Vec<String>, Fault> {
        let values = self.options.iter().filter(|(given, _)| *given == name);
        values.map(|(_, value)| self.read_json(name, value)).collect()
    }

    /// All values of an option that may be repeated, texts.
    ///
    /// # Errors
    /// One is not UTF-8.
    pub fn all_text(&self, name: &str) -> Result<Vec<&str>, Fault> {
        let values = self.options.iter().filter(|(given, _)| *given == name);
        values.map(|(_, value)| utf8(&dashed(name), value)).collect()
    }

    fn value(&self, name: &str) -> Option<&OsStr> {
        self.options.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_os_str())
    }

    fn read_json(&self, name: &str, value: &OsStr) -> Result<String, Fault> {
        let value = utf8(&format!("--{name}"), value)?;
        let text = if value == "-" {
            if self.stdin_read.swap(true, Ordering::Relaxed) {
                return Err(Fault::Usage(format!("--{name} -: standard input was read already")));
            }
            bounded(std::io::stdin().lock())
                .map_err(|error| Fault::Local(format!("--{name}: reading standard input: {error}")))?
        } else if value == "@" {
            return Err(Fault::Usage(format!("--{name} @: the name of the file is missing, @FILE")));
        } else if let Some(file) = value.strip_prefix('@') {
            std::fs::File::open(file)
                .and_then(bounded)
                .map_err(|error| Fault::Local(format!("--{name}: reading {file}: {error}")))?
        } else {
            value.to_owned()
        };
        match wire::parse(&text) {
            Ok(_) => Ok(text),
            Err(why) => {
                let bare = value.starts_with(|c: char| c.is_alphabetic());
                let hint = if bare { "; a text has quotes of its own: '\"text\"'" } else { "" };
                Err(Fault::Usage(format!("--{name} is not JSON: {why}{hint}")))
            }
        }
    }
}

fn utf8<'a>(what: &str, value: &'a OsStr) -> Result<&'a str, Fault> {
    value.to_str().ok_or_else(|| Fault::Usage(format!("{what} is not UTF-8: {value:?}")))
}

fn bounded(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    let length = source.take(JSON_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > JSON_BYTES {
        return Err(std::io::Error::other(format!("more than {JSON_BYTES} bytes")));
    }
    Ok(text)
}
