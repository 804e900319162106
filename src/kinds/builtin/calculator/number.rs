//! Numbers: whole numbers are exact as long as they fit into 128 bits, all others are doubles.

use std::cmp::Ordering;
use std::fmt;

/// A value of the calculator. A `Float` is always finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

/// A sentence that says why there is no result.
pub(super) type CalculationError = String;

use Number::{Float, Int};

impl Number {
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Int(n) => n as f64,
            Float(x) => x,
        }
    }

    /// The number of a finite double; an error for NaN and infinity.
    pub(super) fn from_f64(x: f64) -> Result<Self, CalculationError> {
        if x.is_nan() {
            Err("there is no real result".into())
        } else if x.is_infinite() {
            Err("the result is too large".into())
        } else {
            Ok(Float(x))
        }
    }

    /// A double without a fraction as a whole number, if that is exact.
    pub(super) fn from_whole_f64(x: f64) -> Self {
        if x.abs() < 9e15 {
            Int(x as i128)
        } else {
            Float(x)
        }
    }

    /// Computes exactly if both numbers are whole and the result fits, and with doubles otherwise.
    fn compute(
        self,
        other: Self,
        exact: impl Fn(i128, i128) -> Option<i128>,
        double: impl Fn(f64, f64) -> f64,
    ) -> Result<Self, CalculationError> {
        if let (Int(a), Int(b)) = (self, other)
            && let Some(n) = exact(a, b)
        {
            return Ok(Int(n));
        }
        Self::from_f64(double(self.as_f64(), other.as_f64()))
    }

    pub(super) fn add(self, other: Self) -> Result<Self, CalculationError> {
        self.compute(other, i128::checked_add, |a, b| a + b)
    }

    pub(super) fn sub(self, other: Self) -> Result<Self, CalculationError> {
        self.compute(other, i128::checked_sub, |a, b| a - b)
    }

    pub(super) fn mul(self, other: Self) -> Result<Self, CalculationError> {
        self.compute(other, i128::checked_mul, |a, b| a * b)
    }

    pub(super) fn neg(self) -> Result<Self, CalculationError> {
        Int(0).sub(self)
    }

    pub(super) fn div(self, other: Self) -> Result<Self, CalculationError> {
        let exact = |a: i128, b: i128| (a.checked_rem(b)? == 0).then(|| a.checked_div(b)).flatten();
        self.compute(other.require_nonzero()?, exact, |a, b| a / b)
    }

    /// The quotient, rounded down also below zero: `-7 // 2` is -4.
    pub(super) fn floor_div(self, other: Self) -> Result<Self, CalculationError> {
        let exact = |a: i128, b: i128| {
            let down = a.checked_rem(b)? != 0 && (a < 0) != (b < 0);
            a.checked_div(b)?.checked_sub(i128::from(down))
        };
        self.compute(other.require_nonzero()?, exact, |a, b| {
            ((a - floor_rem(a, b)) / b).round()
        })
    }

    /// The remainder, with the sign of the divisor: `-7 % 3` is 2.
    pub(super) fn rem(self, other: Self) -> Result<Self, CalculationError> {
        let exact = |a: i128, b: i128| {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) {
                rest.checked_add(b)
            } else {
                Some(rest)
            }
        };
        self.compute(other.require_nonzero()?, exact, floor_rem)
    }

    pub(super) fn pow(self, other: Self) -> Result<Self, CalculationError> {
        if self.as_f64() == 0.0 && other.as_f64() < 0.0 {
            return Err(DIVISION_BY_ZERO.into());
        }
        self.compute(other, |a, b| a.checked_pow(b.try_into().ok()?), f64::powf)
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Int(a), Int(b)) => a.cmp(&b),
            _ => self.as_f64().total_cmp(&other.as_f64()),
        }
    }

    fn require_nonzero(self) -> Result<Self, CalculationError> {
        if self.as_f64() == 0.0 {
            Err(DIVISION_BY_ZERO.into())
        } else {
            Ok(self)
        }
    }
}

const DIVISION_BY_ZERO: &str = "division by zero";

fn floor_rem(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
        rest + b
    } else {
        rest
    }
}

/// The nearest double with 15 significant digits. This is what the tool shows, so that 0.1 + 0.2 is
/// 0.3.
pub(super) fn round_to_15_digits(x: f64) -> f64 {
    format!("{x:.14e}").parse().unwrap_or(x)
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Int(n) => write!(f, "{n}"),
            Float(x) => match round_to_15_digits(x) {
                0.0 => f.write_str("0"),
                x if (1e-5..1e15).contains(&x.abs()) => write!(f, "{x}"),
                x => write!(f, "{x:e}"),
            },
        }
    }
}
