//! Mends JSON texts of other programs before they are parsed.
//!
//! JSON permits numbers with any number of digits and escapes of half a surrogate pair (RFC 8259, 6
//! and 8.2). A number of this program is a 64-bit integer or a double, and its texts are Unicode.
//! So a parser would change the number, and refuse the whole text for the escape.

use std::borrow::Cow;

/// The escape of U+FFFD. It is as long as the escape that it replaces.
const REPLACEMENT: &[u8] = br"\ufffd";
/// The UTF-8 form of U+FEFF.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Every number with so many significant digits is a decimal form of some double or near one.
/// Clients that compute with doubles write up to seventeen.
const DOUBLE_DIGITS: usize = 17;
/// The most digits that are compared with those of a double. No double has more (IEEE 754).
const MAX_DIGITS: usize = 767;

/// What was changed in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Changes {
    /// Half of a surrogate pair became U+FFFD.
    pub surrogates: bool,
    /// A number became a text with its digits.
    pub numbers: bool,
}

impl Changes {
    /// A sentence about each kind of change. `document` names the text, such as "the answer".
    pub fn warnings(self, document: &str) -> Vec<String> {
        let surrogates = self
            .surrogates
            .then(|| format!("{document} had half of a surrogate pair, which became \u{fffd}"));
        let numbers = self.numbers.then(|| {
            format!(
                "{document} had numbers with more digits than a number holds here; they are texts now"
            )
        });
        surrogates.into_iter().chain(numbers).collect()
    }
}

/// A text that a parser reads without a further change.
pub struct Mended<'a> {
    /// The text, without a byte order mark.
    pub text: Cow<'a, [u8]>,
    /// What was changed.
    pub changes: Changes,
    /// Why the text is refused, if it is.
    pub(crate) refusal: Option<String>,
}

/// How numbers are treated that a double does not hold.
#[derive(Clone, Copy, PartialEq)]
enum Numbers {
    /// They are refused, apart from decimals of up to seventeen digits, which may be rounded.
    Refuse,
    /// They become texts.
    Quote,
    /// They stay as they are.
    Keep,
}

/// What a number becomes.
enum Digits {
    /// The parser keeps it.
    Kept,
    /// It is a whole number, which only an integer holds.
    Integer(String),
    /// No number holds it.
    TooMany,
}

impl<'a> Mended<'a> {
    /// A text of our own user: nothing is replaced.
    pub(crate) fn of_own(text: &'a [u8]) -> Self {
        Self::new(text, true, Numbers::Refuse)
    }

    /// A request: numbers that would be changed are refused.
    pub(crate) fn of_request(text: &'a [u8]) -> Self {
        Self::new(text, false, Numbers::Refuse)
    }

    /// A result: numbers that would be changed become texts.
    pub fn of_result(text: &'a [u8]) -> Self {
        Self::new(text, false, Numbers::Quote)
    }

    /// A text whose numbers have bounds of their own, such as a schema: only halves of surrogate
    /// pairs are replaced.
    pub fn of_document(text: &'a [u8]) -> Self {
        Self::new(text, false, Numbers::Keep)
    }

    fn new(text: &'a [u8], keeps_surrogates: bool, numbers: Numbers) -> Self {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let mut mended = Self {
            text: Cow::Borrowed(text),
            changes: Changes::default(),
            refusal: None,
        };
        // The part of `text` before `copied` is in `output`.
        let (mut output, mut copied): (Vec<u8>, usize) = (Vec::new(), 0);
        let mut replace = |from: usize, to: usize, by: &[u8]| {
            output.extend_from_slice(&text[copied..from]);
            output.extend_from_slice(by);
            copied = to;
        };
        let (mut at, mut in_text) = (0, false);
        while let Some(&byte) = text.get(at) {
            match byte {
                b'"' => in_text = !in_text,
                b'\\' if in_text => {
                    let length = escape_length(&text[at..]);
                    if length == Escape::HalfPair && !keeps_surrogates {
                        replace(at, at + 6, REPLACEMENT);
                        mended.changes.surrogates = true;
                    }
                    at += length as usize;
                    continue;
                }
                b'-' | b'0'..=b'9' if !in_text => {
                    let number = number_at(&text[at..]);
                    match judge(number, numbers) {
                        Digits::Kept => {}
                        Digits::Integer(digits) => {
                            replace(at, at + number.len(), digits.as_bytes());
                        }
                        Digits::TooMany if numbers == Numbers::Quote => {
                            let quoted = [b"\"", number.as_bytes(), b"\""].concat();
                            replace(at, at + number.len(), &quoted);
                            mended.changes.numbers = true;
                        }
                        Digits::TooMany => {
                            mended.refusal = Some(refusal_of(number));
                            return mended;
                        }
                    }
                    at += number.len().max(1);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        if copied > 0 {
            output.extend_from_slice(&text[copied..]);
            mended.text = Cow::Owned(output);
        }
        mended
    }
}

/// The kinds of escapes, with the number of bytes that the scan skips.
#[derive(Clone, Copy, PartialEq)]
enum Escape {
    Short = 2,
    HalfPair = 6,
    Pair = 12,
}

/// The escape at the start of `text`.
fn escape_length(text: &[u8]) -> Escape {
    let second = text.get(6..).and_then(escaped_unit);
    match (escaped_unit(text), second) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => Escape::Pair,
        (Some(0xd800..=0xdfff), _) => Escape::HalfPair,
        // The digits of any other escape need no further look.
        _ => Escape::Short,
    }
}

/// The unit of UTF-16 whose escape `\uXXXX` is at the start of `text`.
pub(crate) fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits = text.get(..6)?.strip_prefix(br"\u")?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(digits, 16).ok()
}

/// The characters at the start of `text` that may be parts of a number.
fn number_at(text: &[u8]) -> &str {
    let is_part =
        |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
    let end = text
        .iter()
        .position(|byte| !is_part(byte))
        .unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).unwrap_or_default()
}

fn judge(number: &str, rule: Numbers) -> Digits {
    let unsigned = number.strip_prefix('-').unwrap_or(number);
    let is_integer = unsigned.bytes().all(|byte| byte.is_ascii_digit());
    // Up to eighteen characters always fit 64 bits, and a double holds fifteen digits.
    if rule == Numbers::Keep
        || number.len() <= 15 && !unsigned.contains(['e', 'E'])
        || is_integer && number.len() <= 18
    {
        return Digits::Kept;
    }
    if is_integer {
        let fits = number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
        return if fits { Digits::Kept } else { Digits::TooMany };
    }
    // The parser refuses what is no number.
    let (Some((digits, power)), Ok(double)) =
        (significant_digits(unsigned), unsigned.parse::<f64>())
    else {
        return Digits::Kept;
    };
    if digits.is_empty() || digits.len() <= MAX_DIGITS && is_written_as(double, &digits, power) {
        return Digits::Kept;
    }
    if let Ok(zeros @ 0..20) = usize::try_from(power) {
        let zeros = "0".repeat(zeros);
        let sign = &number[..number.len() - unsigned.len()];
        let integer = format!("{sign}{digits}{zeros}");
        if integer.parse::<i64>().is_ok() || integer.parse::<u64>().is_ok() {
            return Digits::Integer(integer);
        }
    }
    let is_rounded_decimal = power < 0 && digits.len() <= DOUBLE_DIGITS && double.is_normal();
    match rule {
        Numbers::Refuse if is_rounded_decimal => Digits::Kept,
        _ => Digits::TooMany,
    }
}

/// The digits of a decimal without zeros at both ends, and the power of ten of the last one.
fn significant_digits(number: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    let digits = all.trim_end_matches('0');
    let power = exponent
        .parse::<i64>()
        .ok()?
        .checked_sub(fraction.len() as i64)?;
    let power = power.checked_add((all.len() - digits.len()) as i64)?;
    Some((digits.trim_start_matches('0').to_owned(), power))
}

/// Whether these are the digits of a double, written with as many, or in its shortest form, which
/// may be rounded otherwise. Then the text is one of its decimal forms, and the number is the same.
fn is_written_as(double: f64, digits: &str, power: i64) -> bool {
    let is_form = |written: String| {
        significant_digits(&written)
            .is_some_and(|(own, own_power)| own == digits && own_power == power)
    };
    is_form(format!("{double:.*e}", digits.len() - 1)) || is_form(format!("{double:e}"))
}

fn refusal_of(number: &str) -> String {
    let shown = &number[..number.len().min(40)];
    if number.contains(['.', 'e', 'E']) {
        format!("the number {shown} would be changed; send it as a text, or with at most 17 digits")
    } else {
        format!("the integer {shown} does not fit 64 bits and would be changed; send it as a text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mend(text: &str) -> (String, Changes) {
        let Mended { text, changes, .. } = Mended::of_result(text.as_bytes());
        (String::from_utf8(text.into_owned()).unwrap(), changes)
    }

    #[test]
    fn numbers_that_a_double_holds_stay() {
        for kept in [
            r#"{"a": [1, -2.50, 9223372036854775807, 0.1, 1e22, 100.0, 0.0, -0.0, 1E-7], "n": "1e999"}"#,
            "18446744073709551615",
            "59.913330000000002",
            "1809237166779101.3",
            "0.1000000000000000055511151231257827",
            "1.7976931348623157e308",
            "-5e-324",
            "0.000000000000000000000000000000000",
            r#""12345678901234567890123 \" 1e400""#,
        ] {
            assert_eq!(mend(kept), (kept.to_owned(), Changes::default()));
        }
    }

    #[test]
    fn numbers_that_would_change_become_texts() {
        for (text, mended) in [
            (
                "[340282366920938463463374607431768211455]",
                r#"["340282366920938463463374607431768211455"]"#,
            ),
            ("-9223372036854775809 ", r#""-9223372036854775809" "#),
            (
                r#"{"a":12345678901234567.89}"#,
                r#"{"a":"12345678901234567.89"}"#,
            ),
            ("0.12345678901234567", r#""0.12345678901234567""#),
            ("[1e400,1e-400]", r#"["1e400","1e-400"]"#),
        ] {
            let numbers = Changes {
                numbers: true,
                surrogates: false,
            };
            assert_eq!(mend(text), (mended.to_owned(), numbers));
        }
        assert_eq!(mend("[-9007199254740993.0, 1]").0, "[-9007199254740993, 1]");
        assert_eq!(mend("9007199254740993e0").0, "9007199254740993");
    }

    #[test]
    fn halves_of_surrogate_pairs_are_replaced() {
        for (text, mended) in [
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (
                r#""\uDE00\ud83d\ud83d\ude00\ud83dx""#,
                r#""\ufffd\ufffd\ud83d\ude00\ufffdx""#,
            ),
        ] {
            let surrogates = Changes {
                surrogates: true,
                numbers: false,
            };
            assert_eq!(mend(text), (mended.to_owned(), surrogates));
        }
        for kept in [
            r#""\\ud83d""#,
            r#""\u00e9\ud83d\uDE00""#,
            r#""\ud8"#,
            r#""\"#,
        ] {
            assert_eq!(mend(kept), (kept.to_owned(), Changes::default()));
        }
    }

    proptest::proptest! {
        #[test]
        fn every_form_of_a_double_stays(number in proptest::num::f64::NORMAL, digits in 16..30_usize) {
            for text in [format!("{number:e}"), format!("{number:.digits$e}")] {
                proptest::prop_assert_eq!(mend(&text), (text, Changes::default()));
            }
        }
    }
}
