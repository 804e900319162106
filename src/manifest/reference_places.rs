//! Decides by the position of a reference whether its value is part of a template. Also decides what happens to a list
//! whose item is left out.

use std::borrow::Cow;

use crate::tools::literal;

/// The kind of entry that contains the references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A section of settings.
    Settings,
    /// An entry of a tool.
    Tool,
    /// An entry of a Python module or an MCP server.
    Source,
}

/// How the text at a position is read after references are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As plain text.
    Plain,
    /// As a template with `{{ name }}`.
    Template,
    /// As an SQL statement with `:name`.
    Statement,
}

/// What happens to an item of a list that refers to a variable without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbsentItem {
    /// The item is left out.
    LeftOut,
    /// The item becomes null, so that the other items keep their positions.
    Null,
    /// It is an error, because the following items would move to its position.
    Refused,
}

impl Owner {
    /// How the text at `path` is read. `path` is relative to the entry.
    pub(super) fn reading(self, path: &str) -> Reading {
        let is_below = |key: &str| path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        match self {
            Self::Tool if path == "statement" => Reading::Statement,
            // The program itself is not a template.
            Self::Tool if path == "command.0" => Reading::Plain,
            Self::Tool if TEMPLATES.iter().any(|key| is_below(key)) => Reading::Template,
            Self::Settings | Self::Tool | Self::Source => Reading::Plain,
        }
    }

    /// What happens to an absent item at `path`. `path` is relative to the entry.
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
    /// The value of a reference as text at this position. `before` is the text before it.
    ///
    /// # Errors
    /// A sentence: the reference is inside a placeholder.
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
