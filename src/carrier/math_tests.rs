//! Against numbers that were computed elsewhere to 60 digits and rounded once, and against the C library
//! by the interop tests. Here: known values, and that the functions agree with each other.

use super::*;
use crate::carrier::chance::Chance;

#[test]
fn the_powers_of_two_are_rounded_to_nearest() {
    // 2^(1/128), 2^(2/128) and 2^(1/2), computed to 40 digits elsewhere.
    assert_eq!(powers()[0], (0.0, 1.0_f64.to_bits()));
    let power = |index: usize| f64::from_bits(powers()[index].1 + ((index as u64) << 45));
    assert_eq!(power(1), 1.005_429_901_112_802_7);
    assert_eq!(power(2), 1.010_889_286_051_700_5);
    assert_eq!(power(64), std::f64::consts::SQRT_2);
    for index in 0..128 {
        assert!(powers()[index].0.abs() < f64::EPSILON / 2.0, "{index}");
    }
}

#[test]
fn known_values() {
    assert_eq!(exp::<false>(0.0), 1.0);
    assert_eq!(exp::<false>(1.0), std::f64::consts::E);
    assert_eq!(exp::<true>(1.0), std::f64::consts::E);
    assert_eq!(exp::<false>(-745.2), 0.0);
    assert_eq!(exp::<false>(710.0), f64::INFINITY);
    assert_eq!(exp::<false>(-745.0), 5e-324);
    assert!(exp::<false>(f64::NAN).is_nan());
    assert_eq!(ln(1.0), 0.0);
    assert_eq!(ln(2.0), std::f64::consts::LN_2);
    assert_eq!(ln(10.0), std::f64::consts::LN_10);
    assert_eq!(ln(5e-324), -744.440_071_921_381_2);
    assert_eq!(log2(8.0), 3.0);
    assert_eq!(pow(0.25, 0.5), 0.5);
    assert_eq!(pow(0.0, 0.5), 0.0);
    assert_eq!(pow(1.0, 7.0), 1.0);
    assert_eq!(pow(0.5, 1074.0), 5e-324);
    assert_eq!(pow(0.5, 1060.0), f64::from_bits(1 << 14));
    assert_eq!(pow(0.5, f64::INFINITY), 0.0);
    assert_eq!(cos(0.0), 1.0);
    assert_eq!(cos(std::f64::consts::PI), -1.0);
    assert_eq!(cos(1.0), 0.540_302_305_868_139_8);
    assert_eq!(tanh::<false>(0.0), 0.0);
    assert_eq!(tanh::<false>(1.0), 0.761_594_155_955_764_9);
    assert_eq!(tanh::<false>(-30.0), -1.0);
}

#[test]
fn the_functions_agree_with_each_other() {
    let mut chance = Chance::new(3);
    let near = |a: f64, b: f64| (a - b).abs() <= 4e-16 * b.abs();
    for _ in 0..20_000 {
        let x = chance.unit() * 40.0 - 20.0;
        let power = exp::<false>(x);
        assert!(near(power, exp::<true>(x)), "{x}");
        assert!((ln(power) - x).abs() < 1e-14, "{x}");
        let t = tanh::<false>(x / 10.0);
        assert!((t - tanh::<true>(x / 10.0)).abs() <= 2e-16, "{x}");
        let by_exp = 1.0 - 2.0 / (exp::<false>(x / 5.0) + 1.0);
        assert!((t - by_exp).abs() < 4e-16, "{x}");
        let p = chance.unit();
        assert!(near(pow(p, 0.5), p.sqrt()), "{p}");
        let c = cos(p * 6.2);
        assert!((c - (2.0 * cos(p * 3.1).powi(2) - 1.0)).abs() < 1e-15, "{p}");
    }
}
