//! Standard base64 with padding (RFC 4648, section 4): bytes on their way into JSON.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` as base64 text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit > group.len() {
                text.push('=');
            } else {
                text.push(char::from(ALPHABET[(bits >> (18 - 6 * digit)) as usize & 63]));
            }
        }
    }
    text
}

/// The bytes of base64 text, strictly: no white space, whole groups, padding only at the end, and no
/// bits left over (so that every byte sequence has one text).
///
/// # Errors
/// What is wrong, with the offset.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(4) {
        return Err(format!("base64 of {} characters, which is no multiple of four", bytes.len()));
    }
    let padding = bytes.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let digits = &bytes[..bytes.len() - padding];
    let mut plain = Vec::with_capacity(bytes.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0u32);
    for (at, byte) in digits.iter().enumerate() {
        let value =
            value_of(*byte).ok_or_else(|| format!("a character that is no base64 digit at offset {at}"))?;
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            plain.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    if bits != 0 {
        return Err("base64 with bits left over at its end".into());
    }
    Ok(plain)
}

fn value_of(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn only_the_one_text_of_some_bytes_decodes() {
        for length in 0..200usize {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 37 + length) as u8).collect();
            assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        }
        for wrong in ["Zg=", "Zg", "Z===", "====", "Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Zg==Zg==", "Z_8="] {
            assert!(decode(wrong).is_err(), "{wrong:?}");
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
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in vectors {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded).as_deref(), Ok(plain.as_bytes()));
        }
        assert_eq!(encode(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
