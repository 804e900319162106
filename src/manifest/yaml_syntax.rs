//! Explains why a file is not YAML. A parser says what it expected; people want to know what to
//! change.
//!
//! Each slip has a function that recognizes it in the text. The first one that does gives the
//! message.

use crate::sources::openapi::reader::yaml::Place;

/// A fault that the parser found.
struct Fault<'t> {
    lines: Vec<&'t str>,
    /// Index of the line.
    line: usize,
    /// Index of the character.
    column: usize,
}

/// Where to correct a text, and what to change. `stop` is where the parser stopped, and `words` is
/// what it says.
pub(super) fn explain(text: &str, stop: Place, words: &str) -> (Place, String) {
    let fault = Fault {
        lines: text.lines().collect(),
        line: stop.line - 1,
        column: stop.column - 1,
    };
    let explanation = fault
        .tab()
        .or_else(|| fault.open_placeholder())
        .or_else(|| {
            fault
                .colon_in_value()
                .filter(|_| words.contains("mapping values"))
        })
        .or_else(|| fault.special_first_character());
    explanation.unwrap_or_else(|| {
        let message = "this is not YAML: check the quotes, brackets and indentation here and in the line above";
        (stop, message.to_owned())
    })
}

impl<'t> Fault<'t> {
    /// An explanation. Line and column are indices.
    fn at(&self, line: usize, column: usize, message: String) -> (Place, String) {
        let (line, column) = (line + 1, column + 1);
        (Place { line, column }, message)
    }

    fn text(&self, line: usize) -> &'t str {
        self.lines.get(line).copied().unwrap_or_default()
    }

    /// The line of the fault, and the nearest one above it that is neither empty nor a comment.
    fn nearby(&self) -> impl Iterator<Item = usize> {
        let is_content = |at: &usize| {
            let text = self.lines[*at].trim_start();
            !text.is_empty() && !text.starts_with('#')
        };
        let above = (0..self.line.min(self.lines.len())).rev().find(is_content);
        std::iter::once(self.line)
            .filter(|at| *at < self.lines.len())
            .chain(above)
    }

    fn tab(&self) -> Option<(Place, String)> {
        let indent = |at: usize| {
            let text = self.text(at);
            &text[..text.len() - text.trim_start().len()]
        };
        let line = self
            .nearby()
            .chain([self.line + 1])
            .find(|at| indent(*at).contains('\t'))?;
        let message = "a tab: YAML is indented with spaces";
        Some(self.at(line, indent(line).find('\t')?, message.into()))
    }

    fn open_placeholder(&self) -> Option<(Place, String)> {
        self.nearby().find_map(|line| {
            let text = self.text(line);
            let (open, word, closing) = match find_unquoted(text, "{{") {
                Some(open) => (open, "placeholder", "}}"),
                None => (self.open_reference(line)?, "reference", "}"),
            };
            let start = value_start(&text[..open]);
            let rest = &text[open..];
            let end = if text[start..].starts_with("{{") && !is_in_brackets(&text[..start]) {
                // A value of its own line.
                rest.find(" #").unwrap_or(rest.len())
            } else {
                let close = rest
                    .find(closing)
                    .map_or(rest.len(), |at| at + closing.len());
                let after = rest[close..].find([',', '}', ']', ' ']);
                after.map_or(rest.len(), |at| close + at)
            };
            let value = text[start..open + end].trim();
            let key = key_before(&text[..start]);
            let message = format!("put a value with a {word} in quotes: `{key}\"{value}\"`");
            Some(self.at(line, text[..start].chars().count(), message))
        })
    }

    /// Where `${` begins, if the parser stopped at its brace: within brackets, it opens a map.
    fn open_reference(&self, line: usize) -> Option<usize> {
        let text = self.text(line);
        let (brace, _) = text.char_indices().nth(self.column)?;
        let at_reference = line == self.line && text[brace..].starts_with('{');
        text[..brace]
            .strip_suffix('$')
            .filter(|_| at_reference)
            .map(str::len)
    }

    /// Two `: ` on one line outside quotes: `description: Gets a book: by its number`.
    fn colon_in_value(&self) -> Option<(Place, String)> {
        let text = self.text(self.line);
        let start = find_unquoted(text, ": ")? + 2;
        let column = text[..start].chars().count();
        if column >= self.column || is_in_brackets(&text[..start]) {
            return None;
        }
        let (key, value) = (key_before(&text[..start]), in_quotes(text[start..].trim()));
        let message = format!("put a value that holds `: ` in quotes: `{key}{value}`");
        Some(self.at(self.line, column, message))
    }

    fn special_first_character(&self) -> Option<(Place, String)> {
        let text = self.text(self.line);
        let chars: Vec<char> = text.chars().collect();
        let begins = |at: &usize| {
            let is_start = *at == 0 || chars.get(*at - 1).is_some_and(|c| " [{,".contains(*c));
            is_start && chars.get(*at).is_some_and(|c| "@`%*&!".contains(*c))
        };
        let at = [self.column, self.column.saturating_sub(1)]
            .into_iter()
            .find(begins)?;
        let in_brackets = is_in_brackets(&chars[..at].iter().collect::<String>());
        let is_part = |c: &&char| !in_brackets || !",]}#".contains(**c);
        let value: String = chars[at..].iter().take_while(is_part).collect();
        let (first, value) = (chars[at], in_quotes(value.trim_end()));
        let message = format!("put a value that begins with `{first}` in quotes: `{value}`");
        Some(self.at(self.line, at, message))
    }
}

/// The position of `needle` outside quotes.
fn find_unquoted(text: &str, needle: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if text[at..].starts_with(needle) => return Some(at),
            // An apostrophe inside a word opens nothing.
            None if "\"'".contains(c) && !text[..at].ends_with(char::is_alphanumeric) => {
                quote = Some(c);
            }
            _ => {}
        }
    }
    None
}

/// Where the value begins that contains the end of `before`.
fn value_start(before: &str) -> usize {
    let ends = [": ", ", ", "- ", "[", "{"]
        .into_iter()
        .filter_map(|mark| Some(before.rfind(mark)? + mark.len()));
    ends.max()
        .unwrap_or(before.len() - before.trim_start().len())
}

/// `key: `, if the value after `before` has a key.
fn key_before(before: &str) -> String {
    let Some(before) = before.strip_suffix(": ") else {
        return String::new();
    };
    let start = before.rfind([' ', '{', ',']).map_or(0, |at| at + 1);
    format!("{}: ", &before[start..])
}

fn is_in_brackets(before: &str) -> bool {
    before.matches(['{', '[']).count() > before.matches(['}', ']']).count()
}

fn in_quotes(value: &str) -> String {
    if value.contains(['"', '\\']) {
        format!("'{}'", value.replace('\'', "''"))
    } else {
        format!("\"{value}\"")
    }
}
