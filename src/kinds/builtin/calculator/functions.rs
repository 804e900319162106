//! The constants and functions of the calculator.

use std::f64::consts;

use super::number::{CalculationError, Number, round_to_15_digits};

/// The constants, by name.
pub(super) const CONSTANTS: [(&str, f64); 3] =
    [("pi", consts::PI), ("e", consts::E), ("tau", consts::TAU)];

/// The names of the functions.
pub(super) const FUNCTIONS: [&str; 20] = [
    "sqrt",
    "abs",
    "round",
    "floor",
    "ceil",
    "min",
    "max",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "log",
    "ln",
    "log2",
    "log10",
    "exp",
    "factorial",
    "pow",
];

/// The value of a function for these arguments.
pub(super) fn apply_function(name: &str, arguments: &[Number]) -> Result<Number, CalculationError> {
    use Number::{Float, Int};
    let double = |function: fn(f64) -> f64| match arguments {
        [x] => Number::from_f64(function(x.as_f64())),
        _ => Err(format!("`{name}` takes one number")),
    };
    match (name, arguments) {
        ("abs", &[x]) if x.as_f64() < 0.0 => x.neg(),
        ("abs", &[x]) => Ok(x),
        ("sqrt", [x]) if x.as_f64() < 0.0 => {
            Err("there is no real square root of a negative number".into())
        }
        ("round" | "floor" | "ceil", &[x @ Int(_)]) => Ok(x),
        // Rounds the value that is shown (15 digits). As a double, 2.675 is slightly less, but
        // round(2.675, 2) must be 2.68.
        ("round", &[Float(x)]) => Ok(Number::from_whole_f64(round_to_15_digits(x).round())),
        ("floor", &[Float(x)]) => Ok(Number::from_whole_f64(round_to_15_digits(x).floor())),
        ("ceil", &[Float(x)]) => Ok(Number::from_whole_f64(round_to_15_digits(x).ceil())),
        ("round", &[x, Int(digits)]) => round_to_digits(x, digits),
        ("round", _) => {
            Err("`round` takes a number and, if you like, a whole number of digits".into())
        }
        ("min", [first, rest @ ..]) => Ok(rest
            .iter()
            .fold(*first, |a, &b| if b.compare(a).is_lt() { b } else { a })),
        ("max", [first, rest @ ..]) => Ok(rest
            .iter()
            .fold(*first, |a, &b| if b.compare(a).is_gt() { b } else { a })),
        ("min" | "max", []) => Err(format!("`{name}` takes at least one number")),
        ("ln" | "log2" | "log10", [x]) | ("log", [x] | [x, _]) if x.as_f64() <= 0.0 => {
            Err("a logarithm needs a number above zero".into())
        }
        ("log", [_, base]) if base.as_f64() <= 0.0 || base.as_f64() == 1.0 => {
            Err("the base of a logarithm must be above zero and not 1".into())
        }
        ("log", [x, base]) => Number::from_f64(x.as_f64().ln() / base.as_f64().ln()),
        ("log", []) | ("log", [_, _, _, ..]) => {
            Err("`log` takes a number and, if you like, a base".into())
        }
        ("pow", &[x, y]) => x.pow(y),
        ("pow", _) => Err("`pow` takes two numbers".into()),
        ("factorial", &[x]) => factorial(x),
        ("sqrt", _) => double(f64::sqrt),
        ("sin", _) => double(f64::sin),
        ("cos", _) => double(f64::cos),
        ("tan", _) => double(f64::tan),
        ("asin", _) => double(f64::asin),
        ("acos", _) => double(f64::acos),
        ("atan", _) => double(f64::atan),
        ("log" | "ln", _) => double(f64::ln),
        ("log2", _) => double(f64::log2),
        ("log10", _) => double(f64::log10),
        ("exp", _) => double(f64::exp),
        // `abs`, `floor`, `ceil` and `factorial` without exactly one number.
        _ => Err(format!("`{name}` takes one number")),
    }
}

/// Rounds half away from zero. Negative digits round to tens, hundreds and so on.
fn round_to_digits(x: Number, digits: i128) -> Result<Number, CalculationError> {
    let digits = i32::try_from(digits.clamp(-400, 400)).unwrap_or(0);
    match x {
        Number::Int(n) if digits >= 0 => Ok(Number::Int(n)),
        Number::Int(n) => {
            let Some(unit) = 10_i128.checked_pow(digits.unsigned_abs()) else {
                return Ok(Number::Int(0));
            };
            let half = if n < 0 { -(unit / 2) } else { unit / 2 };
            let rounded = n
                .checked_add(half)
                .and_then(|n| (n / unit).checked_mul(unit));
            rounded
                .map(Number::Int)
                .ok_or_else(|| "the result is too large".into())
        }
        // A double has no more digits than this.
        Number::Float(x) if digits > 15 => Ok(Number::Float(x)),
        Number::Float(x) => {
            let unit = 10_f64.powi(digits.abs());
            let rounded = if digits >= 0 {
                round_to_15_digits(x * unit).round() / unit
            } else {
                round_to_15_digits(x / unit).round() * unit
            };
            // The product is not finite: `x` is too large to have these digits, or the unit is
            // larger than any double.
            Ok(
                Number::from_f64(rounded).unwrap_or(Number::Float(if digits >= 0 {
                    x
                } else {
                    0.0
                })),
            )
        }
    }
}

fn factorial(x: Number) -> Result<Number, CalculationError> {
    let n = match x {
        Number::Int(n) => n,
        Number::Float(x) if x.fract() == 0.0 => x as i128,
        Number::Float(_) => -1,
    };
    match n {
        0..=170 => (2..=n).try_fold(Number::Int(1), |product, factor| {
            product.mul(Number::Int(factor))
        }),
        171.. => Err("the result is too large: `factorial` goes up to 170".into()),
        _ => Err("`factorial` takes a whole number from 0 to 170".into()),
    }
}
