//! Floating-point numbers as text, the way C and Python write them.

/// As Python's `repr`: the shortest digits that read back as the same number, and always a point or an
/// exponent; also `inf` and `nan`.
pub fn repr(value: f64) -> String {
    if !value.is_finite() {
        return format!("{value}").to_lowercase();
    }
    let shortest = format!("{value:e}");
    let (digits, exponent) = parts(&shortest);
    let mut text = match (-4..16).contains(&exponent) {
        true => positional(&digits, exponent),
        false => return signed(value, scientific(&digits, exponent)),
    };
    if !text.contains('.') {
        text.push_str(".0");
    }
    signed(value, text)
}

/// As C's `%.{precision}g`. The number has to be finite.
pub fn general(value: f64, precision: usize) -> String {
    let rounded = format!("{value:.*e}", precision - 1);
    let (mut digits, exponent) = parts(&rounded);
    let kept = digits.trim_end_matches('0').len().max(1);
    digits.truncate(kept);
    let text = match exponent >= -4 && exponent < precision as i32 {
        true => positional(&digits, exponent),
        false => scientific(&digits, exponent),
    };
    signed(value, text)
}

/// As C's `%.17g`, which reads back as the same number.
pub fn exact(value: f64) -> String {
    general(value, 17)
}

/// Rounded to that many significant digits, as Python's `float('%.{digits}g' % value)`.
pub fn rounded(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

/// Digits without a point, and the exponent of the first.
fn parts(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let digits = mantissa.chars().filter(char::is_ascii_digit).collect();
    (digits, exponent.parse().unwrap_or(0))
}

fn positional(digits: &str, exponent: i32) -> String {
    if exponent < 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
        return format!("0.{zeros}{digits}");
    }
    let whole = exponent as usize + 1;
    match digits.len() > whole {
        true => format!("{}.{}", &digits[..whole], &digits[whole..]),
        false => format!("{digits}{}", "0".repeat(whole - digits.len())),
    }
}

fn scientific(digits: &str, exponent: i32) -> String {
    let point = if digits.len() > 1 { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}{point}{}e{sign}{:02}", &digits[..1], &digits[1..], exponent.abs())
}

fn signed(value: f64, text: String) -> String {
    match value.is_sign_negative() {
        true => format!("-{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_python_writes_them() {
        for (value, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
        ] {
            assert_eq!(repr(value), text);
        }
    }

    #[test]
    fn written_as_c_writes_them() {
        for (value, text) in [
            (0.8, "0.80000000000000004"),
            (1.25, "1.25"),
            (0.0, "0"),
            (1.0, "1"),
            (0.015625, "0.015625"),
            (1e17, "1e+17"),
            (12345678901234567.0, "12345678901234568"),
            (1e-5, "1.0000000000000001e-05"),
            (100.0, "100"),
        ] {
            assert_eq!(exact(value), text);
        }
        assert_eq!(general(0.00065714, 3), "0.000657");
        assert_eq!(rounded(0.1234567890123456, 12), 0.123456789012);
        assert_eq!(rounded(-1.9999999999999, 12), -2.0);
    }
}
