//! The fixed model: every symbol is as likely as any other.
//!
//! Six bits are a symbol then, and the coder has nothing to do. Its interval is all of 2^32 numbers; a symbol
//! takes the 64th part of it, exactly, so six bits are out and the interval is whole again. Nothing is ever
//! pending. An encoder that ends there tells 0 and 1: so the text ends where the frame's bits do, or one
//! symbol before if all that is missing is 01. The tests hold this against the coder.

use sha2::{Digest, Sha256};

use super::frame::Bits;
use super::vocabulary::{self, SIZE, SYMBOLS};
use super::{float_text, CarrierError};
use crate::wire::hex;

/// What its fingerprint begins with.
const NAME: &str = "lmcodec-fixed-v1";

/// The SHA-256 of its name, its symbols and their probabilities.
pub fn fingerprint() -> String {
    let share = float_text::exact(1.0 / SIZE as f64) + "\n";
    let text = format!("{NAME}\n{}\n{}", vocabulary::text(), share.repeat(SIZE));
    hex::encode(&Sha256::digest(text.as_bytes()))
}

/// How many symbols a frame becomes.
pub fn symbols(bits: &Bits<'_>) -> u64 {
    let count = bits.count();
    let rest = count % 6;
    let spared = rest == 2 && bits.get(count - 2, 2) == 1;
    count / 6 + u64::from(rest > 0 && !spared)
}

/// Hands the symbols `from..upto` to `out`, as characters.
pub fn encode(bits: &Bits<'_>, from: u64, upto: u64, out: &mut Vec<u8>) {
    let mut at = from;
    let character = |six: u32| SYMBOLS[(six & 63) as usize];
    while at + 4 <= upto {
        let four = bits.get(at * 6, 24);
        out.extend_from_slice(&[
            character(four >> 18),
            character(four >> 12),
            character(four >> 6),
            character(four),
        ]);
        at += 4;
    }
    for at in at..upto {
        out.push(character(bits.get(at * 6, 6)));
    }
}

/// The bits of symbols that come one after the other.
#[derive(Debug, Default)]
pub struct Decoder {
    partial: u32,
    held: u32,
}

impl Decoder {
    /// Takes characters; whole bytes go to `out`.
    ///
    /// # Errors
    /// The first that is no symbol.
    pub fn decode(&mut self, text: &[u8], line: u64, out: &mut Vec<u8>) -> Result<(), CarrierError> {
        let mut text = text;
        if self.held == 0 {
            let mut fours = text.chunks_exact(4);
            for four in &mut fours {
                let [a, b, c, d] = [four[0], four[1], four[2], four[3]].map(vocabulary::index);
                if (a | b | c | d) == vocabulary::NONE {
                    break;
                }
                let bits = u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d);
                out.extend_from_slice(&[(bits >> 16) as u8, (bits >> 8) as u8, bits as u8]);
                text = &text[4..];
            }
        }
        for character in text {
            let symbol = vocabulary::index(*character);
            if symbol == vocabulary::NONE {
                return Err(CarrierError::Character { found: char::from(*character), line });
            }
            self.partial = self.partial << 6 | u32::from(symbol);
            self.held += 6;
            if self.held >= 8 {
                self.held -= 8;
                out.push((self.partial >> self.held) as u8);
            }
        }
        Ok(())
    }

    /// What an encoder that ends here tells more: 0 and 1.
    pub fn end(self, out: &mut Vec<u8>) {
        let (partial, held) = (self.partial << 2 | 1, self.held + 2);
        out.push((u64::from(partial) << 8 >> held) as u8);
        if held > 8 {
            out.push((partial << (16 - held)) as u8);
        }
    }
}
