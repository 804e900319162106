//! Parses texts with `{{ name }}` placeholders, once when the tool is built.
//!
//! This is deliberately not a template language. A placeholder stands for one argument or one field
//! of the caller's context. Each kind encodes the value for its position. So no value can escape
//! from its position.

use serde_json::Value;

use super::literal::{self, unescape};
use super::placeholder::{Placeholder, Values};
use crate::sources::openapi::reader::Style;

/// A parsed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Literal text.
    Text(String),
    /// A placeholder for a value, and perhaps the style of its arrays and objects.
    Value(Placeholder, Option<Style>),
}

impl Template {
    /// Parses a text. `resolve` decides what the name in a placeholder stands for. Text that came
    /// by reference stays text, whatever it contains (see `literal.rs`).
    ///
    /// # Errors
    /// A sentence, if a placeholder is not closed, or contains neither a plain name nor a name and
    /// a style.
    pub fn parse(text: &str, resolve: impl Fn(&str) -> Placeholder) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find("{{") {
            if open > 0 {
                push_text(&mut parts, &rest[..open]);
            }
            let after = &rest[open + 2..];
            let Some(close) = after.find("}}") else {
                return Err("`{{` without `}}`".into());
            };
            let content = after[..close].trim();
            let (name, style) = match content.split_once('|') {
                Some((name, style)) => (name.trim_end(), Some(parse_style(content, style.trim())?)),
                None => (content, None),
            };
            let is_name_char = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '.');
            if name.is_empty() || !name.chars().all(is_name_char) {
                return Err(format!(
                    "`{{{{ {name} }}}}` is not a placeholder: write one name in it, of a parameter or of a field as in `context.tenant`"
                ));
            }
            parts.push(Part::Value(resolve(name), style));
            rest = &after[close + 2..];
        }
        if !rest.is_empty() {
            push_text(&mut parts, rest);
        }
        Ok(Self(parts))
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The placeholder with its style, if the text is exactly one placeholder: its value keeps its type.
    pub fn single_value(&self) -> Option<(&Placeholder, Option<Style>)> {
        match self.0.as_slice() {
            [Part::Value(placeholder, style)] => Some((placeholder, *style)),
            _ => None,
        }
    }

    /// The parameters that placeholders name.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.placeholders().filter_map(Placeholder::argument)
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|part| match part {
            Part::Value(placeholder, _) => Some(placeholder),
            Part::Text(_) => None,
        })
    }

    /// The styles of its placeholders.
    pub fn styles(&self) -> impl Iterator<Item = Style> {
        self.0.iter().filter_map(|part| match part {
            Part::Value(_, style) => *style,
            Part::Text(_) => None,
        })
    }

    /// The text, if it has no placeholder.
    pub fn as_literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The same template with each literal text replaced.
    pub fn map_text(self, mut replace: impl FnMut(&str) -> String) -> Self {
        let part = |part| match part {
            Part::Text(text) => Part::Text(replace(&text)),
            value @ Part::Value(..) => value,
        };
        Self(self.0.into_iter().map(part).collect())
    }

    /// The text with all values filled in, encoded by `encode`. A missing value becomes an empty
    /// text.
    pub fn render(&self, values: Values<'_>, mut encode: impl FnMut(&Value) -> String) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Value(placeholder, style) => match (values.get(placeholder), style) {
                    (None, _) | (Some(Value::Null), Some(_)) => {}
                    (Some(value), None) => out.push_str(&encode(value)),
                    (Some(value), Some(style)) => {
                        let encode = |text: &str| encode(&Value::from(text));
                        out.push_str(&style.text(&placeholder.to_string(), value, encode));
                    }
                },
            }
        }
        out
    }
}

/// Adds a text, with references to the caller's credentials as placeholders.
fn push_text(parts: &mut Vec<Part>, text: &str) {
    for piece in literal::split_caller_references(text) {
        parts.push(match piece {
            literal::Piece::Text(text) => Part::Text(unescape(text).into_owned()),
            literal::Piece::Credential(name) => {
                Part::Value(Placeholder::Caller(name.to_owned()), None)
            }
        });
    }
}

fn parse_style(content: &str, word: &str) -> Result<Style, String> {
    word.parse().map_err(|_| {
        let known = Style::WORDS;
        format!(
            "`{{{{ {content} }}}}`: there is no style `{word}`; the styles are {}",
            known.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::json::plain_text;

    fn parse(text: &str) -> Result<Template, String> {
        Template::parse(text, |name| match name.strip_prefix("context.") {
            Some(field) => Placeholder::Context(field.to_owned()),
            None => Placeholder::Argument(name.to_owned()),
        })
    }

    fn rendered(text: &str, arguments: &Value) -> String {
        let context = json!({"tenant": "acme"});
        let values = Values {
            arguments: arguments.as_object().unwrap(),
            context: context.as_object().unwrap(),
            credentials: None,
        };
        parse(text).unwrap().render(values, plain_text)
    }

    #[test]
    fn placeholders_are_parsed_and_rendered() {
        assert_eq!(
            rendered("a/{{ x }}/{{y}}?", &json!({"x": "1 2", "y": 3})),
            "a/1 2/3?"
        );
        let template = parse("a/{{ x }}/{{context.y}}?").unwrap();
        let names: Vec<String> = template.placeholders().map(ToString::to_string).collect();
        assert_eq!(names, ["x", "context.y"]);
        assert_eq!(
            parse("{{ x }}").unwrap().single_value(),
            Some((&Placeholder::Argument("x".into()), None))
        );
        assert_eq!(template.single_value(), None);
        assert_eq!(parse("a").unwrap().as_literal(), Some("a"));
        assert_eq!(template.as_literal(), None);
    }

    #[test]
    fn context_fields_ignore_arguments() {
        let arguments = json!({"context.tenant": "other", "tenant": "other"});
        assert_eq!(
            rendered("{{ context.tenant }}/{{ context.user }}", &arguments),
            "acme/"
        );
    }

    #[test]
    fn values_are_never_parsed_as_templates() {
        assert_eq!(
            rendered("{{ x }}", &json!({"x": "{{ y }}", "y": "secret"})),
            "{{ y }}"
        );
        assert_eq!(
            rendered("{{ x }}", &json!({"x": "{{ context.tenant }}"})),
            "{{ context.tenant }}"
        );
    }

    #[test]
    fn referenced_values_stay_text() {
        use crate::kinds::literal::escape_for_template;
        let text = format!(
            "{} {{{{ x }}}} {{{}",
            escape_for_template("{{ x }}"),
            escape_for_template("{ x }}")
        );
        assert_eq!(rendered(&text, &json!({"x": "7"})), "{{ x }} 7 {{ x }}");
        assert_eq!(
            parse(&escape_for_template("{{ x }}")).unwrap().as_literal(),
            Some("{{ x }}")
        );
        assert_eq!(parse("{{ x }}").unwrap().as_literal(), None);
        assert_eq!(parse("").unwrap().as_literal(), Some(""));
    }

    #[test]
    fn invalid_placeholders_are_rejected() {
        for bad in ["{{ x", "{{ }}", "{{ x | upper }}", "{{ x + 1 }}"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
