//! Standard base64 with padding (RFC 4648, section 4): bytes on their way into JSON and capsules.
//!
//! Both directions look whole groups up in tables: a payload of some megabytes is hashed and coded in
//! one go, and the coding should not be what takes the time. Their loops are written for a compiler that is told to
//! care for size: arrays of fixed length and counters, because it makes calls of iterators and of copies of slices.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The two digits of every twelve bits, the first in the lower byte.
static PAIRS: [u16; 4096] = {
    let mut table = [0; 4096];
    let mut bits = 0;
    while bits < 4096 {
        table[bits] = u16::from_le_bytes([ALPHABET[bits >> 6], ALPHABET[bits & 63]]);
        bits += 1;
    }
    table
};

/// What no 24 bits of a group are: the mark of a byte that is no digit.
const WRONG: u32 = 1 << 24;

/// The bits that a byte gives to its group, for each of the four places in it.
static PLACES: [[u32; 256]; 4] = {
    let mut tables = [[WRONG; 256]; 4];
    let mut digit = 0;
    while digit < 64 {
        let mut place = 0;
        while place < 4 {
            tables[place][ALPHABET[digit] as usize] = (digit as u32) << (18 - 6 * place);
            place += 1;
        }
        digit += 1;
    }
    tables
};

/// How many plain bytes [`encode_parts`] and [`decode_spaced`] hand on at a time; whole groups.
const PART: usize = 48 << 10;

/// `bytes` as base64 text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = vec![0; bytes.len().div_ceil(3) * 4];
    fill(bytes, &mut text);
    // Only digits and padding were written, so this is a check and never a conversion.
    String::from_utf8(text).unwrap_or_default()
}

/// Appends the base64 text of `bytes`.
pub fn encode_onto(bytes: &[u8], text: &mut String) {
    let appended: Result<(), std::str::Utf8Error> = encode_parts(bytes, |part| {
        text.push_str(std::str::from_utf8(part)?);
        Ok(())
    });
    debug_assert_eq!(appended, Ok(()));
}

/// Hands the base64 text of `bytes` to `sink` in parts, so that it need not be in memory as a whole.
///
/// # Errors
/// What the sink says.
pub fn encode_parts<E>(bytes: &[u8], mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let mut text = vec![0; PART.min(bytes.len()).div_ceil(3) * 4];
    for part in bytes.chunks(PART) {
        let length = part.len().div_ceil(3) * 4;
        fill(part, &mut text[..length]);
        sink(&text[..length])?;
    }
    Ok(())
}

/// Writes the text of `bytes` to `text`, which is as long as it.
fn fill(bytes: &[u8], text: &mut [u8]) {
    // Two groups at a time: the loop's own work counts here.
    let (pairs, rest) = bytes.as_chunks::<6>();
    let (places, _) = text.as_chunks_mut::<8>();
    let count = pairs.len().min(places.len());
    let mut done = 0;
    while done < count {
        let pair = &pairs[done];
        let bits = u64::from_be_bytes([0, 0, pair[0], pair[1], pair[2], pair[3], pair[4], pair[5]]);
        let digits = |shift: u32| u64::from(PAIRS[(bits >> shift) as usize & 4095]);
        let text = digits(36) | digits(24) << 16 | digits(12) << 32 | digits(0) << 48;
        places[done] = text.to_le_bytes();
        done += 1;
    }
    let places = &mut text[count * 8..];
    for (group, place) in rest.chunks(3).zip(places.chunks_exact_mut(4)) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, digit) in place.iter_mut().enumerate() {
            let value = (bits >> (18 - 6 * at)) as usize & 63;
            *digit = if at > group.len() { b'=' } else { ALPHABET[value] };
        }
    }
}

/// The bytes of base64 text, strictly: no white space, whole groups, padding only at the end, and no
/// bits left over (so that every byte sequence has one text).
///
/// # Errors
/// What is wrong, with the offset.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    decode_to(text, &mut plain)?;
    Ok(plain)
}

/// [`decode`] into a buffer that is used again; what it held is gone.
///
/// # Errors
/// As [`decode`].
pub fn decode_to(text: &str, plain: &mut Vec<u8>) -> Result<(), String> {
    let bytes = text.as_bytes();
    plain.clear();
    if !bytes.len().is_multiple_of(4) {
        return Err(format!("base64 of {} characters, which is no multiple of four", bytes.len()));
    }
    let padding = bytes.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    // The group with the padding is looked at digit by digit.
    let whole = if padding == 0 { bytes.len() } else { bytes.len() - 4 };
    plain.resize(whole / 4 * 3, 0);
    let done = groups(&bytes[..whole], plain) * 4;
    let wrong = |at| format!("a character that is no base64 digit at offset {at}");
    if done < whole {
        let at = bytes[done..].iter().position(|byte| value_of(*byte).is_none()).unwrap_or(0);
        return Err(wrong(done + at));
    }
    let mut bits = 0;
    for (at, byte) in bytes.iter().enumerate().take(bytes.len() - padding).skip(whole) {
        bits = bits << 6 | value_of(*byte).ok_or_else(|| wrong(at))?;
    }
    match padding {
        0 => {}
        1 if bits & 3 == 0 => plain.extend([(bits >> 10) as u8, (bits >> 2) as u8]),
        2 if bits & 15 == 0 => plain.push((bits >> 4) as u8),
        _ => return Err("base64 with bits left over at its end".into()),
    }
    Ok(())
}

/// What is wrong with base64 text, and at which byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong.
    pub what: &'static str,
    /// How many bytes stand before it.
    pub at: usize,
}

/// Hands the bytes of base64 text to `sink` in parts. White space, of any kind and anywhere, is passed
/// over; all else is as strict as in [`decode`].
///
/// # Errors
/// What is wrong, and where. Bytes of what stands before it may have been handed on.
pub fn decode_spaced(text: &str, mut sink: impl FnMut(&[u8])) -> Result<(), Wrong> {
    let bytes = text.as_bytes();
    let mut plain = vec![0; PART];
    let (mut filled, mut at) = (0, 0);
    let (mut bits, mut held, mut padding) = (0_u32, 0, 0);
    while at < bytes.len() {
        if filled + 3 > PART {
            sink(&plain[..filled]);
            filled = 0;
        }
        if held == 0 && padding == 0 {
            let done = groups(&bytes[at..], &mut plain[filled..]);
            if done > 0 {
                filled += done * 3;
                at += done * 4;
                continue;
            }
        }
        // One character, until a group is whole again.
        let wrong = |what| Err(Wrong { what, at });
        let Some(character) = text.get(at..).and_then(|rest| rest.chars().next()) else { break };
        if is_space(character) {
            at += character.len_utf8();
            continue;
        }
        let value = u8::try_from(character).ok().and_then(value_of);
        match (character, value) {
            _ if padding > 0 && held + padding == 4 => return wrong("text behind the padding"),
            ('=', _) if held >= 2 => padding += 1,
            ('=', _) => return wrong("padding within the text"),
            (_, None) => return wrong("a character that is no base64 digit"),
            (_, Some(_)) if padding > 0 => return wrong("a digit behind padding"),
            (_, Some(value)) => {
                bits = bits << 6 | value;
                held += 1;
            }
        }
        if held + padding == 4 {
            bits <<= 6 * padding;
            if bits & ((1 << (8 * padding)) - 1) != 0 {
                return wrong("bits left over at the end");
            }
            let [_, three @ ..] = bits.to_be_bytes();
            plain[filled..filled + 3].copy_from_slice(&three);
            filled += 3 - padding;
            bits = 0;
            // A group with padding keeps its count: it was the last one.
            held = if padding > 0 { held } else { 0 };
        }
        at += character.len_utf8();
    }
    if held != 0 && held + padding != 4 {
        return Err(Wrong { what: "an incomplete group at the end", at });
    }
    sink(&plain[..filled]);
    Ok(())
}

/// White space as those see it who write capsules: Unicode's, and the four separators of ASCII.
pub fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Decodes groups of four digits while there are some and there is room; how many.
fn groups(text: &[u8], plain: &mut [u8]) -> usize {
    // Two groups at a time, and then the one that may be left.
    let (pairs, _) = text.as_chunks::<8>();
    let (places, _) = plain.as_chunks_mut::<6>();
    let count = pairs.len().min(places.len());
    let mut twice = 0;
    while twice < count {
        let [a, b, c, d, e, f, g, h] = pairs[twice];
        let (one, two) = (group([a, b, c, d]), group([e, f, g, h]));
        if one | two >= WRONG {
            break;
        }
        let [_, _, bytes @ ..] = (u64::from(one) << 24 | u64::from(two)).to_be_bytes();
        places[twice] = bytes;
        twice += 1;
    }
    let mut done = twice * 2;
    let (digits, _) = text[done * 4..].as_chunks::<4>();
    let (places, _) = plain[done * 3..].as_chunks_mut::<3>();
    for (digits, place) in digits.iter().zip(places).take(2) {
        let bits = group(*digits);
        if bits >= WRONG {
            break;
        }
        let [_, bytes @ ..] = bits.to_be_bytes();
        *place = bytes;
        done += 1;
    }
    done
}

/// The bits of a group, or [`WRONG`] and more.
#[inline(always)]
fn group([a, b, c, d]: [u8; 4]) -> u32 {
    let [first, second, third, fourth] = &PLACES;
    first[usize::from(a)] | second[usize::from(b)] | third[usize::from(c)] | fourth[usize::from(d)]
}

fn value_of(digit: u8) -> Option<u32> {
    Some(PLACES[3][usize::from(digit)]).filter(|value| *value < WRONG)
}

#[cfg(test)]
mod tests {
    use super::{decode, decode_spaced, encode, encode_parts, Wrong};

    fn spaced(text: &str) -> Result<Vec<u8>, Wrong> {
        let mut plain = Vec::new();
        decode_spaced(text, |part| plain.extend_from_slice(part)).map(|()| plain)
    }

    #[test]
    fn only_the_one_text_of_some_bytes_decodes() {
        for length in 0..200usize {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 37 + length) as u8).collect();
            assert_eq!(decode(&encode(&bytes)), Ok(bytes.clone()));
            assert_eq!(spaced(&encode(&bytes)), Ok(bytes));
        }
        for wrong in
            ["Zg=", "Zg", "Z===", "====", "Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Zg==Zg==", "Z_8=", "Zg=A"]
        {
            assert!(decode(wrong).is_err(), "{wrong:?}");
            assert!(wrong.contains(['\n']) || spaced(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_vectors_of_the_rfc() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in vectors {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded).as_deref(), Ok(plain.as_bytes()));
        }
        assert_eq!(encode(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn white_space_anywhere_is_passed_over_and_nothing_else() {
        assert_eq!(spaced(" Z m\n9\tv\u{a0}Y\u{2028}g = \u{1c}= \r\n"), Ok(b"foob".to_vec()));
        for (text, at) in [
            ("Zm9v\u{200b}", 4),
            ("Zm9=\nZm9v", 3),
            ("Zm8=\nZm9v", 5),
            ("Zm8\n\n", 5),
            ("Zm=v", 3),
            ("Zg=v", 3),
            ("=Zm9", 0),
            ("Zh==", 3),
            ("> Zm9v", 0),
        ] {
            assert_eq!(spaced(text).map_err(|wrong| wrong.at), Err(at), "{text:?}");
        }
    }

    #[test]
    fn parts_join_to_the_whole() {
        let bytes: Vec<u8> = (0..300_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut text = Vec::new();
        let parts: Result<(), ()> = encode_parts(&bytes, |part| {
            text.extend_from_slice(part);
            Ok(())
        });
        assert_eq!(parts, Ok(()));
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, encode(&bytes));
        assert_eq!(spaced(&text), Ok(bytes.clone()));
        // Wrapped at an odd width, every group is broken somewhere.
        let lines: Vec<&str> =
            (0..text.len()).step_by(77).map(|at| &text[at..text.len().min(at + 77)]).collect();
        assert_eq!(spaced(&lines.join("\r\n")), Ok(bytes));
    }
}
