//! A Pratt parser (Vaughan Pratt, "Top down operator precedence", 1973) that evaluates while it parses.

use crate::suggest;
use std::fmt;

use super::functions::{CONSTANTS, FUNCTIONS, apply};
use super::number::Number;

/// The deepest nesting: enough for any real expression, and small enough for any stack.
const DEEPEST: usize = 100;
/// The binding power of a sign: more than `*` and less than `**`, so that -2**2 is -4.
const SIGN: u8 = 5;

/// What is wrong, and at which character (counted from 1).
#[derive(Debug, PartialEq)]
pub(super) struct Error {
    position: usize,
    message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {})", self.message, self.position)
    }
}

/// The value of an expression.
///
/// # Errors
/// The first fault, with its position.
pub(super) fn evaluate(expression: &str) -> Result<Number, Error> {
    let text = expression.chars().collect();
    let mut parser = Parser { text, at: 0, depth: 0 };
    let value = parser.expression(0)?;
    match parser.peek() {
        None => Ok(value),
        Some(')') => Err(parser.error("there is no `(` for this `)`")),
        Some(c) => Err(parser.error(format!("an operator such as + or * is missing before `{c}`"))),
    }
}

struct Parser {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

/// A binary operator.
#[derive(Clone, Copy)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

impl Operator {
    /// The binding power to the left and to the right.
    fn strength(self) -> (u8, u8) {
        match self {
            Self::Add | Self::Subtract => (1, 2),
            Self::Multiply | Self::Divide | Self::FloorDivide | Self::Remainder => (3, 4),
            // Right-associative. A sign may follow: 2**-1 is one half.
            Self::Power => (7, 6),
        }
    }
}

impl Parser {
    fn expression(&mut self, least: u8) -> Result<Number, Error> {
        if self.depth == DEEPEST {
            return Err(self.error(format!("the expression is nested deeper than {DEEPEST} levels")));
        }
        self.depth += 1;
        let mut left = self.operand()?;
        while let Some((operator, length)) = self.operator() {
            let (holds_left, holds_right) = operator.strength();
            if holds_left < least {
                break;
            }
            let place = self.at;
            self.at += length;
            let right = self.expression(holds_right)?;
            let value = match operator {
                Operator::Add => left.add(right),
                Operator::Subtract => left.sub(right),
                Operator::Multiply => left.mul(right),
                Operator::Divide => left.div(right),
                Operator::FloorDivide => left.floor_div(right),
                Operator::Remainder => left.rem(right),
                Operator::Power => left.pow(right),
            };
            left = value.map_err(|message| Error { position: place + 1, message })?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// The next operator, and its length.
    fn operator(&mut self) -> Option<(Operator, usize)> {
        let next = self.peek()?;
        let twice = self.text.get(self.at + 1) == Some(&next);
        match next {
            '+' => Some((Operator::Add, 1)),
            '-' | '−' => Some((Operator::Subtract, 1)),
            '*' if twice => Some((Operator::Power, 2)),
            '*' | '×' => Some((Operator::Multiply, 1)),
            '/' if twice => Some((Operator::FloorDivide, 2)),
            '/' | '÷' => Some((Operator::Divide, 1)),
            '%' => Some((Operator::Remainder, 1)),
            '^' => Some((Operator::Power, 1)),
            _ => None,
        }
    }

    fn operand(&mut self) -> Result<Number, Error> {
        let place = self.at;
        match self.peek() {
            Some('(') => {
                self.at += 1;
                let value = self.expression(0)?;
                self.close()?;
                Ok(value)
            }
            Some('+') => {
                self.at += 1;
                self.expression(SIGN)
            }
            Some('-' | '−') => {
                self.at += 1;
                let value = self.expression(SIGN)?;
                value.neg().map_err(|message| Error { position: place + 1, message })
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() || c == '_' => self.name(),
            Some(c) => Err(self.error(format!("a number is missing before `{c}`"))),
            None => Err(self.error("a number is missing at the end")),
        }
    }

    fn number(&mut self) -> Result<Number, Error> {
        let place = self.skip();
        let mut digits = self.digits();
        let mut whole = true;
        if self.text.get(self.at) == Some(&'.') {
            self.at += 1;
            whole = false;
            digits = format!("{digits}.{}", self.digits());
        }
        if let Some('e' | 'E') = self.text.get(self.at) {
            let sign = self.text.get(self.at + 1).filter(|c| matches!(c, '+' | '-'));
            let first = self.at + 1 + usize::from(sign.is_some());
            if self.text.get(first).is_some_and(char::is_ascii_digit) {
                let sign = sign.map(char::to_string).unwrap_or_default();
                self.at = first;
                whole = false;
                digits = format!("{digits}e{sign}{}", self.digits());
            }
        }
        if whole && let Ok(n) = digits.parse() {
            return Ok(Number::Int(n));
        }
        let number = digits.parse().map_err(|_| format!("`{digits}` is no number")).and_then(Number::finite);
        number.map_err(|message| Error { position: place + 1, message })
    }

    /// Digits. An underscore may stand between two digits.
    fn digits(&mut self) -> String {
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

    fn name(&mut self) -> Result<Number, Error> {
        let place = self.skip();
        let rest = &self.text[place..];
        let name: String = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
        self.at += name.chars().count();
        let known = name.to_lowercase();
        let fault = |message| Error { position: place + 1, message };
        if let Some((_, value)) = CONSTANTS.iter().find(|(name, _)| *name == known) {
            return Ok(Number::Float(*value));
        }
        if !FUNCTIONS.contains(&known.as_str()) {
            return Err(fault(unknown(&name)));
        }
        if self.peek() != Some('(') {
            return Err(fault(format!("`{known}` is a function: write {known}(…)")));
        }
        self.at += 1;
        let arguments = self.arguments()?;
        apply(&known, &arguments).map_err(fault)
    }

    fn arguments(&mut self) -> Result<Vec<Number>, Error> {
        let mut arguments = Vec::new();
        if self.peek() != Some(')') {
            arguments.push(self.expression(0)?);
            while self.peek() == Some(',') {
                self.at += 1;
                arguments.push(self.expression(0)?);
            }
        }
        self.close()?;
        Ok(arguments)
    }

    fn close(&mut self) -> Result<(), Error> {
        match self.peek() {
            Some(')') => {
                self.at += 1;
                Ok(())
            }
            Some(c) => Err(self.error(format!("`)` or an operator is missing before `{c}`"))),
            None => Err(self.error("`)` is missing at the end")),
        }
    }

    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        let at = self.skip();
        self.text.get(at).copied()
    }

    fn skip(&mut self) -> usize {
        while self.text.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
        self.at
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error { position: self.at + 1, message: message.into() }
    }
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = CONSTANTS.iter().map(|(name, _)| *name).chain(FUNCTIONS).collect();
    let short: String = name.chars().take(40).collect();
    match suggest::closest(&short, known.iter().copied(), suggest::HINT) {
        Some(near) => format!("`{short}` is unknown: did you mean `{near}`?"),
        None => format!("`{short}` is unknown: there are {}", known.join(", ")),
    }
}
