//! The frame around a payload: `LMC1`, its length and its CRC-32 (both little-endian), the payload.

use super::CarrierError;

/// How many bytes stand before the payload.
pub const HEADER_BYTES: usize = 12;

const MAGIC: [u8; 4] = *b"LMC1";

/// The bytes before a payload.
///
/// # Errors
/// It is longer than 32 bits can say.
pub fn header(payload: &[u8]) -> Result<[u8; HEADER_BYTES], CarrierError> {
    let length = u32::try_from(payload.len()).map_err(|_| CarrierError::TooLong)?;
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..].copy_from_slice(&crc32(payload).to_le_bytes());
    Ok(header)
}

/// Bits of a frame, most significant first, with zeros behind its end.
#[derive(Clone, Copy, Debug)]
pub struct Bits<'a> {
    header: [u8; HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> Bits<'a> {
    /// Of the frame around this payload.
    ///
    /// # Errors
    /// As [`header`].
    pub fn new(payload: &'a [u8]) -> Result<Bits<'a>, CarrierError> {
        Ok(Bits { header: header(payload)?, payload })
    }

    /// How many bits the frame has.
    pub fn count(&self) -> u64 {
        8 * (HEADER_BYTES + self.payload.len()) as u64
    }

    /// `count` bits (1 to 32) from the bit `at` on.
    #[inline(always)]
    pub fn get(&self, at: u64, count: u32) -> u32 {
        let byte = (at / 8) as usize;
        let eight = match byte.checked_sub(HEADER_BYTES).and_then(|from| self.payload.get(from..from + 8)) {
            Some(&[a, b, c, d, e, f, g, h]) => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            _ => self.at_an_end(byte),
        };
        ((eight << (at % 8)) >> (64 - count)) as u32
    }

    #[cold]
    #[inline(never)]
    fn at_an_end(&self, byte: usize) -> u64 {
        (0..8).fold(0, |eight, offset| {
            let at = byte + offset;
            let own = match at.checked_sub(HEADER_BYTES) {
                Some(at) => self.payload.get(at),
                None => self.header.get(at),
            };
            eight << 8 | u64::from(own.copied().unwrap_or(0))
        })
    }
}

/// A frame that is being read: bytes come, and at its end the payload is checked.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    /// How large a payload may be.
    allowed: u64,
    /// Of the whole frame; known with its header.
    length: Option<usize>,
}

impl Incoming {
    /// One that expects a payload of at most `allowed` bytes.
    pub fn new(allowed: u64) -> Incoming {
        Incoming { bytes: Vec::new(), allowed, length: None }
    }

    /// Where bytes are appended; [`Incoming::is_whole`] looks at them.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// How many bytes of it there are.
    pub fn received(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes have to be there before [`Incoming::is_whole`] can tell more.
    #[inline(always)]
    pub fn wanted(&self) -> usize {
        self.length.unwrap_or(4)
    }

    /// How many bytes it will have, once that is known.
    pub fn expected(&self) -> Option<usize> {
        self.length
    }

    /// Whether all of it is there. The length that a header claims costs no memory: only what comes does.
    ///
    /// # Errors
    /// It does not begin as a frame does, or claims more than is allowed.
    pub fn is_whole(&mut self) -> Result<bool, CarrierError> {
        let Some(length) = self.length else {
            if self.bytes.get(..4).is_some_and(|magic| magic != MAGIC) {
                return Err(CarrierError::Magic);
            }
            let Some(&[a, b, c, d]) = self.bytes.get(4..8) else { return Ok(false) };
            let claimed = u32::from_le_bytes([a, b, c, d]);
            if u64::from(claimed) > self.allowed {
                return Err(CarrierError::TooLarge { allowed: self.allowed });
            }
            let length = usize::try_from(claimed).ok().and_then(|length| length.checked_add(HEADER_BYTES));
            self.length = Some(length.ok_or(CarrierError::TooLong)?);
            return Ok(self.length.is_some_and(|length| self.bytes.len() >= length));
        };
        Ok(self.bytes.len() >= length)
    }

    /// The payload.
    ///
    /// # Errors
    /// A part of the frame is missing, or its CRC is another.
    pub fn payload(mut self) -> Result<Vec<u8>, CarrierError> {
        if !self.is_whole()? {
            return Err(CarrierError::Truncated);
        }
        let length = self.length.ok_or(CarrierError::Truncated)?;
        let crc = match self.bytes.get(8..HEADER_BYTES) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            _ => return Err(CarrierError::Truncated),
        };
        self.bytes.truncate(length);
        self.bytes.drain(..HEADER_BYTES);
        match crc32(&self.bytes) == crc {
            true => Ok(self.bytes),
            false => Err(CarrierError::Crc),
        }
    }
}

/// Eight tables, so that eight bytes are taken at a time.
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
};

/// CRC-32 as IEEE 802.3 defines it (reflected, polynomial 0x04C11DB7).
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let low = crc ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
        crc = TABLES[7][(low & 0xff) as usize]
            ^ TABLES[6][(low >> 8 & 0xff) as usize]
            ^ TABLES[5][(low >> 16 & 0xff) as usize]
            ^ TABLES[4][(low >> 24) as usize]
            ^ TABLES[3][usize::from(eight[4])]
            ^ TABLES[2][usize::from(eight[5])]
            ^ TABLES[1][usize::from(eight[6])]
            ^ TABLES[0][usize::from(eight[7])];
    }
    for byte in eights.remainder() {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        let bytes: Vec<u8> = (0..=255).cycle().take(1003).collect();
        let slow = bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (0xedb8_8320 * (crc & 1)))
        });
        assert_eq!(crc32(&bytes), !slow);
    }

    #[test]
    fn bits_are_the_frames_and_zeros_behind_them() {
        let payload: Vec<u8> = (0..40_u8).map(|n| n.wrapping_mul(37)).collect();
        let bits = Bits::new(&payload).unwrap();
        let mut whole = header(&payload).unwrap().to_vec();
        whole.extend_from_slice(&payload);
        whole.extend_from_slice(&[0; 16]);
        let bit = |at: u64| whole[(at / 8) as usize] >> (7 - at % 8) & 1;
        for at in 0..bits.count() + 32 {
            for count in [1, 7, 8, 25, 32] {
                let expected = (at..at + u64::from(count)).fold(0, |sum, at| sum << 1 | u32::from(bit(at)));
                assert_eq!(bits.get(at, count), expected, "{count} bits at {at}");
            }
        }
    }

    #[test]
    fn a_frame_comes_whole_or_says_what_is_wrong() {
        let payload = b"some payload";
        let mut frame = header(payload).unwrap().to_vec();
        frame.extend_from_slice(payload);
        let read = |bytes: &[u8]| {
            let mut incoming = Incoming::new(100);
            incoming.bytes().extend_from_slice(bytes);
            incoming.payload()
        };
        assert_eq!(read(&frame).unwrap(), payload);
        assert_eq!(read(&[&frame[..], b"more"].concat()).unwrap(), payload);
        for cut in 0..frame.len() {
            assert_eq!(read(&frame[..cut]), Err(CarrierError::Truncated), "{cut}");
        }
        let changed = |at: usize| {
            let mut frame = frame.clone();
            frame[at] ^= 0x40;
            read(&frame)
        };
        assert_eq!(changed(2), Err(CarrierError::Magic));
        assert_eq!(changed(5), Err(CarrierError::TooLarge { allowed: 100 }));
        assert_eq!(changed(9), Err(CarrierError::Crc));
        assert_eq!(changed(20), Err(CarrierError::Crc));
    }
}
