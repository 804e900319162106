//! Explains why a file is not YAML. A parser says what it expected; people want to know what to
//! change.
//!
//! Each slip has a function that recognizes it in the text. The first one that does gives the
//! message.

use super::finding::Location;

/// The fault, and where to correct it.
pub(super) struct Explanation {
    /// From 1.
    pub(super) line: usize,
    /// From 1.
    pub(super) column: usize,
    pub(super) message: String,
}

/// A fault that the parser found.
struct Fault<'t> {
    lines: Vec<&'t str>,
    /// Index of the line.
    line: usize,
    /// Index of the character.
    column: usize,
    /// The words of the parser.
    words: &'t str,
}

/// What to change. `location` is where the parser stopped, and `words` is what it says.
pub(super) fn explain(text: &str, location: &Location, words: &str) -> Explanation {
    let (line, column) = (
        location.line.saturating_sub(1),
        location.column.saturating_sub(1),
    );
    let fault = Fault {
        lines: text.lines().collect(),
        line,
        column,
        words,
    };
    let explanation = fault
        .repeated_name()
        .or_else(|| fault.tab())
        .or_else(|| fault.open_placeholder())
        .or_else(|| fault.missing_space())
        .or_else(|| fault.colon_in_value())
        .or_else(|| fault.deeper_line())
        .or_else(|| fault.special_first_character())
        .or_else(|| fault.quotes())
        .or_else(|| fault.open_bracket())
        .or_else(|| fault.stray_indentation());
    explanation.unwrap_or_else(|| {
        fault.at(
            line,
            column,
            "this is not YAML: check the quotes, brackets and indentation here and in the line above",
        )
    })
}

impl<'t> Fault<'t> {
    fn at(&self, line: usize, column: usize, message: impl Into<String>) -> Explanation {
        Explanation {
            line: line + 1,
            column: column + 1,
            message: message.into(),
        }
    }

    fn text(&self, line: usize) -> &'t str {
        self.lines.get(line).copied().unwrap_or_default()
    }

    /// The nearest line above that is neither empty nor a comment.
    fn above(&self, line: usize) -> Option<usize> {
        (0..line.min(self.lines.len()))
            .rev()
            .find(|at| is_content(self.lines[*at]))
    }

    /// The line of the fault, and the one above it.
    fn nearby(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.line)
            .filter(|at| *at < self.lines.len())
            .chain(self.above(self.line))
    }

    fn repeated_name(&self) -> Option<Explanation> {
        if !self.words.contains("duplicated key") {
            return None;
        }
        let name: String = self
            .text(self.line)
            .chars()
            .skip(self.column)
            .take_while(|c| *c != ':')
            .collect();
        let name = name.trim().trim_matches(['"', '\'']);
        let first = (0..self.line).rev().take_while(|at| {
            !is_content(self.lines[*at]) || indent(self.lines[*at]) >= self.column
        });
        let is_same = |at: &usize| {
            let text = self.lines[*at];
            indent(text) == self.column
                && text
                    .trim_start()
                    .split_once(':')
                    .is_some_and(|(key, _)| key.trim().trim_matches(['"', '\'']) == name)
        };
        let first = first
            .filter(is_same)
            .last()
            .map(|at| format!(", first in line {}", at + 1))
            .unwrap_or_default();
        Some(self.at(
            self.line,
            self.column,
            format!("`{name}` is there twice{first}: names must be unique"),
        ))
    }

    fn tab(&self) -> Option<Explanation> {
        let is_tab = |at: &usize| {
            let text = self.lines[*at];
            text[..text.len() - text.trim_start().len()].contains('\t')
        };
        let below = std::iter::once(self.line + 1).filter(|at| *at < self.lines.len());
        let line = self.nearby().chain(below).find(is_tab)?;
        let column = self.text(line).find('\t')?;
        Some(self.at(line, column, "a tab: YAML is indented with spaces"))
    }

    fn open_placeholder(&self) -> Option<Explanation> {
        self.nearby().find_map(|line| {
            let text = self.text(line);
            let open = find_unquoted(text, "{{")?;
            let start = value_start(&text[..open]);
            let rest = &text[open..];
            let end = if text[start..].starts_with("{{") && !is_in_brackets(&text[..start]) {
                // A value of its own line.
                rest.find(" #").unwrap_or(rest.len())
            } else {
                let close = rest.find("}}").map_or(rest.len(), |at| at + 2);
                close
                    + rest[close..]
                        .find([',', '}', ']', ' '])
                        .unwrap_or(rest.len() - close)
            };
            let value = text[start..open + end].trim();
            let message = format!(
                "put a value with a placeholder in quotes: `{}\"{value}\"`",
                key_before(&text[..start])
            );
            Some(self.at(line, text[..start].chars().count(), message))
        })
    }

    fn missing_space(&self) -> Option<Explanation> {
        if !self.words.contains("simple key") && !self.words.contains("expected ':'") {
            return None;
        }
        self.nearby().find_map(|line| {
            let text = self.text(line);
            let colon = text.find(':')?;
            let is_key = text[..colon]
                .trim_start_matches([' ', '-'])
                .chars()
                .all(|c| c.is_alphanumeric() || c == '_');
            let is_joined = text[colon + 1..].starts_with(|c: char| !c.is_whitespace() && c != '/');
            let message = format!("a space is missing after the `:` in `{}`", text.trim());
            (is_key && is_joined).then(|| self.at(line, text[..colon].chars().count(), message))
        })
    }

    /// Two `: ` on one line outside quotes: `description: Gets a book: by its number`.
    fn colon_in_value(&self) -> Option<Explanation> {
        if !self.words.contains("mapping values") {
            return None;
        }
        let text = self.text(self.line);
        let first = find_unquoted(text, ": ")?;
        let start = first + 2;
        if text[..first].chars().count() >= self.column || is_in_brackets(&text[..start]) {
            return None;
        }
        let value = text[start..].trim();
        let message = format!(
            "put a value that holds `: ` in quotes: `{}{}`",
            key_before(&text[..start]),
            in_quotes(value)
        );
        Some(self.at(self.line, text[..start].chars().count(), message))
    }

    fn deeper_line(&self) -> Option<Explanation> {
        if !self.words.contains("mapping values") {
            return None;
        }
        let above = self.above(self.line)?;
        let (own, other) = (indent(self.text(self.line)), indent(self.text(above)));
        (own > other).then(|| {
            let message = format!(
                "this line is indented with {own} spaces, and line {} above it, which has a value already, with {other}: \
                 indent both the same",
                above + 1
            );
            self.at(self.line, own, message)
        })
    }

    fn special_first_character(&self) -> Option<Explanation> {
        let text = self.text(self.line);
        let chars: Vec<char> = text.chars().collect();
        let at = [self.column, self.column.wrapping_sub(1)]
            .into_iter()
            .find(|at| {
                let is_start = *at == 0
                    || chars
                        .get(at.wrapping_sub(1))
                        .is_some_and(|c| " [{,".contains(*c));
                is_start && chars.get(*at).is_some_and(|c| "@`%*&!".contains(*c))
            })?;
        let is_end = |c: &char| ",]}".contains(*c) || *c == '#';
        let in_brackets = is_in_brackets(&chars[..at].iter().collect::<String>());
        let value: String = chars[at..]
            .iter()
            .take_while(|c| !in_brackets || !is_end(c))
            .collect();
        let message = format!(
            "put a value that begins with `{}` in quotes: `{}`",
            chars[at],
            in_quotes(value.trim_end())
        );
        Some(self.at(self.line, at, message))
    }

    fn quotes(&self) -> Option<Explanation> {
        if self.words.contains("escape") {
            let message =
                "in double quotes `\\` begins an escape: use single quotes, or write `\\\\`";
            return Some(self.at(self.line, self.column, message));
        }
        if !self.words.contains("quoted scalar") {
            return None;
        }
        Some(self.at(
            self.line,
            self.column,
            "the quote that opens here is not closed",
        ))
    }

    fn open_bracket(&self) -> Option<Explanation> {
        let is_in_brackets = self.words.contains("flow");
        if !is_in_brackets && self.line < self.lines.len() {
            return None;
        }
        let last = self.line.min(self.lines.len().saturating_sub(1));
        for line in (0..=last).rev() {
            if let Some((column, bracket)) = open_brackets(self.text(line)).pop() {
                let close = if bracket == '{' { '}' } else { ']' };
                let message =
                    format!("this `{bracket}` is not closed: a `{close}` or a `,` is missing");
                return Some(self.at(line, column, message));
            }
        }
        let message =
            "something is missing before this: a `,` between two entries, or a closing `}` or `]`";
        is_in_brackets.then(|| self.at(self.line, self.column, message))
    }

    fn stray_indentation(&self) -> Option<Explanation> {
        let own = indent(self.text(self.line));
        let mut open: Vec<(usize, usize)> = Vec::new();
        for at in (0..self.line.min(self.lines.len())).filter(|at| is_content(self.lines[*at])) {
            let depth = indent(self.lines[at]);
            open.retain(|(other, _)| *other < depth);
            open.push((depth, at));
        }
        if open.iter().any(|(depth, _)| *depth == own) || self.line >= self.lines.len() {
            return None;
        }
        let (depth, line) = *open
            .iter()
            .rev()
            .min_by_key(|(depth, _)| depth.abs_diff(own))?;
        let message = format!(
            "this line is indented with {own} spaces, which fits no line above: use {depth}, as line {} has",
            line + 1
        );
        Some(self.at(self.line, own, message))
    }
}

fn is_content(line: &str) -> bool {
    let text = line.trim_start();
    !text.is_empty() && !text.starts_with('#')
}

/// The number of spaces before the text.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
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
    !open_brackets(before).is_empty()
}

/// The brackets of a line that are not closed on it, with their columns.
fn open_brackets(line: &str) -> Vec<(usize, char)> {
    let (mut open, mut quote) = (Vec::new(), None);
    for (column, c) in line.chars().enumerate() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '#')
                if line
                    .chars()
                    .nth(column.wrapping_sub(1))
                    .is_none_or(char::is_whitespace) =>
            {
                break;
            }
            (None, '{' | '[') => open.push((column, c)),
            (None, '}' | ']') => drop(open.pop()),
            (None, _) => {}
        }
    }
    open
}

fn in_quotes(value: &str) -> String {
    if value.contains(['"', '\\']) {
        format!("'{}'", value.replace('\'', "''"))
    } else {
        format!("\"{value}\"")
    }
}
