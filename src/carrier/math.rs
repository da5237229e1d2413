//! Exponentials, logarithms, powers, `tanh` and `cos`, the same on every machine.
//!
//! The C library's differ in the last bit from machine to machine, and counts must not. So these are
//! written out in additions, multiplications, divisions and square roots of 64-bit IEEE numbers, which
//! are the same everywhere (i686 is built for SSE2; the x87 unit does none of them), and of `round` and a fused
//! multiply-add, which a C library may do, but have one right result. `make carrier-i686` compares.
//!
//! Trained models are compared with those of a reference that runs on a C library. Where a last bit of
//! its functions would show there, its method is followed:
//!
//! * [`exp`] is the method of glibc since 2.28 (table of 128 powers, polynomial of degree 5, error below
//!   0.511 units in the last place). With `FUSED` its multiplications and additions are rounded together,
//!   as glibc's code for processors with FMA does; that is exact too, only slow where the processor lacks it.
//! * [`tanh`] is that of fdlibm by way of `expm1`, whose polynomial is summed in glibc's order; `FUSED` as above.
//!
//! [`ln`], [`pow`] and [`cos`] are rounded correctly but for about one argument in 10⁴, and so, less often, are
//! glibc's: what is made with them is either rounded to 12 digits or turned into counts. To follow glibc's `log`
//! too would not make trained models equal to the reference's everywhere, because it differs from itself between
//! processors with FMA and without, more often than from this (docs/CARRIERS.md).

use std::sync::OnceLock;

/// A sum of two numbers of which the second is below half a unit of the first: some 106 bits.
#[derive(Clone, Copy, Debug)]
struct Pair {
    high: f64,
    low: f64,
}

const LN2: Pair =
    Pair { high: f64::from_bits(0x3fe6_2e42_fefa_39ef), low: f64::from_bits(0x3c7a_bc9e_3b39_803f) };

/// π/2.
const QUARTER: Pair = Pair { high: std::f64::consts::FRAC_PI_2, low: f64::from_bits(0x3c91_a626_3314_5c07) };

/// e^x. `FUSED`: as glibc computes it where the processor has FMA.
#[inline(always)]
pub fn exp<const FUSED: bool>(x: f64) -> f64 {
    // Beyond these the result is infinite or 0; NaN stays.
    if x.abs() < 700.0 {
        let (tail, scale, r) = reduced::<FUSED>(x, 0.0);
        let power = polynomial::<FUSED>(tail, r);
        return multiply_add::<FUSED>(scale, power, scale);
    }
    exp_far::<FUSED>(x)
}

/// Numbers whose exponential is near an end of the range, or beyond it.
#[cold]
fn exp_far<const FUSED: bool>(x: f64) -> f64 {
    if x.is_nan() || x >= 709.782_712_893_384 {
        return if x.is_nan() { x } else { f64::INFINITY };
    }
    if x < -745.133_219_101_941_2 {
        return 0.0;
    }
    pow_far(x, 0.0)
}

/// e^(x + tail) where the result is or may be subnormal, or is large.
#[cold]
fn pow_far(x: f64, tail: f64) -> f64 {
    const STEP: f64 = 400.0;
    // The exponent is taken apart, so that neither factor leaves the range; e^±400 as a pair keeps the digits.
    let sign = if x < 0.0 { -1.0 } else { 1.0 };
    let part = pair_exp(STEP * sign);
    let rest = pair_exp_of(two_sum(x - STEP * sign, tail));
    let (high, low) = two_product(part.high, rest.high);
    high + (low + (part.high * rest.low + part.low * rest.high))
}

/// The table's part of a number's exponential: its tail, its scale, and what is left of the number.
#[inline(always)]
fn reduced<const FUSED: bool>(x: f64, x_tail: f64) -> (f64, f64, f64) {
    const INV_LN2_N: f64 = f64::from_bits(0x3ff7_1547_652b_82fe) * 128.0;
    const LN2_HIGH_N: f64 = f64::from_bits(0xbf76_2e42_fefa_0000);
    const LN2_LOW_N: f64 = f64::from_bits(0xbd0c_f79a_bc9e_3b39);
    /// Adding it rounds to a whole number, which stands in the last bits then.
    const SHIFT: f64 = f64::from_bits(0x4338_0000_0000_0000);
    let shifted = multiply_add::<FUSED>(INV_LN2_N, x, SHIFT);
    let whole = shifted.to_bits();
    let steps = shifted - SHIFT;
    let r = multiply_add::<FUSED>(steps, LN2_LOW_N, multiply_add::<FUSED>(steps, LN2_HIGH_N, x)) + x_tail;
    let (tail, power) = powers()[(whole % 128) as usize];
    (tail, f64::from_bits(power.wrapping_add(whole << 45)), r)
}

#[inline(always)]
fn polynomial<const FUSED: bool>(tail: f64, r: f64) -> f64 {
    const C2: f64 = f64::from_bits(0x3fdf_ffff_ffff_fdbd);
    const C3: f64 = f64::from_bits(0x3fc5_5555_5555_543c);
    const C4: f64 = f64::from_bits(0x3fa5_5555_cf17_2b91);
    const C5: f64 = f64::from_bits(0x3f81_1111_67a4_d017);
    let r2 = r * r;
    let sum = multiply_add::<FUSED>(r2, multiply_add::<FUSED>(r, C3, C2), tail + r);
    multiply_add::<FUSED>(r2 * r2, multiply_add::<FUSED>(r, C5, C4), sum)
}

#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// 2^(i/128) as what it lacks, relatively, and as bits less `i << 45`, to which the exponent is added.
fn powers() -> &'static [(f64, u64); 128] {
    static POWERS: OnceLock<[(f64, u64); 128]> = OnceLock::new();
    POWERS.get_or_init(|| {
        let step = (0..7).fold(Pair { high: 2.0, low: 0.0 }, |root, _| pair_sqrt(root));
        let mut power = Pair { high: 1.0, low: 0.0 };
        std::array::from_fn(|index| {
            let entry = (power.low / power.high, power.high.to_bits().wrapping_sub((index as u64) << 45));
            power = pair_times(power, step);
            entry
        })
    })
}

/// The hyperbolic tangent. `FUSED`: as glibc computes it where the processor has FMA.
#[inline(always)]
pub fn tanh<const FUSED: bool>(x: f64) -> f64 {
    let size = x.abs();
    if size.is_nan() {
        return x;
    }
    let value = if size < 22.0 {
        if size < f64::from_bits(0x3c80_0000_0000_0000) {
            return x * (1.0 + x);
        }
        if size >= 1.0 {
            let t = expm1::<FUSED>(2.0 * size);
            1.0 - 2.0 / (t + 2.0)
        } else {
            let t = expm1::<FUSED>(-2.0 * size);
            -t / (t + 2.0)
        }
    } else {
        1.0
    };
    if x < 0.0 {
        -value
    } else {
        value
    }
}

/// e^x − 1 for −2 < x < 44.
#[inline(always)]
fn expm1<const FUSED: bool>(x: f64) -> f64 {
    const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
    const INV_LN2: f64 = f64::from_bits(0x3ff7_1547_652b_82fe);
    const Q: [f64; 5] = [
        f64::from_bits(0xbfa1_1111_1111_10f4),
        f64::from_bits(0x3f5a_01a0_19fe_5585),
        f64::from_bits(0xbf14_ce19_9eaa_dbb7),
        f64::from_bits(0x3ed0_cfca_86e6_5239),
        f64::from_bits(0xbe8a_fdb7_6e09_c32d),
    ];
    let high_word = (x.to_bits() >> 32) as u32 & 0x7fff_ffff;
    let (k, x, c) = if high_word > 0x3fd6_2e42 {
        let (k, high, low) = if high_word < 0x3ff0_a2b2 {
            match x > 0.0 {
                true => (1, x - LN2_HIGH, LN2_LOW),
                false => (-1, x + LN2_HIGH, -LN2_LOW),
            }
        } else {
            let k = multiply_add::<FUSED>(INV_LN2, x, if x > 0.0 { 0.5 } else { -0.5 }) as i32;
            let t = f64::from(k);
            (k, multiply_add::<FUSED>(-t, LN2_HIGH, x), t * LN2_LOW)
        };
        let rest = high - low;
        (k, rest, (high - rest) - low)
    } else if high_word < 0x3c90_0000 {
        return x;
    } else {
        (0, x, 0.0)
    };
    let half = 0.5 * x;
    let s = x * half;
    let s2 = s * s;
    let sum =
        multiply_add::<FUSED>(s2, multiply_add::<FUSED>(s, Q[2], Q[1]), multiply_add::<FUSED>(s, Q[0], 1.0));
    let r1 = multiply_add::<FUSED>(s2 * s2, multiply_add::<FUSED>(s, Q[4], Q[3]), sum);
    let t = multiply_add::<FUSED>(-r1, half, 3.0);
    let e = s * ((r1 - t) / multiply_add::<FUSED>(-x, t, 6.0));
    if k == 0 {
        return x - multiply_add::<FUSED>(x, e, -s);
    }
    let e = multiply_add::<FUSED>(x, e - c, -c) - s;
    let scaled = |y: f64| f64::from_bits(y.to_bits().wrapping_add((k as i64 as u64) << 52));
    match k {
        -1 => 0.5 * (x - e) - 0.5,
        1 if x < -0.25 => -2.0 * (e - (x + 0.5)),
        1 => 1.0 + 2.0 * (x - e),
        ..=-2 | 57.. => scaled(1.0 - (e - x)) - 1.0,
        2..=19 => scaled((1.0 - power_of_two(-k)) - (e - x)),
        _ => scaled((x - (e + power_of_two(-k))) + 1.0),
    }
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// The natural logarithm of a positive finite number.
pub fn ln(x: f64) -> f64 {
    let pair = pair_ln(x);
    pair.high + pair.low
}

/// The logarithm to the base 2, to some 10⁻¹⁵; of a positive finite number.
pub fn log2(x: f64) -> f64 {
    const LOG2_E: Pair = Pair { high: std::f64::consts::LOG2_E, low: 2.035_527_374_093_103_3e-17 };
    let pair = pair_times(pair_ln(x), LOG2_E);
    pair.high + pair.low
}

/// x^y for x from 0 to 1 and y above 0 (also infinite).
pub fn pow(x: f64, y: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x == 1.0 || y == 1.0 {
        return x;
    }
    let log = pair_ln(x);
    let (high, low) = two_product(log.high, y);
    if high < -745.5 {
        return 0.0;
    }
    let low = low + log.low * y;
    if high.abs() < 700.0 {
        let (tail, scale, r) = reduced::<false>(high, low);
        return scale + scale * polynomial::<false>(tail, r);
    }
    pow_far(high, low)
}

/// The cosine of a number from 0 to 10^8, as glibc computes it where the processor has FMA.
pub fn cos(x: f64) -> f64 {
    const QUARTER_INVERSE: f64 = f64::from_bits(0x3fe4_5f30_6dc9_c883);
    const SHIFT: f64 = f64::from_bits(0x4338_0000_0000_0000);
    /// π/2 in four parts, of which the first two are short.
    const PARTS: [f64; 4] = [
        f64::from_bits(0x3ff9_21fb_5800_0000),
        f64::from_bits(0xbe4d_de97_3c00_0000),
        f64::from_bits(0xbc8c_b3b3_9800_0000),
        f64::from_bits(0xbacd_747f_23e3_2ed7),
    ];
    let high_word = (x.to_bits() >> 32) as u32;
    if high_word < 0x3e40_0000 {
        return 1.0;
    }
    if high_word < 0x3feb_6000 {
        return near_cos(x, 0.0);
    }
    if high_word < 0x4003_68fd {
        let y = QUARTER.high - x;
        let a = y + QUARTER.low;
        return near_sin(a, (y - a) + QUARTER.low);
    }
    let shifted = x.mul_add(QUARTER_INVERSE, SHIFT);
    let turns = shifted - SHIFT;
    let y = (-turns).mul_add(PARTS[1], (-turns).mul_add(PARTS[0], x));
    let y2 = (-turns).mul_add(PARTS[2], y);
    let tail = (-turns).mul_add(PARTS[2], y - y2);
    let a = (-turns).mul_add(PARTS[3], y2);
    let tail = tail + (-turns).mul_add(PARTS[3], y2 - a);
    let quarter = shifted.to_bits() & 3;
    let value = if quarter & 1 == 0 { near_cos(a, tail) } else { near_sin(a, tail) };
    if quarter == 1 || quarter == 2 {
        -value
    } else {
        value
    }
}

const SN3: f64 = -1.666_666_666_666_648_8e-1;
const SN5: f64 = 8.333_332_142_857_223e-3;
const CS2: f64 = 0.5;
const CS4: f64 = -4.166_666_666_666_644e-2;
const CS6: f64 = 1.388_888_740_079_376e-3;
/// Adding it rounds to a 128th, the number of which stands in the last bits then.
const STEPS: f64 = f64::from_bits(0x42c8_0000_0000_0000);

/// cos(x + tail) for |x| below 0.86.
fn near_cos(x: f64, tail: f64) -> f64 {
    let tail = if x < 0.0 { -tail } else { tail };
    let step = STEPS + x.abs();
    let x = x.abs() - (step - STEPS) + tail;
    let xx = x * x;
    let s = (x * xx).mul_add(xx.mul_add(SN5, SN3), x);
    let c = xx * xx.mul_add(xx.mul_add(CS6, CS4), CS2);
    let (sin, cos) = sines()[(step.to_bits() & 255) as usize];
    let rest = (-cos.high).mul_add(c, (-s).mul_add(sin.low, cos.low));
    cos.high + (-sin.high).mul_add(s, rest)
}

/// sin(x + tail) for |x| below 0.86.
fn near_sin(x: f64, tail: f64) -> f64 {
    const S: [f64; 5] = [
        f64::from_bits(0xbfc5_5555_5555_5555),
        f64::from_bits(0x3f81_1111_1111_0ece),
        f64::from_bits(0xbf2a_01a0_19db_08b8),
        f64::from_bits(0x3ec7_1de2_7b9a_7ed9),
        f64::from_bits(0xbe5a_ddff_c2fc_df59),
    ];
    if x.abs() < 0.126 {
        let xx = x * x;
        let sum = S[4].mul_add(xx, S[3]).mul_add(xx, S[2]).mul_add(xx, S[1]).mul_add(xx, S[0]);
        return x + sum.mul_add(x, -0.5 * tail).mul_add(xx, tail);
    }
    let tail = if x <= 0.0 { -tail } else { tail };
    let step = STEPS + x.abs();
    let rest = x.abs() - (step - STEPS);
    let xx = rest * rest;
    let s = rest + (rest * xx).mul_add(xx.mul_add(SN5, SN3), tail);
    let c = rest.mul_add(tail, xx * xx.mul_add(xx.mul_add(CS6, CS4), CS2));
    let (sin, cos) = sines()[(step.to_bits() & 255) as usize];
    let sum = (-sin.high).mul_add(c, s.mul_add(cos.low, sin.low));
    (sin.high + cos.high.mul_add(s, sum)).copysign(x)
}

/// Sine and cosine of the 128ths up to 1.
fn sines() -> &'static [(Pair, Pair); 129] {
    static SINES: OnceLock<[(Pair, Pair); 129]> = OnceLock::new();
    SINES.get_or_init(|| {
        std::array::from_fn(|index| {
            let x = index as f64 / 128.0;
            let one = Pair { high: 1.0, low: 0.0 };
            (series(1.0, Pair { high: x, low: 0.0 }, x), series(0.0, one, x))
        })
    })
}

/// The Taylor series of the sine or the cosine, whose first term has the power `first`.
fn series(first: f64, mut term: Pair, x: f64) -> Pair {
    let square = pair_times(Pair { high: x, low: 0.0 }, Pair { high: x, low: 0.0 });
    let mut sum = term;
    // x is at most 1: fourteen more terms reach below 2^-106.
    for step in 0..14 {
        let n = first + 2.0 * f64::from(step) + 1.0;
        term = pair_over(pair_times(term, square), -(n * (n + 1.0)));
        sum = pair_plus(sum, term);
    }
    sum
}

fn pair_exp(x: f64) -> Pair {
    pair_exp_of(Pair { high: x, low: 0.0 })
}

/// e^x as a pair, by 2^k · (Taylor of x/2^9)^(2^9); for |x| below 700.
fn pair_exp_of(x: Pair) -> Pair {
    let turns = (x.high / LN2.high).round();
    let rest = pair_plus(x, pair_scaled(LN2, -turns));
    let small = Pair { high: rest.high / 512.0, low: rest.low / 512.0 };
    let one = Pair { high: 1.0, low: 0.0 };
    let (mut term, mut sum) = (one, one);
    for n in 1..14 {
        term = pair_over(pair_times(term, small), f64::from(n));
        sum = pair_plus(sum, term);
    }
    for _ in 0..9 {
        sum = pair_times(sum, sum);
    }
    let scale = power_of_two(turns as i32);
    Pair { high: sum.high * scale, low: sum.low * scale }
}

/// ln x as a pair: x = 2^k · m, and m times a reciprocal of few digits is near 1.
fn pair_ln(x: f64) -> Pair {
    let (x, extra) = if x < f64::MIN_POSITIVE { (x * power_of_two(54), -54) } else { (x, 0) };
    let bits = x.to_bits();
    let k = (bits >> 52) as i32 - 1023 + extra;
    let m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let (inverse, log) = reciprocals()[(bits >> 45 & 127) as usize];
    let (high, low) = two_product(m, inverse);
    let r = two_sum(high - 1.0, low);
    let square = pair_times(r, r);
    let x = r.high;
    let rest = x
        * x
        * x
        * (1.0 / 3.0
            + x * (-1.0 / 4.0
                + x * (1.0 / 5.0 + x * (-1.0 / 6.0 + x * (1.0 / 7.0 + x * (-1.0 / 8.0 + x / 9.0))))));
    let near = pair_plus(
        r,
        pair_plus(Pair { high: -0.5 * square.high, low: -0.5 * square.low }, two_sum(rest, 0.0)),
    );
    pair_plus(pair_plus(pair_scaled(LN2, f64::from(k)), log), near)
}

/// For each 128th between 1 and 2 a reciprocal of ten digits, and the logarithm of what it is the reciprocal of.
fn reciprocals() -> &'static [(f64, Pair); 128] {
    static RECIPROCALS: OnceLock<[(f64, Pair); 128]> = OnceLock::new();
    RECIPROCALS.get_or_init(|| {
        std::array::from_fn(|index| {
            let middle = 1.0 + (index as f64 + 0.5) / 128.0;
            // Exactly 1 at the start, where the logarithm is small and must not be a difference.
            let inverse = if index == 0 { 1.0 } else { (1024.0 / middle).round() / 1024.0 };
            // ln(1/a) = -2 artanh((a - 1) / (a + 1)).
            let z = pair_divided(inverse - 1.0, inverse + 1.0);
            let square = pair_times(z, z);
            let (mut power, mut sum) = (z, z);
            for n in 1..40 {
                power = pair_times(power, square);
                sum = pair_plus(sum, pair_over(power, f64::from(2 * n + 1)));
            }
            (inverse, Pair { high: -2.0 * sum.high, low: -2.0 * sum.low })
        })
    })
}

/// a + b exactly.
fn two_sum(a: f64, b: f64) -> Pair {
    let high = a + b;
    let of_b = high - a;
    Pair { high, low: (a - (high - of_b)) + (b - of_b) }
}

/// a · b exactly, where nothing under- or overflows (Dekker's).
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let split = |x: f64| {
        let wide = x * 134_217_729.0;
        let high = wide - (wide - x);
        (high, x - high)
    };
    let high = a * b;
    let ((a1, a2), (b1, b2)) = (split(a), split(b));
    (high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2)
}

fn pair_plus(a: Pair, b: Pair) -> Pair {
    let (high, low) = (two_sum(a.high, b.high), two_sum(a.low, b.low));
    let middle = two_sum(high.high, high.low + low.high);
    two_sum(middle.high, middle.low + low.low)
}

fn pair_times(a: Pair, b: Pair) -> Pair {
    let (high, low) = two_product(a.high, b.high);
    two_sum(high, low + (a.high * b.low + a.low * b.high))
}

fn pair_scaled(a: Pair, by: f64) -> Pair {
    pair_times(a, Pair { high: by, low: 0.0 })
}

fn pair_over(a: Pair, by: f64) -> Pair {
    let high = a.high / by;
    let (product, rest) = two_product(high, by);
    two_sum(high, ((a.high - product) - rest + a.low) / by)
}

fn pair_divided(a: f64, b: f64) -> Pair {
    pair_over(Pair { high: a, low: 0.0 }, b)
}

fn pair_sqrt(a: Pair) -> Pair {
    let root = a.high.sqrt();
    let (square, rest) = two_product(root, root);
    two_sum(root, ((a.high - square) - rest + a.low) / (2.0 * root))
}

#[cfg(test)]
#[path = "math_tests.rs"]
mod tests;
