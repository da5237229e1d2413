//! Ed25519: `ring` signs and checks, and here stands what it leaves to its callers: which public keys are none.
//!
//! `ring` refuses a key that is no point of the curve, but says so only when a signature is checked, and it
//! takes the few weak ones, with which a signature can be valid for any message. Both are known from the
//! 32 bytes alone, by some arithmetic in the field of 2²⁵⁵ − 19. It works on public keys, so its time may
//! depend on them.

use ring::signature::{Ed25519KeyPair, KeyPair as _, UnparsedPublicKey, ED25519};

/// How many bytes a private and a public key have.
pub const KEY: usize = 32;
/// How many bytes a signature has.
pub const SIGNATURE: usize = 64;

fn pair(private: &[u8; KEY]) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(private).expect("any 32 bytes are a private key")
}

/// The public key of a private one.
pub fn public(private: &[u8; KEY]) -> [u8; KEY] {
    let pair = pair(private);
    pair.public_key().as_ref().try_into().expect("a public key has 32 bytes")
}

/// The signature of a message.
pub fn sign(private: &[u8; KEY], message: &[u8]) -> [u8; SIGNATURE] {
    let signature = pair(private).sign(message);
    signature.as_ref().try_into().expect("a signature has 64 bytes")
}

/// Whether it is the key's signature of the message. With a key that is not [`is_usable`] none is.
pub fn verify(key: &[u8; KEY], message: &[u8], signature: &[u8]) -> bool {
    is_usable(key) && UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

/// Whether these bytes are a point of the curve −x² + y² = 1 + dx²y², and none of the eight whose
/// multiples are few.
///
/// The bytes are y and the sign of x. With u = y² − 1 and v = dy² + 1 the equation is x² = u/v, so there
/// is an x if u/v is a square, and with it uv. The weak points are those with x = 0, where u is 0 and uv
/// counts as none; with y = 0; and those whose doubles have y = 0: there x² = −y², which is y²v + u = 0.
pub fn is_usable(key: &[u8; KEY]) -> bool {
    let y = Element::from_bytes(key);
    let square = y.times(y);
    let u = square.plus(MINUS_ONE);
    let v = D.times(square).plus(ONE);
    u.times(v).is_nonzero_square() && !y.times(square.times(v).plus(u)).is_zero()
}

/// A number modulo p = 2²⁵⁵ − 19, lowest limb first; any number below 2²⁵⁶ stands for its remainder.
#[derive(Clone, Copy)]
struct Element([u64; 4]);

const P: [u64; 4] = [0xffff_ffff_ffff_ffed, u64::MAX, u64::MAX, 0x7fff_ffff_ffff_ffff];
const ONE: Element = Element([1, 0, 0, 0]);
const MINUS_ONE: Element = Element([P[0] - 1, P[1], P[2], P[3]]);
/// The curve's d, −121665/121666.
const D: Element =
    Element([0x75eb_4dca_1359_78a3, 0x0070_0a4d_4141_d8ab, 0x8cc7_4079_7779_e898, 0x5203_6cee_2b6f_fe73]);

impl Element {
    /// Without the topmost bit, which is the sign of x.
    fn from_bytes(bytes: &[u8; KEY]) -> Element {
        let mut limbs = [0; 4];
        for (limb, bytes) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
            *limb = bytes.iter().rev().fold(0, |limb, byte| limb << 8 | u64::from(*byte));
        }
        limbs[3] &= u64::MAX >> 1;
        Element(limbs)
    }

    fn plus(self, other: Element) -> Element {
        let mut sum = [0; 8];
        let mut carry = 0;
        for (at, limb) in sum.iter_mut().take(4).enumerate() {
            let wide = u128::from(self.0[at]) + u128::from(other.0[at]) + carry;
            (*limb, carry) = halves(wide);
        }
        sum[4] = carry as u64;
        reduced(&sum)
    }

    fn times(self, other: Element) -> Element {
        let mut product = [0; 8];
        for (at, left) in self.0.into_iter().enumerate() {
            let mut carry = 0;
            for (limb, right) in product[at..].iter_mut().zip(other.0) {
                let wide = u128::from(left) * u128::from(right) + u128::from(*limb) + carry;
                (*limb, carry) = halves(wide);
            }
            product[at + 4] = carry as u64;
        }
        reduced(&product)
    }

    /// By Euler: the power (p − 1)/2 of a square is 1, of another number −1, of 0 it is 0.
    fn is_nonzero_square(self) -> bool {
        // (p − 1)/2 is 2²⁵⁴ − 10: 250 ones, and 0110.
        let ones = (0..250).fold(ONE, |power, _| power.times(power).times(self));
        let power = [false, true, true, false].into_iter().fold(ones, |power, one| {
            let power = power.times(power);
            if one {
                power.times(self)
            } else {
                power
            }
        });
        power.plus(MINUS_ONE).is_zero()
    }

    /// Below 2²⁵⁶ there are three multiples of p.
    fn is_zero(self) -> bool {
        const TWICE: [u64; 4] = [P[0] << 1, u64::MAX, u64::MAX, u64::MAX];
        [[0; 4], P, TWICE].contains(&self.0)
    }
}

/// The lower limb, and what is carried to the next.
fn halves(wide: u128) -> (u64, u128) {
    (wide as u64, wide >> 64)
}

/// What is above 2²⁵⁶ counts 38 times below, because 2²⁵⁶ − 38 is 2p.
fn reduced(wide: &[u64; 8]) -> Element {
    let mut limbs = [0; 4];
    let mut carry = 0;
    for (at, limb) in limbs.iter_mut().enumerate() {
        let sum = u128::from(wide[at]) + u128::from(wide[at + 4]) * 38 + carry;
        (*limb, carry) = halves(sum);
    }
    // The first round carries less than 39; the second at most one, and leaves room for the last.
    while carry != 0 {
        carry *= 38;
        for limb in &mut limbs {
            (*limb, carry) = halves(u128::from(*limb) + carry);
        }
    }
    Element(limbs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signature, Signer as _, SigningKey, Verifier as _, VerifyingKey};

    /// Bytes that are the same in each run.
    fn bytes(seed: u64) -> impl FnMut() -> [u8; KEY] {
        let mut state = seed;
        move || {
            std::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
        }
    }

    fn dalek_takes(key: &[u8; KEY]) -> bool {
        VerifyingKey::from_bytes(key).is_ok_and(|key| !key.is_weak())
    }

    /// Both ends of what 255 bits can say, each with both signs.
    fn odd_keys() -> impl Iterator<Item = [u8; KEY]> {
        (0u8..=255).flat_map(|low| {
            let small: [u8; KEY] = std::array::from_fn(|at| if at == 0 { low } else { 0 });
            let mut large = [0xff; KEY];
            large[0] = low;
            [small, large].into_iter().flat_map(|key| {
                [0, 0x80].map(|sign| {
                    let mut key = key;
                    key[KEY - 1] = key[KEY - 1] & 0x7f | sign;
                    key
                })
            })
        })
    }

    #[test]
    fn the_points_of_small_order_are_no_keys_in_any_of_their_spellings() {
        // Those of order 8 have these y.
        let hex = [
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        ];
        let mut weak: Vec<[u8; KEY]> = hex.map(|key| crate::wire::hex::decode32(key).unwrap()).into();
        // 0, 1, and −1; 0 and 1 also with p added.
        for low in [0x00, 0x01, 0xec, 0xed, 0xee] {
            let large = low > 1;
            let mut key = if large { [0xff; KEY] } else { [0; KEY] };
            key[0] = low;
            key[KEY - 1] &= 0x7f;
            weak.push(key);
        }
        for key in weak {
            for sign in [0, 0x80] {
                let mut key = key;
                key[KEY - 1] |= sign;
                assert!(!is_usable(&key) && !dalek_takes(&key), "{key:02x?}");
            }
        }
    }

    #[test]
    fn the_same_bytes_are_keys_as_elsewhere() {
        let mut next = bytes(1);
        let keys: Vec<_> = odd_keys().chain((0..500).map(|_| next())).collect();
        for key in &keys {
            assert_eq!(is_usable(key), dalek_takes(key), "{key:02x?}");
        }
        let usable = keys.iter().filter(|key| is_usable(key)).count();
        assert!((keys.len() / 3..keys.len() * 2 / 3).contains(&usable), "{usable} of {}", keys.len());
    }

    #[test]
    fn signatures_are_made_and_judged_as_elsewhere() {
        let mut next = bytes(2);
        for length in [0, 1, 128, 1000] {
            let (private, message) = (next(), vec![7; length]);
            let other = SigningKey::from_bytes(&private);
            let key = public(&private);
            assert_eq!(key, other.verifying_key().to_bytes());
            let signature = sign(&private, &message);
            assert_eq!(signature, other.sign(&message).to_bytes());
            assert!(verify(&key, &message, &signature));
            // Bits all over both halves.
            for at in (0..SIGNATURE * 8).step_by(33) {
                let mut changed = signature;
                changed[at / 8] ^= 1 << (at % 8);
                let theirs = other.verifying_key().verify(&message, &Signature::from_bytes(&changed));
                assert!(!verify(&key, &message, &changed) && theirs.is_err(), "bit {at}");
            }
            assert!(!verify(&key, b"another", &signature));
            assert!(!verify(&key, &message, &signature[..63]));
        }
    }

    #[test]
    fn the_scalar_of_a_signature_has_one_spelling() {
        let private = [1; KEY];
        let mut signature = sign(&private, b"m");
        // The group's order added: the same scalar, and no signature.
        let order = [
            0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
        ];
        let mut carry = 0;
        for (byte, added) in signature[32..].iter_mut().zip(order) {
            let sum = u16::from(*byte) + added + carry;
            (*byte, carry) = (sum as u8, sum >> 8);
        }
        assert!(!verify(&public(&private), b"m", &signature));
    }

    #[test]
    fn a_key_without_order_signs_nothing() {
        // R is the neutral point, s is 0: for `ring` alone the signature of any message with the key 1.
        let mut signature = [0; SIGNATURE];
        signature[0] = 1;
        let mut key = [0; KEY];
        key[0] = 1;
        assert!(UnparsedPublicKey::new(&ED25519, &key).verify(b"any", &signature).is_ok());
        assert!(!verify(&key, b"any", &signature));
    }
}
