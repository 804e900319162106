//! What the place of a reference means for it: whether its value stands in a template, and what becomes of a list whose item is left
//! out.

use std::borrow::Cow;

use crate::tools::literal;

/// Whose entry holds the references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// No tool's: a section of settings.
    Settings,
    /// A tool's.
    Tool,
    /// A Python module's or an MCP server's.
    Source,
}

/// How the text at a place is read once references are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As it is.
    Plain,
    /// For `{{ name }}`.
    Template,
    /// For `:name`.
    Statement,
}

/// What becomes of an item of a list that refers to a variable without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbsentItem {
    /// It is left out.
    LeftOut,
    /// It is null, so that the other items keep their places.
    Null,
    /// An error: the items behind it would take its place.
    Refused,
}

impl Owner {
    /// How the text at `path` is read; `path` begins below the entry.
    pub(super) fn reading(self, path: &str) -> Reading {
        let is_below = |key: &str| path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        match self {
            Self::Tool if path == "statement" => Reading::Statement,
            // The program itself is no template.
            Self::Tool if path == "command.0" => Reading::Plain,
            Self::Tool if TEMPLATES.iter().any(|key| is_below(key)) => Reading::Template,
            Self::Settings | Self::Tool | Self::Source => Reading::Plain,
        }
    }

    /// What becomes of an item at `path`; `path` begins below the entry.
    pub(super) fn absent_item(self, path: &str) -> AbsentItem {
        let is_in = |key: &str| path.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
        match self {
            Self::Tool | Self::Source if is_in("command") => AbsentItem::Refused,
            Self::Tool if is_in("request.json") || is_in("model.options") => AbsentItem::Null,
            Self::Source if is_in("init") => AbsentItem::Null,
            Self::Settings | Self::Tool | Self::Source => AbsentItem::LeftOut,
        }
    }
}

/// Keys of a tool whose texts are templates.
const TEMPLATES: [&str; 9] = [
    "command",
    "stdin",
    "prompt",
    "request.url",
    "request.query",
    "request.headers",
    "request.json",
    "request.body",
    "request.form",
];

impl Reading {
    /// The value of a reference as text at this place. `before` is the text in front of it.
    ///
    /// # Errors
    /// A sentence: the reference stands inside a placeholder.
    pub(super) fn literal<'v>(self, before: &str, value: &'v str) -> Result<Cow<'v, str>, &'static str> {
        match self {
            Self::Plain => Ok(Cow::Borrowed(value)),
            Self::Statement => Ok(literal::in_statement(before, value)),
            Self::Template if before.rsplit_once("{{").is_some_and(|(_, inside)| !inside.contains("}}")) => {
                Err("a reference stands between `{{` and `}}`: write the name of a parameter there")
            }
            Self::Template => Ok(literal::in_template(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_told_by_their_keys() {
        for (path, reading) in [
            ("request.url", Reading::Template),
            ("request.headers.x-key", Reading::Template),
            ("request.json.a.0", Reading::Template),
            ("request.allow_hosts.0", Reading::Plain),
            ("request.urls", Reading::Plain),
            ("command.0", Reading::Plain),
            ("command.1", Reading::Template),
            ("environment.A", Reading::Plain),
            ("statement", Reading::Statement),
        ] {
            assert_eq!(Owner::Tool.reading(path), reading, "{path}");
        }
        assert_eq!(Owner::Source.reading("command.1"), Reading::Plain);
    }
}
