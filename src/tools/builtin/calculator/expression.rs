//! Reading and evaluating in one pass: precedence climbing (Pratt), bounded in depth.

use super::number::Number;
use crate::similar;

/// Deepest nesting of parentheses and signs; the reader uses the stack.
const MAX_DEPTH: u32 = 100;
/// 170! is the last that a double holds.
const MAX_FACTORIAL: i128 = 170;

const CONSTANTS: [(&str, f64); 3] =
    [("pi", std::f64::consts::PI), ("e", std::f64::consts::E), ("tau", std::f64::consts::TAU)];
const FUNCTIONS: [&str; 23] = [
    "sqrt",
    "abs",
    "round",
    "floor",
    "ceil",
    "min",
    "max",
    "sum",
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
    "gcd",
    "hypot",
];

/// The value of an expression.
///
/// # Errors
/// A sentence that says what is wrong, with its position.
pub(super) fn evaluate(text: &str) -> Result<Number, String> {
    // The signs that people and models copy from elsewhere.
    let text = text.replace(['×', '·'], "*").replace('÷', "/").replace(['−', '–'], "-");
    let mut reader = Reader { text: &text, at: 0, depth: 0 };
    if reader.peek().is_none() {
        return Err("The expression is empty.".into());
    }
    let value = reader.expression(0)?;
    if let Some(rest) = reader.peek() {
        return Err(reader.wrong(&format!("`{rest}` is not expected here")));
    }
    match value {
        Number::Real(value) if value.is_nan() => Err("The result is not a number.".into()),
        Number::Real(value) if value.is_infinite() => Err("The result is too large.".into()),
        value => Ok(value),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl Reader<'_> {
    /// The next character that is not a space.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, sign: &str) -> bool {
        self.peek();
        let there = self.text[self.at..].starts_with(sign);
        if there {
            self.at += sign.len();
        }
        there
    }

    fn wrong(&self, what: &str) -> String {
        let position = self.text[..self.at.min(self.text.len())].chars().count() + 1;
        format!("Cannot calculate this: {what} (at character {position}).")
    }

    /// The operator here, with how tightly it binds.
    fn operator(&mut self) -> Option<(&'static str, u8)> {
        self.peek()?;
        let signs = [("**", 7), ("^", 7), ("//", 5), ("*", 5), ("/", 5), ("%", 5), ("+", 3), ("-", 3)];
        signs.into_iter().find(|(sign, _)| self.text[self.at..].starts_with(sign))
    }

    fn expression(&mut self, least: u8) -> Result<Number, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong("it is nested too deeply"));
        }
        let mut left = self.operand()?;
        while let Some((sign, binds)) = self.operator() {
            if binds < least {
                break;
            }
            self.at += sign.len();
            // Powers group to the right, everything else to the left.
            let right = self.expression(if binds == 7 { 6 } else { binds + 1 })?;
            left = match sign {
                "**" | "^" => left.power(right),
                "*" => Ok(left.multiply(right)),
                "/" => left.divide(right),
                "//" => left.floor_divide(right),
                "%" => left.remainder(right),
                "+" => Ok(left.add(right)),
                _ => Ok(left.subtract(right)),
            }
            .map_err(|what| self.wrong(&what))?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operand(&mut self) -> Result<Number, String> {
        match self.peek() {
            // A sign binds looser than a power: -2 ** 2 is -4.
            Some('-') => {
                self.at += 1;
                self.expression(6).map(Number::negate)
            }
            Some('+') => {
                self.at += 1;
                self.expression(6)
            }
            Some('(') => {
                self.at += 1;
                let value = self.expression(0)?;
                if self.take(")") { Ok(value) } else { Err(self.wrong("a `)` is missing")) }
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() || c == '_' => self.name(),
            Some(c) => Err(self.wrong(&format!("`{c}` is not expected here"))),
            None => Err(self.wrong("a number is missing at the end")),
        }
    }

    fn number(&mut self) -> Result<Number, String> {
        let rest = &self.text[self.at..];
        let bytes = rest.as_bytes();
        let mut end = 0;
        while let Some(byte) = bytes.get(end) {
            let exponent_sign = matches!(byte, b'+' | b'-')
                && end > 0
                && matches!(bytes[end - 1], b'e' | b'E')
                && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
            let exponent = matches!(byte, b'e' | b'E')
                && bytes.get(end + 1).is_some_and(|next| next.is_ascii_digit() || matches!(next, b'+' | b'-'));
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'_') || exponent || exponent_sign) {
                break;
            }
            end += 1;
        }
        let written = rest[..end].replace('_', "");
        let read = written.parse().map(Number::Integer).or_else(|_| written.parse().map(Number::Real));
        let value = read.map_err(|_| self.wrong(&format!("`{}` is no number", &rest[..end])))?;
        self.at += end;
        Ok(value)
    }

    fn name(&mut self) -> Result<Number, String> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = rest[..end].to_lowercase();
        let constant = CONSTANTS.iter().find(|(known, _)| *known == name);
        if !FUNCTIONS.contains(&name.as_str()) && constant.is_none() {
            let known = FUNCTIONS.into_iter().chain(CONSTANTS.iter().map(|(known, _)| *known));
            let hint = similar::closest(&name, known, similar::HINT);
            let hint = hint.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(self.wrong(&format!("there is no `{name}`{hint}")));
        }
        self.at += end;
        if let Some((_, value)) = constant {
            return Ok(Number::Real(*value));
        }
        if !self.take("(") {
            return Err(self.wrong(&format!("`{name}` is a function: write {name}(…)")));
        }
        let mut arguments = Vec::new();
        while !self.take(")") {
            if !arguments.is_empty() && !self.take(",") {
                return Err(self.wrong("a `,` or a `)` is missing"));
            }
            arguments.push(self.expression(0)?);
        }
        apply(&name, &arguments).map_err(|what| self.wrong(&what))
    }
}

fn apply(name: &str, arguments: &[Number]) -> Result<Number, String> {
    let one = |function: fn(f64) -> f64| match arguments {
        [x] => Ok(x.map(function)),
        _ => Err(format!("{name} takes one number")),
    };
    let real_only = |value: Number| match value {
        Number::Real(value) if value.is_nan() => Err(format!("{name} has no value there")),
        value => Ok(value),
    };
    match (name, arguments) {
        ("abs", [x]) => Ok(if x.real() < 0.0 { x.negate() } else { *x }),
        ("floor" | "ceil" | "round", [x @ Number::Integer(_)]) => Ok(*x),
        ("floor", _) => one(f64::floor),
        ("ceil", _) => one(f64::ceil),
        ("round", [x]) => Ok(x.map(f64::round_ties_even)),
        ("round", [x, digits]) => round(*x, *digits),
        ("min", [first, rest @ ..]) => Ok(rest.iter().fold(*first, |a, b| if b.real() < a.real() { *b } else { a })),
        ("max", [first, rest @ ..]) => Ok(rest.iter().fold(*first, |a, b| if b.real() > a.real() { *b } else { a })),
        ("sum", all) => Ok(all.iter().fold(Number::Integer(0), |a, b| a.add(*b))),
        ("pow", [x, y]) => x.power(*y),
        ("hypot", [x, y]) => Ok(x.map(|x| x.hypot(y.real()))),
        ("log", [x, base]) => real_only(x.map(|x| x.ln() / base.real().ln())),
        ("log" | "ln", _) => positive(name, arguments).and_then(|()| one(f64::ln)),
        ("log2", _) => positive(name, arguments).and_then(|()| one(f64::log2)),
        ("log10", _) => positive(name, arguments).and_then(|()| one(f64::log10)),
        ("sqrt", _) => one(f64::sqrt).and_then(real_only),
        ("exp", _) => one(f64::exp),
        ("sin", _) => one(f64::sin),
        ("cos", _) => one(f64::cos),
        ("tan", _) => one(f64::tan),
        ("asin", _) => one(f64::asin).and_then(real_only),
        ("acos", _) => one(f64::acos).and_then(real_only),
        ("atan", _) => one(f64::atan),
        ("factorial", [Number::Integer(n)]) if (0..=MAX_FACTORIAL).contains(n) => {
            Ok((1..=*n).fold(Number::Integer(1), |product, k| product.multiply(Number::Integer(k))))
        }
        ("factorial", _) => Err(format!("factorial takes a whole number from 0 to {MAX_FACTORIAL}")),
        ("gcd", [Number::Integer(a), Number::Integer(b)]) => {
            let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
            while b != 0 {
                (a, b) = (b, a % b);
            }
            i128::try_from(a).map(Number::Integer).map_err(|_| "the result is too large".into())
        }
        _ => Err(format!("{name} does not take {} numbers like these", arguments.len())),
    }
}

fn positive(name: &str, arguments: &[Number]) -> Result<(), String> {
    match arguments {
        [x] if x.real() <= 0.0 => Err(format!("{name} takes a number above zero")),
        _ => Ok(()),
    }
}

fn round(x: Number, digits: Number) -> Result<Number, String> {
    let Number::Integer(digits @ 0..=15) = digits else { return Err("round takes 0 to 15 digits".into()) };
    if let Number::Integer(_) = x {
        return Ok(x);
    }
    // Through text: scaling by a power of ten would round 2.675 from a value that is not there.
    let text = format!("{:.*}", digits as usize, x.real());
    text.parse().map(Number::Real).map_err(|_| "the number cannot be rounded".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> String {
        evaluate(text).map_or_else(|error| format!("! {error}"), |number| number.to_string())
    }

    #[test]
    fn expressions_come_out_as_in_python() {
        for (text, result) in [
            ("6*7", "42"),
            ("1 + 2 * 3", "7"),
            ("(1 + 2) * 3", "9"),
            ("2 - 3 - 4", "-5"),
            ("-2 ** 2", "-4"),
            ("2 ** -1", "0.5"),
            ("2 ** 3 ** 2", "512"),
            ("-2 * -3", "6"),
            ("10 / 4", "2.5"),
            ("10 / 5", "2"),
            ("-7 // 2", "-4"),
            ("-7 % 3", "2"),
            ("7 % -3", "-2"),
            ("0.1 + 0.2", "0.3"),
            ("1e3", "1000"),
            ("1_000 * 2", "2000"),
            ("2 × 3 ÷ 4", "1.5"),
            ("9007199254740993 + 0", "9007199254740993"),
            ("2 ** 100", "1267650600228229401496703205376"),
            ("2 ** 200", "1.60693804425899e60"),
            ("sqrt(16)", "4"),
            ("round(2 / 3, 4)", "0.6667"),
            ("round(2.5)", "2"),
            ("max(1, 2.5, -3)", "2.5"),
            ("log(8, 2)", "3"),
            ("sin(pi / 2)", "1"),
            ("factorial(20)", "2432902008176640000"),
            ("gcd(12, 18)", "6"),
        ] {
            assert_eq!(value(text), result, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_calculated_is_said() {
        for (text, says) in [
            ("", "empty"),
            ("1 / 0", "division by zero"),
            ("1 % 0", "division by zero"),
            ("0 ** -1", "division by zero"),
            ("sqrt(-1)", "no value"),
            ("2 +", "missing at the end"),
            ("(1", "`)` is missing"),
            ("1 2", "`2` is not expected"),
            ("sqr(4)", "did you mean `sqrt`?"),
            ("sqrt", "write sqrt(…)"),
            ("1.2.3", "no number"),
            ("10 ** 400", "too large"),
            ("import os", "there is no `import`"),
        ] {
            let said = value(text);
            assert!(said.starts_with("! ") && said.contains(says), "{text}: {said}");
        }
        assert!(value(&"(".repeat(900)).contains("nested too deeply"));
        assert!(value(&"-".repeat(900)).contains("nested too deeply"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[-+*/%^() 0-9.,_a-z×é]{0,60}") {
            let _ = evaluate(&text);
        }
    }
}
