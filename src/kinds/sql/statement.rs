//! A statement with `:name` and `:context.field` placeholders. It is parsed once, when the tool is
//! built.
//!
//! Only the database decides what the statement means.

pub(super) use super::reader::Dialect;
use super::reader::{Position, Reader, Token};
use crate::call::words;
use crate::kinds;
use crate::kinds::literal::unescape;

/// The name before the field in a placeholder for a field of the caller's context:
/// `:context.tenant`.
const CONTEXT_NAME: &str = "context";

/// The first words of commands to the connection. They are refused, because tools share connections
/// and each call has its own transaction. (`copy` needs another protocol.)
const CONNECTION_COMMANDS: [&str; 30] = words(
    "begin start commit end rollback abort savepoint release prepare execute deallocate
     declare fetch move close set reset discard listen unlisten notify load lock copy do
     attach detach pragma checkpoint vacuum",
);

/// The message for a command to the connection.
pub(super) fn connection_command_message(word: &str) -> String {
    format!(
        "`{word}` is a command to the connection, which other tools share; write a statement that reads or changes \
         data; it runs in a transaction of its own"
    )
}

/// A parsed statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    parts: Vec<Part>,
    /// The placeholders, in the order of their first use.
    placeholders: Vec<Placeholder>,
}

/// A placeholder of the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placeholder {
    /// The value that it stands for.
    pub(super) name: kinds::Placeholder,
    /// The position of its first occurrence.
    pub(super) position: Position,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The index of the placeholder in `placeholders`.
    Placeholder(usize),
}

impl Statement {
    /// Parses a statement. `is_field` decides whether `:context.NAME` is a field of the context.
    /// Otherwise it is the parameter `context`, followed by `.NAME`, which the database interprets.
    ///
    /// # Errors
    /// A sentence that says what is wrong and where.
    pub(super) fn parse(
        text: &str,
        dialect: Dialect,
        is_field: impl Fn(&str) -> bool,
    ) -> Result<Self, String> {
        let mut reader = Reader::new(text, dialect);
        if let Some(at) = text.find('\0') {
            // SQLite would stop reading at the NUL.
            return Err(format!(
                "{}: a statement cannot contain a NUL character",
                reader.position_at(at)
            ));
        }
        let mut statement = Self {
            parts: Vec::new(),
            placeholders: Vec::new(),
        };
        let (mut text_start, mut first_word, mut end) = (0, None, None);
        while let Some(c) = reader.peek() {
            let from = reader.offset;
            if reader.skip_space_or_comment()? {
                continue;
            }
            if c == ';' {
                end = end.or(Some(from));
                reader.skip_char();
                continue;
            }
            if end.is_some() {
                let place = reader.position_at(from);
                return Err(format!(
                    "{place}: a second statement begins here; a tool has only one"
                ));
            }
            first_word.get_or_insert_with(|| reader.word_at(from).to_lowercase());
            match reader.next_token()? {
                Token::Other => {}
                Token::Placeholder(name) => {
                    statement.push_text(&text[text_start..from]);
                    let field = (name == CONTEXT_NAME)
                        .then(|| reader.skip_field(&is_field))
                        .flatten();
                    text_start = reader.offset;
                    let name = match field {
                        Some(field) => kinds::Placeholder::Context(field.to_owned()),
                        None => kinds::Placeholder::Argument(name.to_owned()),
                    };
                    statement.push_placeholder(name, reader.position_at(from));
                }
                Token::Foreign(written) => {
                    let place = reader.position_at(from);
                    return Err(format!(
                        "{place}: `{written}` has no value here; a parameter is written :name"
                    ));
                }
            }
        }
        let Some(word) = first_word else {
            return Err("the statement is empty".into());
        };
        if CONNECTION_COMMANDS.contains(&word.as_str()) {
            return Err(connection_command_message(&word));
        }
        statement
            .push_text(text[text_start..end.unwrap_or(text.len())].trim_end_matches([' ', '\t']));
        Ok(statement)
    }

    fn push_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.parts.push(Part::Text(unescape(text).into_owned()));
        }
    }

    fn push_placeholder(&mut self, name: kinds::Placeholder, position: Position) {
        let known = self
            .placeholders
            .iter()
            .position(|known| known.name == name);
        let index = known.unwrap_or_else(|| {
            self.placeholders.push(Placeholder { name, position });
            self.placeholders.len() - 1
        });
        self.parts.push(Part::Placeholder(index));
    }

    /// The placeholders, each once.
    pub(super) fn placeholders(&self) -> &[Placeholder] {
        &self.placeholders
    }

    /// The index of the placeholder at each of its occurrences, in the order of the text.
    pub(super) fn occurrences(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().filter_map(|part| match part {
            Part::Placeholder(index) => Some(*index),
            Part::Text(_) => None,
        })
    }

    /// The text with each placeholder in the database's syntax. `write` gets the index of the
    /// placeholder, from 0.
    pub(super) fn render(&self, mut write: impl FnMut(usize) -> String) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Placeholder(index) => out.push_str(&write(*index)),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Dialect::{Postgres, Sqlite};
    use super::*;

    /// Parses with the context fields `tenant` and `user`.
    fn parse(text: &str, dialect: Dialect) -> Result<Statement, String> {
        Statement::parse(text, dialect, |field| ["tenant", "user"].contains(&field))
    }

    fn rendered(text: &str, dialect: Dialect) -> Result<String, String> {
        parse(text, dialect).map(|statement| statement.render(|index| format!("?{}", index + 1)))
    }

    #[test]
    fn equal_placeholders_share_one_value() {
        for dialect in [Sqlite, Postgres] {
            let text = "select :a, :b from t where x = :a and y in (:städte, :_c9)";
            assert_eq!(
                rendered(text, dialect).unwrap(),
                "select ?1, ?2 from t where x = ?1 and y in (?3, ?4)"
            );
            assert_eq!(names(text, dialect), ["a", "b", "städte", "_c9"]);
        }
    }

    #[test]
    fn referenced_values_are_no_placeholders() {
        use crate::kinds::literal::escape_for_statement;
        for dialect in [Sqlite, Postgres] {
            let with = |before: &str, value: &str, behind: &str| {
                rendered(
                    &format!("{before}{}{behind}", escape_for_statement(before, value)),
                    dialect,
                )
            };
            assert_eq!(
                with("select * from ", "shop.orders", " where x = :a").unwrap(),
                "select * from shop.orders where x = ?1"
            );
            assert_eq!(
                with("select '", "it is :a", "', :b").unwrap(),
                "select 'it is :a', ?1"
            );
            assert_eq!(
                with("select ", "x::text", ", :b").unwrap(),
                "select x::text, ?1"
            );
            for (before, value, behind) in [
                ("select ", ":a", ""),
                ("select :", "a", ""),
                ("select :a", "b", ""),
                ("select ", "x:", "a"),
                ("select :", ":a", ""),
            ] {
                let error = with(before, value, behind).unwrap_err();
                assert!(
                    error.contains("a value that came by reference"),
                    "{before}{value}{behind}: {error}"
                );
            }
        }
    }

    fn names(text: &str, dialect: Dialect) -> Vec<String> {
        parse(text, dialect)
            .unwrap()
            .placeholders()
            .iter()
            .map(|one| one.name.to_string())
            .collect()
    }

    #[test]
    fn context_fields_are_separate_placeholders() {
        for dialect in [Sqlite, Postgres] {
            let text = "select :tenant from t where a = :context.tenant and b = (:context.user) or c=:context.tenant--x";
            let expected = "select ?1 from t where a = ?2 and b = (?3) or c=?2--x";
            assert_eq!(rendered(text, dialect).unwrap(), expected);
            assert_eq!(
                names(text, dialect),
                ["tenant", "context.tenant", "context.user"]
            );
            for (text, name, expected) in [
                ("select :context.other", "context", "select ?1.other"),
                ("select :context", "context", "select ?1"),
                ("select :context .tenant", "context", "select ?1 .tenant"),
                ("select :contexts.tenant", "contexts", "select ?1.tenant"),
                ("select :context.tenants", "context", "select ?1.tenants"),
            ] {
                assert_eq!(
                    (rendered(text, dialect).unwrap(), names(text, dialect)),
                    (expected.into(), vec![name.into()])
                );
            }
            assert_eq!(
                names("select ':context.tenant', x -- :context.tenant", dialect),
                [""; 0]
            );
        }
    }

    #[test]
    fn quoted_text_is_no_placeholder() {
        for text in [
            "select ':a', 'it''s :a', \":a\", \"x\"\":a\" from t -- :a",
            "select /* :a */ 1 /* ' */",
            "select '\\', ':a'",
            "select cast('10:30' as text), 1 -- it's",
        ] {
            for dialect in [Sqlite, Postgres] {
                assert_eq!(rendered(text, dialect).unwrap(), text, "{dialect:?}");
            }
        }
        for text in [
            "select x::int, '{a}'::text[], f(a := 1)",
            "select E'it\\'s :a', e'\\\\', $$ :a ' $$, $tag$ :a $$ :b $tag$",
            "select /* /* :a */ :b */ data ? 'k', data @> '{}', a[1: 2]",
            "select 5 # 3, |/ 25.0, price::numeric(10,2)",
        ] {
            assert_eq!(rendered(text, Postgres).unwrap(), text);
        }
        assert_eq!(
            rendered("select `:a`, [it's :a] from t", Sqlite).unwrap(),
            "select `:a`, [it's :a] from t"
        );
        assert_eq!(
            rendered("select * from t where a$1 = :x", Postgres).unwrap(),
            "select * from t where a$1 = ?1"
        );
        assert_eq!(
            rendered("select a$b$, :a, c$b$", Postgres).unwrap(),
            "select a$b$, ?1, c$b$",
            "no dollar quote"
        );
        assert_eq!(
            rendered("select 1 -- :a\r, :b", Postgres).unwrap(),
            "select 1 -- :a\r, ?1",
            "the comment is over"
        );
        assert_eq!(
            rendered("select 1 -- :a\r, :b", Sqlite).unwrap(),
            "select 1 -- :a\r, :b",
            "it is not"
        );
        assert_eq!(
            rendered("select E':a', :a", Postgres).unwrap(),
            "select E':a', ?1"
        );
        assert_eq!(
            rendered("select /* /* */ :a", Sqlite).unwrap(),
            "select /* /* */ ?1",
            "they do not nest"
        );
        assert_eq!(rendered("select a[:i]", Postgres).unwrap(), "select a[?1]");
    }

    #[test]
    fn second_statement_is_refused() {
        for (text, want) in [
            ("select 1;", "select 1"),
            ("select 1 ; -- done\n ;", "select 1"),
            (" select 1\n", " select 1\n"),
        ] {
            assert_eq!(rendered(text, Sqlite).unwrap(), want);
        }
        for (text, place) in [
            (
                "select 1; select 2",
                "line 1, column 11 of the statement: a second statement",
            ),
            (
                "select 1;\n drop table t;",
                "line 2, column 2 of the statement: a second statement",
            ),
            ("select 'ü\n', ';'; :a", "line 2, column 9"),
        ] {
            assert!(
                rendered(text, Sqlite).unwrap_err().starts_with(place),
                "{:?}",
                rendered(text, Sqlite)
            );
        }
        for empty in ["", "  ;", "-- nothing", "/* nothing */ ;"] {
            assert_eq!(
                rendered(empty, Postgres),
                Err("the statement is empty".into())
            );
        }
    }

    #[test]
    fn unterminated_tokens_are_reported_with_position() {
        for (text, word) in [
            (
                "select 'a",
                "column 8 of the statement: a text or name in quotes",
            ),
            ("select \"a", "column 8"),
            ("select 1 /* a", "column 10 of the statement: a comment"),
            (
                "select $x$ a $y$",
                "column 8 of the statement: a dollar-quoted text",
            ),
        ] {
            let error = rendered(text, Postgres).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn native_parameters_are_refused() {
        for (text, dialect) in [
            ("select ?", Sqlite),
            ("select ?1", Sqlite),
            ("select @a", Sqlite),
            ("select $a", Sqlite),
            ("select $1", Postgres),
        ] {
            let error = rendered(text, dialect).unwrap_err();
            assert!(error.contains("a parameter is written :name"), "{error}");
        }
    }

    #[test]
    fn statement_refuses_connection_commands() {
        for text in [
            "BEGIN",
            "/* x */ Pragma query_only = 0",
            "commit",
            "set role admin",
            "attach 'x' as y",
        ] {
            assert!(
                rendered(text, Sqlite)
                    .unwrap_err()
                    .contains("command to the connection"),
                "{text}"
            );
        }
        assert!(rendered("with x as (select 1) select * from x", Sqlite).is_ok());
        for prefix in [
            "\u{feff}",
            "\u{feff}\u{feff} ",
            "\x0C",
            "/**/\r\n\u{feff}-- x\n\u{feff}",
        ] {
            let error = rendered(&format!("{prefix}pragma query_only=off"), Sqlite).unwrap_err();
            assert!(
                error.contains("command to the connection"),
                "{prefix:?}: {error}"
            );
        }
        assert!(
            rendered("select 1\0; pragma query_only=off", Sqlite)
                .unwrap_err()
                .contains("NUL")
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[ -~\n:'\"$/*;?é-]{0,60}") {
            for dialect in [Sqlite, Postgres] {
                if let Ok(statement) = parse(&text, dialect) {
                    let rendered_again = statement.render(|index| format!(":{}", statement.placeholders()[index].name));
                    proptest::prop_assert!(text.starts_with(&rendered_again));
                }
            }
        }
    }
}
