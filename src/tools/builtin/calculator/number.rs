//! Numbers that are exact integers for as long as they can be.

use std::fmt;

/// An integer while it fits, else a double.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Real(f64),
}

use Number::{Integer, Real};

/// Up to here every integer is a double of its own (2^53).
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Number {
    pub(super) fn real(self) -> f64 {
        match self {
            Integer(value) => value as f64,
            Real(value) => value,
        }
    }

    /// Exact if both are integers and the result fits, else in doubles.
    fn either(self, other: Self, exact: impl Fn(i128, i128) -> Option<i128>, real: impl Fn(f64, f64) -> f64) -> Self {
        if let (Integer(a), Integer(b)) = (self, other)
            && let Some(value) = exact(a, b)
        {
            return Integer(value);
        }
        Real(real(self.real(), other.real()))
    }

    pub(super) fn add(self, other: Self) -> Self {
        self.either(other, i128::checked_add, |a, b| a + b)
    }

    pub(super) fn subtract(self, other: Self) -> Self {
        self.either(other, i128::checked_sub, |a, b| a - b)
    }

    pub(super) fn multiply(self, other: Self) -> Self {
        self.either(other, i128::checked_mul, |a, b| a * b)
    }

    pub(super) fn negate(self) -> Self {
        Integer(0).subtract(self)
    }

    pub(super) fn divide(self, other: Self) -> Result<Self, String> {
        other.not_zero()?;
        let whole = |a: i128, b: i128| a.checked_rem(b).filter(|rest| *rest == 0).and_then(|_| a.checked_div(b));
        Ok(self.either(other, whole, |a, b| a / b))
    }

    /// Division rounded down, as Python's `//`.
    pub(super) fn floor_divide(self, other: Self) -> Result<Self, String> {
        other.not_zero()?;
        let down = |a: i128, b: i128| {
            let rest = a.checked_rem(b)?;
            a.checked_div(b)?.checked_sub(i128::from(rest != 0 && (rest < 0) != (b < 0)))
        };
        Ok(self.either(other, down, |a, b| (a / b).floor()))
    }

    /// The remainder with the divisor's sign, as Python's `%`.
    pub(super) fn remainder(self, other: Self) -> Result<Self, String> {
        other.not_zero()?;
        let exact = |a: i128, b: i128| {
            let rest = a.checked_rem(b)?;
            Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
        };
        Ok(self.either(other, exact, |a, b| a - b * (a / b).floor()))
    }

    pub(super) fn power(self, other: Self) -> Result<Self, String> {
        if self.real() == 0.0 && other.real() < 0.0 {
            return Err("division by zero: zero to a negative power".into());
        }
        let exact = |a: i128, b: i128| u32::try_from(b).ok().and_then(|b| a.checked_pow(b));
        match self.either(other, exact, f64::powf) {
            Real(value) if value.is_nan() => Err("a negative number has no such root".into()),
            value => Ok(value),
        }
    }

    /// Applies a function of doubles; whole results that a double holds exactly become integers again.
    pub(super) fn map(self, function: impl Fn(f64) -> f64) -> Self {
        let value = function(self.real());
        if value.fract() == 0.0 && value.abs() < EXACT { Integer(value as i128) } else { Real(value) }
    }

    fn not_zero(self) -> Result<(), String> {
        if self.real() == 0.0 { Err("division by zero".into()) } else { Ok(()) }
    }
}

/// Integers in full; others with at most 15 significant digits, so that 0.1 + 0.2 is 0.3.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Integer(value) => value.fmt(f),
            Real(value) => {
                let rounded: f64 = format!("{value:.14e}").parse().unwrap_or(*value);
                if rounded != 0.0 && !(1e-6..1e21).contains(&rounded.abs()) {
                    return write!(f, "{rounded:e}");
                }
                write!(f, "{rounded}")
            }
        }
    }
}
