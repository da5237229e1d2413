//! The 64 symbols, in the order that the models count them.

/// How many symbols there are.
pub const SIZE: usize = 64;

/// The symbols: every one is printable ASCII, so that a carrier survives where plain text does.
pub const SYMBOLS: &[u8; SIZE] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";

/// What [`index`] says of a byte that is no symbol.
pub const NONE: u8 = 0xff;

const INDEX: [u8; 256] = {
    let mut index = [NONE; 256];
    let mut at = 0;
    while at < SIZE {
        index[SYMBOLS[at] as usize] = at as u8;
        at += 1;
    }
    index
};

/// The number of a symbol, or [`NONE`].
#[inline(always)]
pub fn index(byte: u8) -> u8 {
    INDEX[usize::from(byte)]
}

/// The symbols as text.
pub fn text() -> &'static str {
    std::str::from_utf8(SYMBOLS).unwrap_or("")
}
