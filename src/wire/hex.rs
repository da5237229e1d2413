//! Bytes as hexadecimal digits.

/// Two lower-case digits a byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

/// Thirty-two bytes from exactly 64 digits of either case.
pub fn decode32(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            *byte = *byte << 4 | char::from(*digit).to_digit(16)? as u8;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_either_case_read_back() {
        let bytes: [u8; 32] = std::array::from_fn(|n| (n * 37) as u8);
        let text = encode(&bytes);
        assert_eq!(&text[..8], "00254a6f");
        assert_eq!(decode32(&text), Some(bytes));
        assert_eq!(decode32(&text.to_uppercase()), Some(bytes));
        assert_eq!(decode32(&text[1..]), None);
        assert_eq!(decode32(&text.replace('4', "g")), None);
        assert_eq!(decode32(&format!("{text}0")), None);
        assert_eq!(decode32(&"é".repeat(32)), None);
    }
}
