//! The coder against one that takes a step at a time, as the design words it.

use super::*;
use crate::carrier::chance::Chance;
use crate::carrier::quantise::quantise;

const THREE: u32 = 3 << 30;

/// The encoder bit by bit.
#[derive(Default)]
struct Slow {
    interval: Interval,
    pending: u64,
    bits: Vec<u32>,
}

impl Slow {
    fn tell(&mut self, table: &Cumulative, symbol: u8) {
        let Interval { low, high } = self.interval;
        let width = u64::from(high) - u64::from(low) + 1;
        let (before, upto) = table.range(symbol);
        let mut high = (u64::from(low) + width * u64::from(upto) / 65_536 - 1) as u32;
        let mut low = (u64::from(low) + width * u64::from(before) / 65_536) as u32;
        loop {
            if high < HALF {
                self.emit(0);
            } else if low >= HALF {
                self.emit(1);
                low -= HALF;
                high -= HALF;
            } else if low >= QUARTER && high < THREE {
                self.pending += 1;
                low -= QUARTER;
                high -= QUARTER;
            } else {
                break;
            }
            low *= 2;
            high = high * 2 + 1;
        }
        self.interval = Interval { low, high };
    }

    fn emit(&mut self, bit: u32) {
        self.bits.push(bit);
        self.bits.resize(self.bits.len() + self.pending as usize, 1 - bit);
        self.pending = 0;
    }

    fn ended(&self) -> Vec<u32> {
        let mut copy = Slow { interval: self.interval, pending: self.pending + 1, bits: self.bits.clone() };
        copy.emit(u32::from(self.interval.low >= QUARTER));
        copy.bits
    }
}

/// The decoder bit by bit.
fn slow_symbols(bits: &[u32], tables: &[Cumulative]) -> Vec<u8> {
    let mut next = bits.iter().copied().chain(std::iter::repeat(0));
    let mut code = (0..32).fold(0_u32, |code, _| code << 1 | next.next().unwrap());
    let (mut low, mut high) = (0_u32, u32::MAX);
    tables
        .iter()
        .map(|table| {
            let width = u64::from(high) - u64::from(low) + 1;
            let place = ((u64::from(code - low) + 1) * 65_536 - 1) / width;
            let symbol = (0..64).find(|symbol| place < u64::from(table.range(*symbol).1)).unwrap();
            let (before, upto) = table.range(symbol);
            high = (u64::from(low) + width * u64::from(upto) / 65_536 - 1) as u32;
            low = (u64::from(low) + width * u64::from(before) / 65_536) as u32;
            loop {
                let less = if high < HALF {
                    0
                } else if low >= HALF {
                    HALF
                } else if low >= QUARTER && high < THREE {
                    QUARTER
                } else {
                    break;
                };
                low = (low - less) * 2;
                high = (high - less) * 2 + 1;
                code = (code - less) * 2 + next.next().unwrap();
            }
            symbol
        })
        .collect()
}

/// Tables of every kind: even ones, ones where a symbol has all but the rest's 1, and ones whose parts end
/// in the middle, so that bits stay pending for long.
fn table(chance: &mut Chance) -> Cumulative {
    match chance.below(4) {
        0 => Cumulative::of(&[1024; 64]),
        1 => {
            let mut counts = [1; 64];
            counts[chance.below(64) as usize] = 65_473;
            Cumulative::of(&counts)
        }
        2 => {
            let mut counts = [2; 64];
            counts[30] = 32_768 - 60 - 1;
            counts[31] = 2;
            counts[32] = 65_536 - counts[30] - 62 * 2;
            Cumulative::of(&counts)
        }
        _ => {
            let power = 1 + chance.below(20) as i32;
            Cumulative::of(&quantise(&std::array::from_fn(|_| chance.unit().powi(power))))
        }
    }
}

#[test]
fn shifts_at_once_are_the_steps_one_by_one() {
    let mut chance = Chance::new(21);
    for round in 0..300 {
        let symbols = 1 + chance.below(120) as usize;
        let tables: Vec<Cumulative> = (0..symbols).map(|_| table(&mut chance)).collect();
        let bits: Vec<u32> = (0..chance.below(500)).map(|_| chance.below(2) as u32).collect();
        let at = |from: u64, count: u32| {
            let bit = |at: u64| bits.get(at as usize).copied().unwrap_or(0);
            (from..from + u64::from(count)).fold(0, |sum, at| sum << 1 | bit(at))
        };
        let expected = slow_symbols(&bits, &tables);
        let mut chooser = Chooser::new(at);
        let (mut slow, mut teller, mut out) = (Slow::default(), Teller::default(), Vec::new());
        for (table, symbol) in tables.iter().zip(expected) {
            assert_eq!(chooser.choose(table, at), symbol, "round {round}");
            slow.tell(table, symbol);
            teller.tell(table, symbol, &mut out);
            assert_eq!((chooser.interval, chooser.pending), (slow.interval, slow.pending), "round {round}");
            assert_eq!((teller.interval, teller.pending), (slow.interval, slow.pending), "round {round}");
            assert_eq!(chooser.taken - chooser.pending, slow.bits.len() as u64);
            let ended = slow.ended();
            for count in 0..=bits.len() {
                let told = count <= ended.len() && ended[..count] == bits[..count];
                assert_eq!(chooser.has_told(count as u64, at), told, "round {round}, {count} bits");
            }
        }
        teller.end(&mut out);
        let mut expected = slow.ended();
        expected.resize(expected.len().div_ceil(8) * 8, 0);
        let told: Vec<u32> =
            out.iter().flat_map(|byte| (0..8).rev().map(move |bit| u32::from(byte >> bit & 1))).collect();
        assert_eq!(told, expected, "round {round}");
    }
}
