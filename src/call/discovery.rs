//! When a list of tools has only those that find the others.

use std::fmt;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// `discovery:` of the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Discovery {
    /// The longest list that shows all tools: a number of tools, or of estimated tokens.
    #[schemars(extend("examples" = ["10k tokens"]), extend("default" = "40 tools"))]
    pub above: ListBound,
    /// Tools that every list shows; `*` stands for any characters.
    #[schemars(extend("examples" = [["get_order"]]))]
    pub keep: Vec<String>,
    /// Anthropic's own form: its list has all tools, and `defer_loading` keeps them out of the
    /// context. A search in `POST /calls` answers references to them.
    #[schemars(extend("examples" = [true]), extend("default" = false))]
    pub defer_loading: bool,
}

/// A length of a list of tools, such as `40 tools` or `10k tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(with = "String", extend("pattern" = r"^\s*[0-9]+k?\s+(tool|token)s?\s*$"))]
pub enum ListBound {
    /// A number of tools.
    Tools(usize),
    /// A number of estimated tokens.
    Tokens(usize),
}

impl Default for ListBound {
    fn default() -> Self {
        Self::Tools(40)
    }
}

impl fmt::Display for ListBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tools(number) => write!(f, "{number} tools"),
            Self::Tokens(number) => write!(f, "{number} tokens"),
        }
    }
}

impl ListBound {
    /// Reads a bound.
    ///
    /// # Errors
    /// A sentence that says what would be valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.trim().split_once(char::is_whitespace);
        let read = parts.and_then(|(number, unit)| {
            let (digits, factor) = match number.strip_suffix('k') {
                Some(thousands) => (thousands, 1000),
                None => (number, 1),
            };
            let number = digits.parse::<usize>().ok()?.checked_mul(factor)?;
            match unit.trim() {
                "tools" | "tool" => Some(Self::Tools(number)),
                "tokens" | "token" => Some(Self::Tokens(number)),
                _ => None,
            }
        });
        read.ok_or_else(|| {
            format!("`{text}` is not the length of a list: write e.g. 40 tools, 10k tokens")
        })
    }
}

impl<'de> Deserialize<'de> for ListBound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_has_a_unit() {
        for (text, expected) in [
            ("40 tools", Ok(ListBound::Tools(40))),
            (" 1 tool ", Ok(ListBound::Tools(1))),
            ("10k tokens", Ok(ListBound::Tokens(10_000))),
            ("0 tools", Ok(ListBound::Tools(0))),
            ("40", Err(())),
            ("k tools", Err(())),
            ("10 KB", Err(())),
            ("99999999999999999999k tokens", Err(())),
        ] {
            assert_eq!(ListBound::parse(text).map_err(drop), expected, "{text}");
        }
    }
}
