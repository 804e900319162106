//! Texts with `{{ name }}` placeholders, parsed once when the tool is built.
//!
//! Deliberately no template language: a placeholder stands for one argument, and each kind encodes the value for
//! the place it lands in. There is nothing to escape from.

use serde_json::Value;

use crate::call::JsonObject;

/// A parsed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// As written.
    Text(String),
    /// The value of an argument.
    Argument(String),
}

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// A sentence, when a placeholder is not closed or holds no plain parameter name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find("{{") {
            if open > 0 {
                parts.push(Part::Text(rest[..open].to_owned()));
            }
            let after = &rest[open + 2..];
            let Some(close) = after.find("}}") else {
                return Err("`{{` without `}}`".into());
            };
            let name = after[..close].trim();
            let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '.');
            if name.is_empty() || !name.chars().all(plain) {
                return Err(format!("`{{{{ {name} }}}}` is no placeholder: it holds one parameter name"));
            }
            parts.push(Part::Argument(name.to_owned()));
            rest = &after[close + 2..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// The pieces, in order.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The parameter, if the text is one placeholder and nothing else: such a value keeps its type.
    pub fn lone(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// Names of the parameters that take part.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Argument(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The same template with other literal texts.
    pub fn map_text(self, mut other: impl FnMut(&str) -> String) -> Self {
        let part = |part| match part {
            Part::Text(text) => Part::Text(other(&text)),
            argument @ Part::Argument(_) => argument,
        };
        Self(self.0.into_iter().map(part).collect())
    }

    /// The text with every value in place, as `encode` writes it. A missing argument is written as nothing.
    pub fn render(&self, arguments: &JsonObject, mut encode: impl FnMut(&Value) -> String) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Argument(name) => {
                    if let Some(value) = arguments.get(name) {
                        out.push_str(&encode(value));
                    }
                }
            }
        }
        out
    }
}

/// A value as plain text: strings as they are, `null` as nothing, anything else as JSON.
pub fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found_and_filled() {
        let template = Template::parse("a/{{ x }}/{{y}}?").unwrap();
        let arguments = serde_json::json!({"x": "1 2", "y": 3});
        let filled = template.render(arguments.as_object().unwrap(), plain_text);
        assert_eq!(filled, "a/1 2/3?");
        assert_eq!(template.arguments().collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(Template::parse("{{ x }}").unwrap().lone(), Some("x"));
        assert_eq!(template.lone(), None);
    }

    #[test]
    fn values_are_never_read_as_templates() {
        let template = Template::parse("{{ x }}").unwrap();
        let arguments = serde_json::json!({"x": "{{ y }}", "y": "secret"});
        assert_eq!(template.render(arguments.as_object().unwrap(), plain_text), "{{ y }}");
    }

    #[test]
    fn broken_placeholders_are_refused() {
        for bad in ["{{ x", "{{ }}", "{{ x | upper }}", "{{ x + 1 }}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
