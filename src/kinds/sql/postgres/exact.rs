//! Converts the database's JSON, if no information is lost. PostgreSQL's numbers have any number of
//! digits, but here a number is a 64-bit integer or a double. And only one value of a duplicate key
//! would remain.

use crate::call::json::parse_strict;
use serde_json::Value;

/// The value; `None` if information of the text would be lost.
pub(super) fn parse_exact(text: &str) -> Option<Value> {
    let value = parse_strict(text.as_bytes()).ok()?;
    number_literals(text).all(is_exact).then_some(value)
}

/// The numbers in a JSON text, as written.
fn number_literals(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    let mut in_text = false;
    std::iter::from_fn(move || {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'\\' if in_text => at += 1,
                b'"' => in_text = !in_text,
                b'-' | b'0'..=b'9' if !in_text => {
                    let part = |b: &u8| {
                        b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E')
                    };
                    let length = bytes[at..]
                        .iter()
                        .position(|b| !part(b))
                        .unwrap_or(bytes.len() - at);
                    at += length;
                    return text.get(at - length..at);
                }
                _ => {}
            }
            at += 1;
        }
        None
    })
}

/// Whether the parsed number equals the written one. Integers are kept exactly, as 64-bit integers;
/// an integer outside of that range has been refused by the parser.
fn is_exact(written: &str) -> bool {
    if !written.contains(['.', 'e', 'E']) {
        return true;
    }
    match written.parse::<f64>() {
        Ok(double) => {
            double.is_finite()
                && normalize_decimal(written) == normalize_decimal(&format!("{double:e}"))
        }
        Err(_) => false,
    }
}

/// The digits without zeros at either end, and the power of ten of the last digit.
fn normalize_decimal(written: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = written.split_once(['e', 'E']).unwrap_or((written, "0"));
    let (integer, fraction) = mantissa
        .trim_start_matches('-')
        .split_once('.')
        .unwrap_or((mantissa.trim_start_matches('-'), ""));
    let digits = [integer, fraction].concat();
    let trimmed = digits.trim_end_matches('0');
    let power = exponent.parse::<i64>().ok()? - fraction.len() as i64
        + (digits.len() - trimmed.len()) as i64;
    let trimmed = trimmed.trim_start_matches('0');
    Some(if trimmed.is_empty() {
        (String::new(), 0)
    } else {
        (trimmed.to_owned(), power)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inexact_json_is_refused() {
        for exact in [
            "{\"a\": [1, -2.50, 9223372036854775807, 0.1, 1e22, 100.0, 0.0, -0.0, 1E-7], \"12.345678901234567890\": \"1e999\"}",
            "18446744073709551615",
            "null",
            "0.1234567890123456",
        ] {
            assert!(parse_exact(exact).is_some(), "{exact}");
        }
        for inexact in [
            "12345678901234567890123",
            "[0.12345678901234567890]",
            "1e400",
            "1e-400",
            "{\"a\": 1, \"a\": 2}",
            "9007199254740993.0",
        ] {
            assert!(parse_exact(inexact).is_none(), "{inexact}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_double_is_exact(number in proptest::num::f64::NORMAL) {
            let written = format!("{number:e}");
            proptest::prop_assert!(parse_exact(&written).is_some());
        }
    }
}
