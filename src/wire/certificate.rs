//! Certificates in files: PEM, the fingerprint, and how long one is good.

use super::hex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::Path;

/// The largest file of certificates that is read, bytes.
const FILE: u64 = 4 << 20;

/// The SHA-256 of a certificate. Written in hexadecimal digits; `openssl x509 -fingerprint -sha256` puts
/// colons between them, and either way is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a certificate.
    pub fn of(certificate: &[u8]) -> Fingerprint {
        Fingerprint(Sha256::digest(certificate).into())
    }

    /// Reads one.
    ///
    /// # Errors
    /// What it must be.
    pub fn parse(text: &str) -> Result<Fingerprint, String> {
        let bare = text.replace(':', "").to_ascii_lowercase();
        hex::decode32(&bare).map(Fingerprint).ok_or_else(|| {
            format!("{text:?} is no SHA-256 fingerprint of a certificate: 64 hexadecimal digits, with or without colons")
        })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The certificates in a PEM file, in their order; at least one.
///
/// # Errors
/// The file can't be read, or holds none; names the file.
pub fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(file)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| format!("{}: it is not PEM: {error}", file.display()))?;
    match all.is_empty() {
        true => {
            Err(format!("{}: there is no certificate in it (-----BEGIN CERTIFICATE-----)", file.display()))
        }
        false => Ok(all),
    }
}

/// The private key in a PEM file: PKCS #8, PKCS #1 or SEC 1, not encrypted.
///
/// # Errors
/// The file can't be read, or holds none; names the file.
pub fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = read(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let encrypted = text.windows(9).any(|part| part == b"ENCRYPTED");
        let why = if encrypted {
            "the private key in it is encrypted; take it out with: openssl pkey -in FILE -out FILE"
        } else {
            "there is no private key in it (-----BEGIN PRIVATE KEY-----)"
        };
        format!("{}: {why}", file.display())
    })
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let reading = |error: std::io::Error| format!("reading {}: {error}", file.display());
    crate::input::read(file, FILE).map_err(reading)
}

/// Whether a certificate is good now, as far as the clock goes.
///
/// # Errors
/// Since when it is not any more, or from when on it will be; or it is no certificate.
pub fn check_time(certificate: &[u8], now: i64) -> Result<(), String> {
    let (from, until) = validity(certificate).ok_or("it is no X.509 certificate")?;
    if now > until {
        return Err(format!("the certificate has expired: it was good until {}", crate::clock::utc(until)));
    }
    if now < from {
        return Err(format!("the certificate is not good before {}", crate::clock::utc(from)));
    }
    Ok(())
}

/// From when until when it is good, Unix seconds (RFC 5280, 4.1: the fifth member of what is signed, or the
/// fourth where no version stands before them).
fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let mut outer = Der(certificate).expect(SEQUENCE)?;
    let mut signed = outer.expect(SEQUENCE)?;
    if signed.0.first() == Some(&VERSION) {
        signed.next()?;
    }
    signed.next()?; // serial number
    signed.next()?; // algorithm
    signed.next()?; // issuer
    let mut times = signed.expect(SEQUENCE)?;
    Some((time(times.next()?)?, time(times.next()?)?))
}

/// The members of a DER value.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next member: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, wanted: u8) -> Option<Der<'a>> {
        self.next().and_then(|(tag, content)| (tag == wanted).then_some(Der(content)))
    }
}

/// `YYMMDDHHMMSSZ` (UTCTime: 1950 to 2049) or `YYYYMMDDHHMMSSZ` (GeneralizedTime).
fn time((tag, content): (u8, &[u8])) -> Option<i64> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, text.len()) {
        (0x17, 12) => {
            let year: i64 = text[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        (0x18, 14) => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    let part = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let seconds = part(4)? * 3600 + part(6)? * 60 + part(8)?;
    Some(days(year, month, day)? * 86_400 + seconds)
}

/// Days since 1970-01-01: the year begins in March, so that the leap day is its last.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_with_and_without_colons() {
        let plain = "ab".repeat(32);
        let colons = ["AB"; 32].join(":");
        assert_eq!(Fingerprint::parse(&plain).unwrap(), Fingerprint::parse(&colons).unwrap());
        assert_eq!(Fingerprint::parse(&plain).unwrap().to_string(), plain);
        for wrong in ["", "ab", &"ab".repeat(31), &"xy".repeat(32), "sha1"] {
            assert!(Fingerprint::parse(wrong).unwrap_err().contains("64 hexadecimal digits"), "{wrong}");
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (tag, text, seconds) in [
            (0x17, "700101000000Z", 0),
            (0x17, "491231235959Z", 2_524_607_999),
            (0x17, "500101000000Z", -631_152_000),
            (0x18, "20500101000000Z", 2_524_608_000),
            (0x17, "240229120000Z", 1_709_208_000),
            (0x17, "240301000000Z", 1_709_251_200),
        ] {
            assert_eq!(time((tag, text.as_bytes())), Some(seconds), "{text}");
            assert_eq!(
                crate::clock::utc(seconds).replace(['-', ':', 'T'], "")[2..8],
                text[text.len() - 13..][..6]
            );
        }
        for wrong in
            ["", "Z", "2401010000Z", "240001000000Z", "240132000000Z", "24010100000éZ", "2401010000000"]
        {
            assert_eq!(time((0x17, wrong.as_bytes())), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_none_however_it_is_cut() {
        let whole = [0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x30, 0x80, 0xa0];
        for end in 0..=whole.len() {
            assert_eq!(validity(&whole[..end]), None);
        }
    }
}
