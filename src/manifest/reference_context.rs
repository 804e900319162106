//! Decides by the position of a reference whether its value is part of a template. Also decides
//! what happens to a list whose item is left out.

use std::borrow::Cow;

use crate::call::words;
use crate::kinds::literal;

/// The kind of entry that contains the references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A section of settings.
    Settings,
    /// An entry of a tool.
    Tool,
    /// An entry of a Python module or an MCP server.
    Source,
}

/// How the text at a position is read after references are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
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

impl EntryKind {
    /// How the text at `path` is read. `path` is relative to the entry.
    pub(super) fn text_kind(self, path: &str) -> TextKind {
        let is_in = |key: &str| path == key || is_below(path, key);
        match self {
            Self::Tool if path == "statement" => TextKind::Statement,
            // The program itself is not a template.
            Self::Tool if path == "command.0" => TextKind::Plain,
            Self::Tool if TEMPLATE_KEYS.iter().any(|key| is_in(key)) => TextKind::Template,
            Self::Settings | Self::Tool | Self::Source => TextKind::Plain,
        }
    }

    /// Whether the text at `path` may refer to credentials of the caller. `path` is relative to the
    /// entry.
    pub(super) fn takes_caller_credentials(self, path: &str) -> bool {
        let is_in = |key: &str| is_below(path, key);
        match self {
            Self::Settings => false,
            Self::Tool => {
                path == "request.url" || is_in("request.headers") || is_in("request.query")
            }
            Self::Source => {
                path == "url" || path == "base_url" || is_in("headers") || is_in("query")
            }
        }
    }

    /// The name in a `$NAME` that was probably meant as a reference. Statements, and scripts in
    /// `command`, have dollar signs of their own.
    pub(super) fn shell_variable<'t>(self, path: &str, text: &'t str) -> Option<&'t str> {
        let is_word = !text.contains(char::is_whitespace) || text.contains(": ");
        let is_script = text.contains(['\n', ';', '"', '\'', '|', '(', '{', '>']) || !is_word;
        match path.split('.').next().unwrap_or_default() {
            "statement" => return None,
            "command" if is_script => return None,
            // A document of GraphQL.
            "request" if text.contains('{') && text.contains(' ') && !text.contains("{{") => {
                return None;
            }
            _ => {}
        }
        text.split('$').skip(1).find_map(|rest| {
            let end =
                rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
            let is_name = name.len() >= 3 && name.starts_with(|c: char| c.is_ascii_uppercase());
            (is_name && !after.starts_with(char::is_alphanumeric)).then_some(name)
        })
    }

    /// What happens to an absent item at `path`. `path` is relative to the entry.
    pub(super) fn absent_item(self, path: &str) -> AbsentItem {
        let is_in = |key: &str| is_below(path, key);
        match self {
            Self::Tool | Self::Source if is_in("command") => AbsentItem::Refused,
            Self::Tool if is_in("request.json") || is_in("model.options") => AbsentItem::Null,
            Self::Source if is_in("init") => AbsentItem::Null,
            Self::Settings | Self::Tool | Self::Source => AbsentItem::LeftOut,
        }
    }
}

fn is_below(path: &str, key: &str) -> bool {
    let rest = path.strip_prefix(key);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

/// Keys of a tool whose texts are templates.
const TEMPLATE_KEYS: [&str; 13] = words(
    "command stdin output.file prompt request.url request.query request.headers
     request.json request.cookies request.body request.body_base64 request.multipart
     request.form",
);

impl TextKind {
    /// The value of a reference as text at this position. `before` is the text before it.
    ///
    /// # Errors
    /// A sentence: the reference is inside a placeholder.
    pub(super) fn embed_value<'v>(
        self,
        before: &str,
        value: &'v str,
    ) -> Result<Cow<'v, str>, &'static str> {
        match self {
            Self::Plain => Ok(Cow::Borrowed(value)),
            Self::Statement => Ok(literal::escape_for_statement(before, value)),
            Self::Template
                if before
                    .rsplit_once("{{")
                    .is_some_and(|(_, inside)| !inside.contains("}}")) =>
            {
                Err(
                    "a reference is not allowed between `{{` and `}}`: write the name of a parameter there",
                )
            }
            Self::Template => Ok(literal::escape_for_template(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_kind_depends_on_the_key() {
        for (path, reading) in [
            ("request.url", TextKind::Template),
            ("request.headers.x-key", TextKind::Template),
            ("request.json.a.0", TextKind::Template),
            ("request.cookies.session", TextKind::Template),
            ("request.body_base64", TextKind::Template),
            ("request.multipart.file.base64", TextKind::Template),
            ("request.allow_hosts.0", TextKind::Plain),
            ("request.urls", TextKind::Plain),
            ("command.0", TextKind::Plain),
            ("command.1", TextKind::Template),
            ("command.2.args.0", TextKind::Template),
            ("output.file", TextKind::Template),
            ("environment.A", TextKind::Plain),
            ("statement", TextKind::Statement),
        ] {
            assert_eq!(EntryKind::Tool.text_kind(path), reading, "{path}");
        }
        assert_eq!(EntryKind::Source.text_kind("command.1"), TextKind::Plain);
    }
}
