//! Finds the tokens of a statement: strings, quoted names, comments, dollar quotes and
//! placeholders. It understands nothing more.

use crate::kinds::literal::{COLON_MARK, EDGE_MARK};

/// The database whose rules of quoting apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dialect {
    /// The rules of SQLite.
    Sqlite,
    /// The rules of PostgreSQL.
    Postgres,
}

impl Dialect {
    /// Whether the database's tokenizer skips the character as white space. The same set must apply
    /// here. Otherwise the first word that is checked here could differ from the first word that
    /// the database sees.
    fn is_space(self, c: char) -> bool {
        match (self, c) {
            (_, ' ' | '\t' | '\n' | '\r' | '\x0C') => true,
            // SQLite skips a byte order mark at every position (sqlite3GetToken).
            (Self::Sqlite, '\u{FEFF}') => true,
            // White space since PostgreSQL 16 (scan.l); a syntax error before.
            (Self::Postgres, '\x0B') => true,
            (Self::Sqlite | Self::Postgres, _) => false,
        }
    }

    /// The characters that end a `--` comment.
    fn line_comment_ends(self) -> &'static [char] {
        match self {
            Self::Sqlite => &['\n'],
            Self::Postgres => &['\n', '\r'],
        }
    }
}

/// A position in the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("line {line}, column {column} of the statement")]
pub(super) struct Position {
    line: usize,
    column: usize,
}

/// A token, as far as its kind matters.
pub(super) enum Token<'a> {
    /// A placeholder `:name`.
    Placeholder(&'a str),
    /// A parameter in the database's own syntax. It would get no value.
    Foreign(&'a str),
    /// Any other token.
    Other,
}

/// Reads a text token by token.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    text: &'a str,
    /// The current position, in bytes.
    pub(super) offset: usize,
    dialect: Dialect,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect) -> Self {
        Self {
            text,
            offset: 0,
            dialect,
        }
    }

    /// Skips one character.
    pub(super) fn skip_char(&mut self) {
        self.offset += self.peek().map_or(0, char::len_utf8);
    }

    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    /// The next character.
    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Line and column of the byte at `at`.
    pub(super) fn position_at(&self, at: usize) -> Position {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Position {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The word that starts at `at`; empty if no word starts there.
    pub(super) fn word_at(&self, at: usize) -> &'a str {
        let rest = &self.text[at..];
        &rest[..rest.find(|c| !is_name_char(c)).unwrap_or(rest.len())]
    }

    /// Skips white space or a comment at the current position. Returns whether there was any.
    pub(super) fn skip_space_or_comment(&mut self) -> Result<bool, String> {
        let (rest, from) = (self.rest(), self.offset);
        let is_space = |c: char| self.dialect.is_space(c);
        if rest.starts_with(is_space) {
            self.offset += rest.len() - rest.trim_start_matches(is_space).len();
        } else if rest.starts_with("--") {
            self.offset += rest
                .find(self.dialect.line_comment_ends())
                .unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            self.offset += self
                .comment_length(rest)
                .ok_or_else(|| self.unterminated(from, "a comment"))?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The length of the comment at the start of the text. Comments nest in PostgreSQL, but not in
    /// SQLite.
    fn comment_length(&self, text: &str) -> Option<usize> {
        let (mut depth, mut at) = (1, 2);
        while depth > 0 {
            let close = text[at..].find("*/")?;
            match text[at..]
                .find("/*")
                .filter(|open| self.dialect == Dialect::Postgres && *open < close)
            {
                Some(open) => (depth, at) = (depth + 1, at + open + 2),
                None => (depth, at) = (depth - 1, at + close + 2),
            }
        }
        Some(at)
    }

    fn unterminated(&self, from: usize, what: &str) -> String {
        format!(
            "{}: {what} that begins here does not end",
            self.position_at(from)
        )
    }

    /// Skips the `.field` after a placeholder `:context`, if `is_field` accepts the field.
    pub(super) fn skip_field(&mut self, is_field: impl Fn(&str) -> bool) -> Option<&'a str> {
        let at = self.offset;
        let begins = |c: char| c.is_alphabetic() || c == '_';
        let field = self
            .rest()
            .strip_prefix('.')
            .filter(|rest| rest.starts_with(begins))
            .map(|_| self.word_at(at + 1))?;
        is_field(field).then(|| {
            self.offset += 1 + field.len();
            field
        })
    }

    /// Skips the next token.
    pub(super) fn next_token(&mut self) -> Result<Token<'a>, String> {
        let (rest, from) = (self.rest(), self.offset);
        let Some(c) = self.peek() else {
            return Ok(Token::Other);
        };
        let is_postgres = self.dialect == Dialect::Postgres;
        match c {
            '\'' => self.skip_quoted(1, '\'', false)?,
            'e' | 'E' if is_postgres && rest[1..].starts_with('\'') => {
                self.skip_quoted(2, '\'', true)?;
            }
            '"' => self.skip_quoted(1, '"', false)?,
            '`' if !is_postgres => self.skip_quoted(1, '`', false)?,
            '[' if !is_postgres => {
                self.offset += rest
                    .find(']')
                    .ok_or_else(|| self.unterminated(from, "a name in [ ]"))?
                    + 1;
            }
            '$' if is_postgres && dollar_tag(rest).is_some() => {
                let tag = dollar_tag(rest).unwrap_or_default();
                let close = rest[tag.len()..]
                    .find(tag)
                    .ok_or_else(|| self.unterminated(from, "a dollar-quoted text"))?;
                self.offset += close + 2 * tag.len();
            }
            ':' if rest.starts_with("::") || rest.starts_with(":=") => self.offset += 2,
            ':' => {
                let name = self.word_at(from + 1);
                if name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
                    self.offset += 1 + name.len();
                    return Ok(Token::Placeholder(name));
                }
                self.offset += 1;
            }
            // In a value that came by reference, `::` and `:=` are not placeholders.
            COLON_MARK if rest[COLON_MARK.len_utf8()..].starts_with([COLON_MARK, '=']) => {
                self.skip_char();
                self.skip_char();
            }
            COLON_MARK | EDGE_MARK if starts_with_name(&rest[c.len_utf8()..]) => {
                return Err(self.reference_error(from));
            }
            '?' | '@' | '$' if !is_postgres => return Ok(self.skip_foreign_parameter(from)),
            '$' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                return Ok(self.skip_foreign_parameter(from));
            }
            c if is_name_char(c) => {
                // A `$` may be inside a name.
                let inside = |c: char| is_name_char(c) || c == '$';
                self.offset += rest.find(|c| !inside(c)).unwrap_or(rest.len());
            }
            c => self.offset += c.len_utf8(),
        }
        Ok(Token::Other)
    }

    fn reference_error(&self, from: usize) -> String {
        let place = self.position_at(from);
        format!(
            "{place}: a value that came by reference would be a part of a parameter; write :name in the statement itself"
        )
    }

    fn skip_foreign_parameter(&mut self, from: usize) -> Token<'a> {
        self.offset = from + 1 + self.word_at(from + 1).len();
        Token::Foreign(&self.text[from..self.offset])
    }

    /// Skips a quoted text. Inside, the quote is doubled, or escaped with a backslash.
    fn skip_quoted(&mut self, opening: usize, quote: char, backslash: bool) -> Result<(), String> {
        let (from, rest) = (self.offset, self.rest());
        let mut chars = rest.char_indices().skip(opening).peekable();
        while let Some((at, c)) = chars.next() {
            if c == '\\' && backslash {
                chars.next();
            } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
                self.offset += at + c.len_utf8();
                return Ok(());
            }
        }
        Err(self.unterminated(from, "a text or name in quotes"))
    }
}

/// The tag `$$` or `$tag$` at the start of the text.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 2;
    let tag = &text[1..end - 1];
    let fits = tag.chars().all(is_name_char) && !tag.starts_with(|c: char| c.is_ascii_digit());
    fits.then(|| &text[..end])
}

/// Whether the text starts with characters that the database would read as the name of a parameter.
fn starts_with_name(text: &str) -> bool {
    text.trim_start_matches(EDGE_MARK).starts_with(is_name_char)
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The position of the main statement after a `with` at the start of the text, in bytes. `None` if
/// there is no `with`, or if it cannot be parsed. For PostgreSQL only.
pub(super) fn main_statement_start(text: &str) -> Option<usize> {
    let mut reader = Reader::new(text, Dialect::Postgres);
    let (mut depth, mut is_first) = (0_usize, true);
    // Whether the last token was a `)` that ends a table.
    let mut is_behind_table = false;
    // Whether the open parenthesis encloses a table, which follows `as`. The list of a table's
    // columns is in parentheses too.
    let mut is_table = false;
    let mut last_word = String::new();
    loop {
        while reader.skip_space_or_comment().ok()? {}
        let c = reader.peek()?;
        let from = reader.offset;
        let word = reader.word_at(from).to_lowercase();
        if std::mem::take(&mut is_first) && word != "with" {
            return None;
        }
        if depth == 0 && is_behind_table && !matches!(c, '(' | ')' | ',') {
            // The clauses `search` and `cycle` of a recursive table end with names. So the main
            // statement after them cannot be found here.
            return (!["search", "cycle"].contains(&word.as_str())).then_some(from);
        }
        match c {
            '(' => {
                if depth == 0 {
                    is_table = ["as", "materialized"].contains(&last_word.as_str());
                }
                depth += 1;
                reader.skip_char();
                is_behind_table = false;
            }
            ')' => {
                depth = depth.checked_sub(1)?;
                reader.skip_char();
                is_behind_table = depth == 0 && is_table;
            }
            _ => {
                is_behind_table = false;
                reader.next_token().ok()?;
            }
        }
        if depth == 0 {
            last_word = word;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_statement_starts_after_all_tables() {
        for (text, main) in [
            (
                "with d as (delete from t returning id) select * from d",
                Some("select * from d"),
            ),
            (
                "/* x */ WITH RECURSIVE a (x, y) AS NOT MATERIALIZED (select ')', \"(\" -- )\n), b as (values (1)) (select 1)",
                None,
            ),
            (
                "with a(x) as materialized (select (1)), \"as\" as (select 2) /* ( */ insert into t select 1 from a",
                Some("insert into t select 1 from a"),
            ),
            (
                "with a as (select 1) search depth first by x set y select 1",
                None,
            ),
            ("select 1", None),
            ("with", None),
            ("with a as (select 1", None),
        ] {
            assert_eq!(
                main_statement_start(text).map(|at| &text[at..]),
                main,
                "{text}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn main_statement_search_accepts_any_text(text in "(with )?[ -~\n'\"$/*;()as,]{0,60}") {
            let _ = main_statement_start(&text);
        }
    }
}
