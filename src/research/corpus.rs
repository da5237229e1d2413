//! Small corpora made of sentence patterns, inside the vocabulary: the same seed gives the same text everywhere.

use std::io::{self, Write};

use crate::carrier::chance::Chance;

/// How many lines a corpus has at most.
pub const MAX_LINES: u64 = 10_000_000;

/// What the sentences are about. In a pattern `@` stands for who, `&` for a thing, `%` for a place, `#` for a number.
struct Domain {
    name: &'static str,
    patterns: &'static [&'static str],
    who: &'static [&'static str],
    things: &'static [&'static str],
    places: &'static [&'static str],
}

/// All of them by turns.
const MIXED: &str = "mixed";

const DOMAINS: [Domain; 5] = [
    Domain {
        name: "harbour",
        patterns: &[
            "@ tied the & to the quay at %.",
            "At # minutes past the hour @ carried the & to %.",
            "Low water came early and @ waited at % with the &.",
            "Nobody had moved the & since @ left %.",
            "The fog over % hid the & until @ rang the bell.",
        ],
        who: &[
            "The pilot",
            "A deckhand",
            "The harbour master",
            "Old Marta",
            "The night watch",
            "A young sailor",
        ],
        things: &[
            "green dinghy",
            "coil of rope",
            "crate of lemons",
            "spare anchor",
            "brass lantern",
            "torn net",
        ],
        places: &["the north pier", "berth 14", "the customs shed", "the light at the bar", "the outer buoy"],
    },
    Domain {
        name: "kitchen",
        patterns: &[
            "@ keeps the & warm for # minutes.",
            "Before noon @ brought the & from %.",
            "When the & smells sweet @ takes it to %.",
            "@ forgot the & at % again.",
            "Half of the & stays at % and @ weighs the rest.",
        ],
        who: &["The baker", "Our cook", "My aunt", "The apprentice", "A hungry guest", "Jonas"],
        things: &["rye dough", "onion soup", "apple cake", "barley porridge", "plum jam", "bean stew"],
        places: &["the stove", "the cool pantry", "the long table", "the market stall", "the window sill"],
    },
    Domain {
        name: "weather",
        patterns: &[
            "@ reports # millimetres of rain at %.",
            "Toward evening the & moved from % to the hills.",
            "@ saw the & above % and closed the shutters.",
            "After # dry days the & reached %.",
            "The & stayed over % longer than @ expected.",
        ],
        who: &[
            "The observer",
            "Station 7",
            "The shepherd",
            "A balloon crew",
            "The ferry captain",
            "The old ranger",
        ],
        things: &[
            "thunder front",
            "cold drizzle",
            "morning mist",
            "warm south wind",
            "hail cloud",
            "first snow",
        ],
        places: &["the valley", "the eastern ridge", "the lake shore", "the airfield", "the pass"],
    },
    Domain {
        name: "workshop",
        patterns: &[
            "@ turned the & by # degrees.",
            "The drawing of the & hangs at %.",
            "@ measured the & twice and cut it at %.",
            "Order # asks for a & from %.",
            "Since Monday the & rattles when @ works at %.",
        ],
        who: &["The joiner", "A toolmaker", "The inspector", "Lena", "The second shift", "The saw operator"],
        things: &["oak panel", "steel bracket", "copper hinge", "spindle", "worn bearing", "cedar box"],
        places: &["bench 3", "the lathe", "the paint room", "the loading gate", "the tool wall"],
    },
    Domain {
        name: "logs",
        patterns: &[
            "job # finished after @ released the & on %.",
            "@ asked % for the & and got # rows.",
            "the & on % was checked by @ without findings.",
            "@ restarted % because the & was # seconds late.",
            "retry # of @ found the & on % unchanged.",
        ],
        who: &["worker a", "worker b", "the scheduler", "the mover", "agent scout", "the reviewer"],
        things: &["index", "snapshot", "lease", "queue file", "daily report", "key list"],
        places: &["node north", "node south", "node west", "the lab host", "the archive"],
    },
];

/// The names that [`write()`] knows.
pub fn domains() -> Vec<&'static str> {
    DOMAINS.iter().map(|domain| domain.name).chain([MIXED]).collect()
}

/// Whether there is a domain of that name.
pub fn is_known(name: &str) -> bool {
    domains().contains(&name)
}

/// Writes that many lines of one or two sentences; the number of bytes. An unknown domain is the mixed one: ask
/// [`is_known`] first.
///
/// # Errors
/// `out` fails.
pub fn write(domain: &str, lines: u64, seed: u64, out: &mut dyn Write) -> io::Result<u64> {
    let own = DOMAINS.iter().find(|known| known.name == domain);
    let mut chance = Chance::new(seed);
    let mut bytes = 0;
    let mut line = String::new();
    for _ in 0..lines {
        line.clear();
        let mixed = &DOMAINS[chance.below(DOMAINS.len() as u64) as usize];
        let domain = own.unwrap_or(mixed);
        for sentence in 0..=chance.below(2) {
            if sentence > 0 {
                line.push(' ');
            }
            add_sentence(domain, &mut chance, &mut line);
        }
        line.push('\n');
        out.write_all(line.as_bytes())?;
        bytes += line.len() as u64;
    }
    Ok(bytes)
}

fn add_sentence(domain: &Domain, chance: &mut Chance, line: &mut String) {
    let pattern = one_of(domain.patterns, chance);
    let begin = line.len();
    for character in pattern.chars() {
        match character {
            // Who it is begins with a capital letter only where the sentence does.
            '@' if line.len() == begin => line.push_str(one_of(domain.who, chance)),
            '@' => line.push_str(&inside(one_of(domain.who, chance))),
            '&' => line.push_str(one_of(domain.things, chance)),
            '%' => line.push_str(one_of(domain.places, chance)),
            '#' => line.push_str(&(2 + chance.below(97)).to_string()),
            other => line.push(other),
        }
    }
}

fn one_of(words: &[&'static str], chance: &mut Chance) -> &'static str {
    words[chance.below(words.len() as u64) as usize]
}

/// `The pilot` within a sentence: `the pilot`. Names stay.
fn inside(who: &str) -> String {
    match ["The ", "A ", "Our ", "My ", "Old "].iter().find(|article| who.starts_with(**article)) {
        Some(article) if *article != "Old " => article.to_lowercase() + &who[article.len()..],
        _ => who.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::vocabulary;

    fn text(domain: &str, lines: u64, seed: u64) -> String {
        let mut out = Vec::new();
        assert_eq!(write(domain, lines, seed, &mut out).unwrap(), out.len() as u64);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_domain_stays_inside_the_vocabulary_and_is_the_same_each_time() {
        for domain in domains() {
            let made = text(domain, 200, 42);
            assert_eq!(made.lines().count(), 200);
            let outside = made.bytes().find(|b| *b != b'\n' && vocabulary::index(*b) == vocabulary::NONE);
            assert_eq!(outside, None, "{domain}");
            assert_eq!(made, text(domain, 200, 42));
            assert_ne!(made, text(domain, 200, 43), "{domain}");
            assert!(text(domain, 300, 42).starts_with(&made), "{domain}: fewer lines are no beginning");
            assert!(made.lines().all(|line| line.ends_with('.') && !line.contains("  ")), "{domain}");
        }
        assert!(!text("harbour", 500, 1).contains("and The pilot"));
        assert!(!is_known("sea") && is_known("mixed"));
    }
}
