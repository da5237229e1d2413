//! The arithmetic coder: an interval of 32-bit numbers, narrowed symbol by symbol.
//!
//! It is the classic integer coder: while both ends are in the same half, a bit is out and the interval is
//! doubled; while it lies in the middle half, a bit is *pending*, to be told, inverted, behind the next one.
//! Here no bit is handled alone: how often each happens is a count of leading zeros, and the shifts are made
//! at once. The tests hold that against the loop that takes one step at a time.

use super::quantise::Cumulative;

const HALF: u32 = 1 << 31;
const QUARTER: u32 = 1 << 30;

/// The interval, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    low: u32,
    high: u32,
}

/// What a narrowing brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// How many bits are out, 0 to 32.
    pub out: u32,
    /// They are the first ones of this number.
    pub bits: u32,
    /// How many more are pending, 0 to 31. Those before are told when one is out.
    pub pending: u32,
}

impl Default for Interval {
    fn default() -> Interval {
        Interval { low: 0, high: u32::MAX }
    }
}

impl Interval {
    /// How many numbers it has: after a narrowing always more than 2^30.
    #[inline(always)]
    pub fn width(self) -> u64 {
        u64::from(self.high - self.low) + 1
    }

    /// Narrows it to a symbol's part and doubles it as often as it can be.
    #[inline(always)]
    pub fn narrow(&mut self, (before, upto): (u32, u32)) -> Shift {
        let width = self.width();
        let high = self.low.wrapping_add(((width * u64::from(upto)) >> 16) as u32).wrapping_sub(1);
        let low = self.low.wrapping_add(((width * u64::from(before)) >> 16) as u32);
        // The bits that both ends have in common; never all, as the part has two numbers or more.
        let out = (low ^ high).leading_zeros();
        let (shifted_low, shifted_high) = (low << out, high << out | !(u32::MAX << out));
        // Now low is 0…, high 1…: pending is how far they go on as 01… and 10….
        let pending = ((!shifted_low | shifted_high) << 1).leading_zeros().min(31);
        self.low = shifted_low << pending & !HALF;
        self.high = shifted_high << pending | !(u32::MAX << pending) | HALF;
        Shift { out, bits: low, pending }
    }

    /// The bit with which an encoder ends; the pending ones and one more follow, inverted.
    #[inline(always)]
    pub fn last_bit(self) -> bool {
        self.low >= QUARTER
    }
}

/// The decoder's half: which symbol a sequence of bits means.
#[derive(Clone, Copy, Debug)]
pub struct Chooser {
    interval: Interval,
    /// 32 bits of the sequence, as they stand in the interval.
    code: u32,
    /// Bits taken out of the sequence altogether.
    taken: u64,
    /// The bits that an encoder which got the same symbols would not have told yet.
    pending: u64,
}

impl Chooser {
    /// One at the beginning of a sequence; `bits` gives so many from a place on.
    pub fn new(bits: impl Fn(u64, u32) -> u32) -> Chooser {
        Chooser { interval: Interval::default(), code: bits(0, 32), taken: 0, pending: 0 }
    }

    /// The next symbol.
    #[inline(always)]
    pub fn choose(&mut self, table: &Cumulative, bits: impl Fn(u64, u32) -> u32) -> u8 {
        let symbol = table.symbol_at(self.code - self.interval.low, self.interval.width());
        let shift = self.interval.narrow(table.range(symbol));
        let by = shift.out + shift.pending;
        if by > 0 {
            // `out` bits go; of the rest the first stays, and `pending` behind it go.
            let code = (u64::from(self.code) << 32 | u64::from(bits(self.taken + 32, 32))) << shift.out;
            let (first, rest) = (code & 1 << 63, (code << shift.pending) & !(1 << 63));
            self.code = ((first | rest) >> 32) as u32;
            self.taken += u64::from(by);
            self.pending = if shift.out > 0 { 0 } else { self.pending } + u64::from(shift.pending);
        }
        symbol
    }

    /// How many bits of the sequence are used up.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether an encoder that got the same symbols and ended now would have told the first `count` bits.
    ///
    /// What it has told are the sequence's bits already: a bit goes when both ends of the interval have it, and
    /// the code is between them. So only the ending is compared.
    #[inline(always)]
    pub fn has_told(&self, count: u64, bits: impl Fn(u64, u32) -> u32) -> bool {
        self.taken + 2 >= count && self.ends_with(count, bits)
    }

    #[cold]
    fn ends_with(&self, count: u64, bits: impl Fn(u64, u32) -> u32) -> bool {
        let told = self.taken - self.pending;
        let last = u32::from(self.interval.last_bit());
        (told..count).all(|at| bits(at, 1) == if at == told { last } else { 1 - last })
    }
}

/// The encoder's half: the bits that a sequence of symbols means.
#[derive(Clone, Debug, Default)]
pub struct Teller {
    interval: Interval,
    pending: u64,
    /// The bits that fill no byte yet, the last ones of the number.
    partial: u64,
    /// How many those are, below 8 between two calls.
    held: u32,
}

impl Teller {
    /// Takes a symbol; whole bytes go to `out`.
    #[inline(always)]
    pub fn tell(&mut self, table: &Cumulative, symbol: u8, out: &mut Vec<u8>) {
        let mut shift = self.interval.narrow(table.range(symbol));
        if shift.out > 0 {
            if self.pending > 0 {
                self.put_pending(shift.bits >> 31, out);
                (shift.bits, shift.out) = (shift.bits << 1, shift.out - 1);
            }
            if shift.out > 0 {
                self.put(shift.bits >> (32 - shift.out), shift.out, out);
            }
        }
        self.pending += u64::from(shift.pending);
    }

    /// Ends: the last bits, and zeros up to a whole byte.
    pub fn end(mut self, out: &mut Vec<u8>) {
        self.pending += 1;
        let last = u32::from(self.interval.last_bit());
        self.put_pending(last, out);
        if self.held > 0 {
            out.push((self.partial << (8 - self.held)) as u8);
        }
    }

    fn put_pending(&mut self, bit: u32, out: &mut Vec<u8>) {
        self.put(bit, 1, out);
        let inverted = if bit == 0 { u32::MAX } else { 0 };
        while self.pending > 0 {
            let count = self.pending.min(32) as u32;
            self.put(inverted >> (32 - count), count, out);
            self.pending -= u64::from(count);
        }
    }

    #[inline(always)]
    fn put(&mut self, bits: u32, count: u32, out: &mut Vec<u8>) {
        self.partial = self.partial << count | u64::from(bits);
        self.held += count;
        while self.held >= 8 {
            self.held -= 8;
            out.push((self.partial >> self.held) as u8);
        }
    }
}

#[cfg(test)]
#[path = "coder_tests.rs"]
mod tests;
