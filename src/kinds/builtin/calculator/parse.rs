//! A Pratt parser (Vaughan Pratt, "Top down operator precedence", 1973) that evaluates while it
//! parses.

use std::f64::consts;

use super::number::{CalculationError, Number, round_to_15_digits};
use crate::call::words;
use crate::text::suggest;

/// The deepest nesting: enough for any real expression, and small enough for any stack.
const MAX_DEPTH: usize = 100;
/// The binding power of a sign: more than `*` and less than `**`, so that -2**2 is -4.
const SIGN_BINDING_POWER: u8 = 5;

/// What is wrong, and at which character (counted from 1).
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{message} (at character {position})")]
pub(super) struct ParseError {
    position: usize,
    message: String,
}

/// The value of an expression.
///
/// # Errors
/// The first fault, with its position.
pub(super) fn evaluate(expression: &str) -> Result<Number, ParseError> {
    let text = expression.chars().collect();
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    let value = parser.parse_expression(0)?;
    match parser.peek() {
        None => Ok(value),
        Some(')') => Err(parser.error_here("there is no `(` for this `)`")),
        Some(c) => Err(parser.error_here(format!(
            "an operator such as + or * is missing before `{c}`"
        ))),
    }
}

struct Parser {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

/// A binary operator.
struct Operator {
    apply: fn(Number, Number) -> Result<Number, CalculationError>,
    /// The binding power to the left and to the right.
    powers: (u8, u8),
    /// The number of its characters.
    length: usize,
}

impl Parser {
    fn parse_expression(&mut self, min_binding_power: u8) -> Result<Number, ParseError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error_here(format!(
                "the expression is nested deeper than {MAX_DEPTH} levels"
            )));
        }
        self.depth += 1;
        let mut left = self.parse_operand()?;
        while let Some(operator) = self.next_operator() {
            let (left_power, right_power) = operator.powers;
            if left_power < min_binding_power {
                break;
            }
            let start = self.at;
            self.at += operator.length;
            let right = self.parse_expression(right_power)?;
            left = (operator.apply)(left, right).map_err(|message| error_at(start, message))?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn next_operator(&mut self) -> Option<Operator> {
        let next = self.peek()?;
        let twice = self.text.get(self.at + 1) == Some(&next);
        let (apply, powers): (fn(Number, Number) -> _, _) = match next {
            '+' => (Number::add, (1, 2)),
            '-' | '−' => (Number::sub, (1, 2)),
            // Right-associative. A sign may follow: 2**-1 is one half.
            '*' if twice => (Number::pow, (7, 6)),
            '^' => (Number::pow, (7, 6)),
            '*' | '×' => (Number::mul, (3, 4)),
            '/' if twice => (Number::floor_div, (3, 4)),
            '/' | '÷' => (Number::div, (3, 4)),
            '%' => (Number::rem, (3, 4)),
            _ => return None,
        };
        let length = if twice && matches!(next, '*' | '/') {
            2
        } else {
            1
        };
        Some(Operator {
            apply,
            powers,
            length,
        })
    }

    fn parse_operand(&mut self) -> Result<Number, ParseError> {
        let start = self.at;
        match self.peek() {
            Some('(') => {
                self.at += 1;
                let value = self.parse_expression(0)?;
                self.expect_closing_parenthesis()?;
                Ok(value)
            }
            Some('+') => {
                self.at += 1;
                self.parse_expression(SIGN_BINDING_POWER)
            }
            Some('-' | '−') => {
                self.at += 1;
                let value = self.parse_expression(SIGN_BINDING_POWER)?;
                value.neg().map_err(|message| error_at(start, message))
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.parse_number(),
            Some(c) if c.is_alphabetic() || c == '_' => self.parse_name(),
            Some(c) => Err(self.error_here(format!("a number is missing before `{c}`"))),
            None => Err(self.error_here("a number is missing at the end")),
        }
    }

    fn parse_number(&mut self) -> Result<Number, ParseError> {
        let start = self.skip_whitespace();
        let mut digits = self.take_digits();
        let mut is_integer = true;
        if self.text.get(self.at) == Some(&'.') {
            self.at += 1;
            is_integer = false;
            digits = format!("{digits}.{}", self.take_digits());
        }
        if let Some('e' | 'E') = self.text.get(self.at) {
            let sign = self
                .text
                .get(self.at + 1)
                .filter(|c| matches!(c, '+' | '-'));
            let first = self.at + 1 + usize::from(sign.is_some());
            if self.text.get(first).is_some_and(char::is_ascii_digit) {
                let sign = sign.map(char::to_string).unwrap_or_default();
                self.at = first;
                is_integer = false;
                digits = format!("{digits}e{sign}{}", self.take_digits());
            }
        }
        if is_integer && let Ok(n) = digits.parse() {
            return Ok(Number::Int(n));
        }
        let number = digits
            .parse()
            .map_err(|_| format!("`{digits}` is not a number"))
            .and_then(Number::from_f64);
        number.map_err(|message| error_at(start, message))
    }

    /// Digits. An underscore may stand between two digits.
    fn take_digits(&mut self) -> String {
        let is_digit = |c: Option<&char>| c.is_some_and(char::is_ascii_digit);
        let mut digits = String::new();
        while let Some(&c) = self.text.get(self.at) {
            match c {
                '0'..='9' => digits.push(c),
                '_' if !digits.is_empty() && is_digit(self.text.get(self.at + 1)) => {}
                _ => break,
            }
            self.at += 1;
        }
        digits
    }

    fn parse_name(&mut self) -> Result<Number, ParseError> {
        let start = self.skip_whitespace();
        let rest = &self.text[start..];
        let name: String = rest
            .iter()
            .take_while(|c| c.is_alphanumeric() || **c == '_')
            .collect();
        self.at += name.chars().count();
        let known = name.to_lowercase();
        let fault = |message| error_at(start, message);
        if let Some((_, value)) = CONSTANTS.iter().find(|(name, _)| *name == known) {
            return Ok(Number::Float(*value));
        }
        if !FUNCTIONS.contains(&known.as_str()) {
            return Err(fault(unknown_name_message(&name)));
        }
        if self.peek() != Some('(') {
            return Err(fault(format!("`{known}` is a function: write {known}(…)")));
        }
        self.at += 1;
        let arguments = self.parse_arguments()?;
        apply_function(&known, &arguments).map_err(fault)
    }

    fn parse_arguments(&mut self) -> Result<Vec<Number>, ParseError> {
        let mut arguments = Vec::new();
        if self.peek() != Some(')') {
            arguments.push(self.parse_expression(0)?);
            while self.peek() == Some(',') {
                self.at += 1;
                arguments.push(self.parse_expression(0)?);
            }
        }
        self.expect_closing_parenthesis()?;
        Ok(arguments)
    }

    fn expect_closing_parenthesis(&mut self) -> Result<(), ParseError> {
        match self.peek() {
            Some(')') => {
                self.at += 1;
                Ok(())
            }
            Some(c) => Err(self.error_here(format!("`)` or an operator is missing before `{c}`"))),
            None => Err(self.error_here("`)` is missing at the end")),
        }
    }

    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        let at = self.skip_whitespace();
        self.text.get(at).copied()
    }

    fn skip_whitespace(&mut self) -> usize {
        while self.text.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
        self.at
    }

    fn error_here(&self, message: impl Into<String>) -> ParseError {
        error_at(self.at, message.into())
    }
}

/// A fault at the character with this index.
fn error_at(index: usize, message: String) -> ParseError {
    ParseError {
        position: index + 1,
        message,
    }
}

fn unknown_name_message(name: &str) -> String {
    let known: Vec<&str> = CONSTANTS
        .iter()
        .map(|(name, _)| *name)
        .chain(FUNCTIONS)
        .collect();
    let short: String = name.chars().take(40).collect();
    match suggest::closest_name(&short, known.iter().copied(), suggest::MIN_HINT_RATIO) {
        Some(suggestion) => format!("`{short}` is unknown: did you mean `{suggestion}`?"),
        None => format!("`{short}` is unknown: there are {}", known.join(", ")),
    }
}

/// The constants, by name.
const CONSTANTS: [(&str, f64); 3] = [("pi", consts::PI), ("e", consts::E), ("tau", consts::TAU)];

/// The names of the functions.
const FUNCTIONS: [&str; 20] = words(
    "sqrt abs round floor ceil min max sin cos tan asin acos atan log ln log2 log10 exp
     factorial pow",
);

/// The value of a function for these arguments.
fn apply_function(name: &str, arguments: &[Number]) -> Result<Number, CalculationError> {
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
