//! Durations and sizes as in manifests. A unit is required, so that `30` cannot be misread.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::discovery::ListBound;

/// A duration such as `250ms`, `30s`, `5m`, `24h`, `30d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename = "Duration", extend("pattern" = r"^\s*[0-9].*[a-zA-Z]\s*$"))]
pub struct HumanDuration(#[schemars(with = "String")] pub Duration);

/// A size in bytes such as `64KiB`, `1MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(extend("pattern" = r"^\s*[0-9].*[a-zA-Z]\s*$"))]
pub struct Size(#[schemars(with = "String")] pub u64);

/// A number of tokens such as `8k tokens`. How many a text has depends on the model, so it is an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(extend("pattern" = r"^\s*[0-9]+k? tokens\s*$"))]
pub struct Tokens(#[schemars(with = "String")] pub usize);

impl Tokens {
    /// Characters of a text for each token.
    const CHARACTERS: usize = 4;

    /// The number of characters that these tokens stand for.
    pub fn characters(self) -> usize {
        self.0.saturating_mul(Self::CHARACTERS)
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserialize_scalar(deserializer)?;
        match ListBound::parse(&text) {
            Ok(ListBound::Tokens(number)) if number > 0 => Ok(Self(number)),
            _ => Err(D::Error::custom(format!(
                "`{text}` is not a number of tokens: write e.g. 8k tokens"
            ))),
        }
    }
}

/// Maximum of every duration. It is longer than any real wait, and far below the range in which
/// clocks overflow.
pub const MAX_DURATION: Duration = Duration::from_secs(10 * 366 * 86_400);

/// A number of things as text: `1 call`, `2 calls`. The noun is in the singular, and gets an `s` in
/// the plural.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count<'n, N>(pub N, pub &'n str);

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Count<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, noun) = self;
        let plural = if *number == N::from(1) { "" } else { "s" };
        write!(f, "{number} {noun}{plural}")
    }
}

/// A note in place of a part that was left out: `[… 9 bytes left out …]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OmissionNote<'n, N>(pub N, pub &'n str);

impl<N: Copy + fmt::Display + PartialEq + From<u8>> fmt::Display for OmissionNote<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[… {} left out …]", Count(self.0, self.1))
    }
}

impl HumanDuration {
    /// Reads a duration.
    ///
    /// # Errors
    /// A sentence that says what would be valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        match humantime::parse_duration(text.trim()) {
            Ok(duration) if duration > MAX_DURATION => {
                Err(format!("`{text}` is too long: the maximum is ten years"))
            }
            Ok(duration) => Ok(Self(duration)),
            Err(_) => Err(format!(
                "`{text}` is not a duration: write a number with a unit, e.g. 250ms, 30s, 5m, 24h"
            )),
        }
    }
}

impl Size {
    /// Reads a size.
    ///
    /// # Errors
    /// A sentence that says what would be valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let has_unit = text.trim().ends_with(|c: char| c.is_ascii_alphabetic());
        match text.trim().parse::<bytesize::ByteSize>() {
            Ok(size) if has_unit => Ok(Self(size.as_u64())),
            _ => Err(format!(
                "`{text}` is not a size: write a number with a unit, e.g. 64KiB, 1MiB"
            )),
        }
    }

    /// The size as a length in memory. A size beyond `usize` becomes the maximum.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&deserialize_scalar(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&deserialize_scalar(deserializer)?).map_err(D::Error::custom)
    }
}

/// A string, or the text of a bare number, which is then refused because it has no unit.
fn deserialize_scalar<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Ok(text),
        other => Ok(other.to_string()),
    }
}

/// The time that the parameter `name` gives: a time, or a span before `now`.
///
/// # Errors
/// A sentence that says what would be valid.
pub fn parse_time(name: &str, text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let ago = || {
        HumanDuration::parse(text)
            .ok()
            .and_then(|time| now.checked_sub(time.0).ok())
    };
    // A query string decodes the `+` of a time zone offset as a space.
    let with_offset = || {
        let (time, offset) = text.rsplit_once(' ')?;
        format!("{time}+{offset}").parse().ok()
    };
    let at = text.parse().ok().or_else(with_offset).or_else(ago);
    at.ok_or_else(|| format!("{name} is a time (2026-01-31T12:00:00Z) or a span (15m)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_uses_singular_for_one() {
        let shown = [0_u64, 1, 2].map(|number| Count(number, "call").to_string());
        assert_eq!(shown, ["0 calls", "1 call", "2 calls"]);
    }

    #[test]
    fn since_takes_times_and_spans() {
        let time: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31 12:00:00Z",
            "2026-01-31T13:00:00+01:00",
            "2026-01-31T13:00:00 01:00",
            "2026-01-31 13:00:00 01:00",
            "2026-01-31 11:00:00-01:00",
        ] {
            assert_eq!(
                parse_time("since", text, Timestamp::MAX),
                Ok(time),
                "{text}"
            );
        }
        let later = "2026-01-31T12:15:00Z".parse().unwrap();
        assert_eq!(parse_time("since", "15m", later), Ok(time));
        let error = parse_time("until", "yesterday", later).unwrap_err();
        assert!(error.starts_with("until is a time"), "{error}");
    }

    #[test]
    fn durations_and_sizes_require_units() {
        assert_eq!(
            HumanDuration::parse("250ms"),
            Ok(HumanDuration(Duration::from_millis(250)))
        );
        assert_eq!(
            HumanDuration::parse("30d"),
            Ok(HumanDuration(Duration::from_secs(30 * 86_400)))
        );
        assert!(HumanDuration::parse("200000000000000d").is_err());
        assert_eq!(Size::parse("64KiB"), Ok(Size(65_536)));
        for bad in ["30", "", "fast", "-1s"] {
            assert!(HumanDuration::parse(bad).is_err(), "{bad}");
            assert!(Size::parse(bad).is_err(), "{bad}");
        }
    }
}
