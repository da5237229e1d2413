//! Finding a text in bytes whatever the case of its letters.
//!
//! An ASCII query compares by ASCII case: eight places of the text are looked at in one step, for
//! the query's two rarest bytes, and only where both stand at their distance is it compared. Any
//! other query compares by the lower case of each character, line by line, and passes over lines
//! that are all ASCII, in which it cannot be.

/// What is looked for.
pub enum Needle {
    /// Only ASCII characters.
    Ascii(AsciiNeedle),
    /// The lower-cased query, which has characters beyond ASCII.
    Folded(String),
}

/// An ASCII query, prepared.
pub struct AsciiNeedle {
    lower: Vec<u8>,
    rare: [RareByte; 2],
}

/// A byte of the query that texts seldom have, repeated over a word.
#[derive(Clone, Copy)]
struct RareByte {
    offset: usize,
    /// 0x20 in each byte for a letter, whose cases differ in that bit alone; otherwise 0.
    fold: u64,
    pattern: u64,
}

impl Needle {
    /// A needle for `query`, which is not empty.
    pub fn new(query: &str) -> Self {
        let lower: String = query.chars().flat_map(char::to_lowercase).collect();
        if !lower.is_ascii() {
            return Needle::Folded(lower);
        }
        let lower = lower.into_bytes();
        let mut by_rarity: Vec<usize> = (0..lower.len()).collect();
        by_rarity.sort_by_key(|&offset| frequency(lower[offset]));
        let first = by_rarity.first().copied().unwrap_or(0);
        let second = by_rarity.iter().copied().find(|&offset| lower[offset] != lower[first]).unwrap_or(first);
        let rare = [first, second].map(|offset| {
            let byte = lower.get(offset).copied().unwrap_or(0);
            let fold = if byte.is_ascii_lowercase() { 0x20 } else { 0 };
            RareByte { offset, fold: splat(fold), pattern: splat(byte) }
        });
        Needle::Ascii(AsciiNeedle { lower, rare })
    }

    /// Where the first match in `text` begins, at `from` or after it.
    pub fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        let rest = text.get(from..)?;
        let at = match self {
            Needle::Ascii(needle) => needle.find(rest),
            Needle::Folded(lower) => find_folded(lower, rest),
        };
        at.map(|at| from + at)
    }

    /// So many bytes at the end of a cut text may be the beginning of a match.
    pub fn overlap(&self) -> usize {
        match self {
            Needle::Ascii(needle) => needle.lower.len() - 1,
            // A character and its lower case differ in length, by less than a factor of 4.
            Needle::Folded(lower) => lower.len() * 4,
        }
    }
}

impl AsciiNeedle {
    fn find(&self, text: &[u8]) -> Option<usize> {
        let last = text.len().checked_sub(self.lower.len())?;
        let [a, b] = self.rare;
        let mut at = 0;
        while at + 8 <= last + 1 {
            let mut both = zero_bytes((word(text, at + a.offset) | a.fold) ^ a.pattern)
                & zero_bytes((word(text, at + b.offset) | b.fold) ^ b.pattern);
            while both != 0 {
                let place = at + (both.trailing_zeros() / 8) as usize;
                if self.is_at(text, place) {
                    return Some(place);
                }
                both &= both - 1;
            }
            at += 8;
        }
        (at..=last).find(|&place| self.is_at(text, place))
    }

    fn is_at(&self, text: &[u8], place: usize) -> bool {
        text[place..place + self.lower.len()].eq_ignore_ascii_case(&self.lower)
    }
}

fn splat(byte: u8) -> u64 {
    u64::from(byte) * 0x0101_0101_0101_0101
}

fn word(text: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&text[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// The top bit of each byte that is zero; also, at times, of a byte above one, which the
/// comparison that follows sorts out.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(splat(0x01)) & !word & splat(0x80)
}

/// How common a lower-cased byte is in prose and source code: 0 for the rare ones.
fn frequency(byte: u8) -> usize {
    const COMMON: &[u8] = b" etaoinsrlcdhum\npfgy._b,v0wk()-1=x\"2/:;'#*3qzj<>5468[]{}7\t9";
    COMMON.iter().position(|&common| common == byte).map_or(0, |place| COMMON.len() - place)
}

fn find_folded(lower: &str, text: &[u8]) -> Option<usize> {
    if text.is_ascii() {
        return None;
    }
    let mut start = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        if !line.is_ascii() {
            if let Some(at) = find_folded_in_line(lower, line) {
                return Some(start + at);
            }
        }
        start += line.len();
    }
    None
}

fn find_folded_in_line(lower: &str, line: &[u8]) -> Option<usize> {
    let folded: String = characters(line).flat_map(|(_, c)| c.to_lowercase()).collect();
    let mut left = folded.find(lower)?;
    for (at, c) in characters(line) {
        let len = c.to_lowercase().map(char::len_utf8).sum::<usize>();
        if left < len {
            return Some(at);
        }
        left -= len;
    }
    None
}

/// The characters of a text with their places; what is not UTF-8 counts as U+FFFD.
fn characters(text: &[u8]) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut start = 0;
    text.utf8_chunks().flat_map(move |chunk| {
        let (valid, broken) = (chunk.valid(), chunk.invalid());
        let at = start;
        start += valid.len() + broken.len();
        let replaced = (!broken.is_empty()).then_some((at + valid.len(), char::REPLACEMENT_CHARACTER));
        valid.char_indices().map(move |(offset, c)| (at + offset, c)).chain(replaced)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(query: &str, text: &str) -> Option<usize> {
        Needle::new(query).find(text.as_bytes(), 0)
    }

    #[test]
    fn finds_at_every_place_and_in_any_case() {
        for query in ["x", "Needle", "a_b-c", "12", "@[`{", "zz"] {
            for before in 0..40 {
                for after in 0..20 {
                    let text = format!("{}{}{}", ".".repeat(before), query.to_uppercase(), ".".repeat(after));
                    assert_eq!(find(query, &text), Some(before), "{query} in {text}");
                    assert_eq!(find(&query.to_uppercase(), &text.to_lowercase()), Some(before));
                }
            }
        }
    }

    #[test]
    fn agrees_with_a_plain_search_on_arbitrary_texts() {
        let mut state = 7u32;
        let mut next = move || {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            (state >> 16) as usize
        };
        let alphabet = b"aAbB@`[{ \n";
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..next() % 60).map(|_| alphabet[next() % alphabet.len()]).collect();
            let query: Vec<u8> = (0..1 + next() % 4).map(|_| alphabet[next() % alphabet.len()]).collect();
            let plain = text.windows(query.len()).position(|place| place.eq_ignore_ascii_case(&query));
            let query = String::from_utf8(query).unwrap();
            assert_eq!(Needle::new(&query).find(&text, 0), plain, "{query:?} in {text:?}");
        }
    }

    #[test]
    fn signs_are_not_letters_of_another_case() {
        assert_eq!(find("@", "`"), None);
        assert_eq!(find("[", "{"), None);
    }

    #[test]
    fn other_alphabets_compare_by_lower_case() {
        assert_eq!(find("ÄPFEL", "drei äpfel"), Some(5));
        assert_eq!(find("straße", "x\nDie STRAßE"), Some(6));
        assert_eq!(find("ЖУК", "жуки"), Some(0));
        assert_eq!(find("ΟΔΟΣ", "οδοσ"), Some(0));
        assert_eq!(find("é", "plain"), None);
        // A character whose lower case is longer does not shift what comes after it.
        assert_eq!(find("é", "İİé"), Some(4));
        assert_eq!(Needle::new("é").find(b"\xff\xfe\xc3\xa9", 0), Some(2));
    }
}
