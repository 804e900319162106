//! A Pratt parser (Vaughan Pratt, "Top down operator precedence", 1973) that evaluates while it
//! parses.

use super::functions::{CONSTANTS, FUNCTIONS, apply_function};
use super::number::{CalculationError, Number};
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
