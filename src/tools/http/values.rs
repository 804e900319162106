//! JSON with placeholders: the body of a request, and the values of its query and form.

use serde_json::Value;

use super::config::Diagnostics;
use crate::call::JsonObject;
use crate::tools::template::{Template, plain_text};
use crate::tools::{Placeholder, Values};

/// A JSON value whose placeholders are parsed.
pub(super) enum Node {
    /// A value without placeholders.
    Literal(Value),
    /// A text that is exactly one placeholder. It becomes the value itself, with its type.
    Value(Placeholder),
    /// A text with placeholders.
    Text(Template),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Node {
    /// Parses a value of the manifest, and adds its faults to the notebook.
    pub(super) fn parse(value: Value, path: &[&str], notes: &mut Diagnostics<'_>) -> Self {
        match value {
            Value::String(text) => match notes.template(&text, path) {
                Some(template) => match template.lone() {
                    Some(placeholder) => Self::Value(placeholder.clone()),
                    None => match template.literal() {
                        Some(text) => Self::Literal(text.into()),
                        None => Self::Text(template),
                    },
                },
                None => Self::Literal(Value::Null),
            },
            Value::Array(items) => {
                let node = |(at, item): (usize, Value)| Self::parse(item, &[path, &[&at.to_string()]].concat(), notes);
                Self::Array(items.into_iter().enumerate().map(node).collect())
            }
            Value::Object(entries) => Self::Object(Self::entries(entries, path, notes)),
            literal => Self::Literal(literal),
        }
    }

    /// Parses the values of an object.
    pub(super) fn entries(object: JsonObject, path: &[&str], notes: &mut Diagnostics<'_>) -> Vec<(String, Self)> {
        let entry = |(key, value): (String, Value)| {
            let path = [path, &[&key]].concat();
            notes.key(&key, &path);
            let node = Self::parse(value, &path, notes);
            (key, node)
        };
        object.into_iter().map(entry).collect()
    }

    /// Fills in the values of the call. The result is `None` for a lone placeholder without a value. An object then
    /// omits the key. An array contains null instead, so that the other items keep their positions.
    pub(super) fn render(&self, values: Values<'_>) -> Option<Value> {
        Some(match self {
            Self::Literal(value) => value.clone(),
            Self::Value(placeholder) => values.get(placeholder)?.clone(),
            Self::Text(template) => template.render(values, plain_text).into(),
            Self::Array(items) => items.iter().map(|item| item.render(values).unwrap_or_default()).collect(),
            Self::Object(entries) => {
                let filled = entries.iter().filter_map(|(key, node)| Some((key.clone(), node.render(values)?)));
                Value::Object(filled.collect())
            }
        })
    }
}

/// The entries as pairs of name and text, for queries and forms. Null is omitted; an array becomes one pair per item.
pub(super) fn pairs<'n>(entries: &'n [(String, Node)], values: Values<'_>) -> Vec<(&'n str, String)> {
    let mut pairs = Vec::new();
    for (name, node) in entries {
        let rendered = match node.render(values) {
            Some(Value::Array(items)) => items,
            Some(value) => vec![value],
            None => continue,
        };
        pairs.extend(rendered.iter().filter(|value| !value.is_null()).map(|value| (name.as_str(), plain_text(value))));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::Effect;
    use crate::tools::{BuildContext, Clients, Databases};

    fn node(value: Value) -> Node {
        let input_schema = json!({"properties": {"a": {}, "b": {}, "gone": {}}});
        let base = std::path::Path::new(".");
        let context = BuildContext {
            base,
            input_schema: &input_schema,
            fields: &["tenant".to_owned()],
            effect: Effect::Read,
            trusted: true,
            clients: &Clients::default(),
            databases: &Databases::default(),
        };
        let mut notes = Diagnostics::new(&context);
        let node = Node::parse(value, &["request", "json"], &mut notes);
        assert_eq!(notes.faults, []);
        node
    }

    fn values<'a>(arguments: &'a JsonObject, context: &'a JsonObject) -> Values<'a> {
        Values { arguments, context }
    }

    fn arguments() -> JsonObject {
        json!({"a": [1, null, "x"], "b": "{{ a }}"}).as_object().unwrap().clone()
    }

    #[test]
    fn a_lone_placeholder_keeps_its_type_and_an_embedded_one_becomes_text() {
        let node = node(json!({
            "ids": "{{ a }}", "text": "b is {{ b }}", "{": 1, "none": "{{ gone }}", "nested": [{"x": "{{ gone }}"}, "{{ gone }}"]
        }));
        let expected = json!({"ids": [1, null, "x"], "text": "b is {{ a }}", "{": 1, "nested": [{}, null]});
        assert_eq!(node.render(values(&arguments(), &JsonObject::new())), Some(expected));
    }

    #[test]
    fn fields_of_the_context_are_values_like_arguments() {
        let node = node(json!({"tenant": "{{ context.tenant }}", "text": "of {{ context.tenant }}"}));
        let context = json!({"tenant": {"id": 7}}).as_object().unwrap().clone();
        let expected = json!({"tenant": {"id": 7}, "text": "of {\"id\":7}"});
        assert_eq!(node.render(values(&arguments(), &context)), Some(expected));
        assert_eq!(node.render(values(&arguments(), &JsonObject::new())), Some(json!({"text": "of "})));
    }

    #[test]
    fn pairs_repeat_arrays_and_leave_out_what_is_missing() {
        let Node::Object(entries) = node(json!({"a": "{{ a }}", "b": "{{ b }}", "c": "{{ gone }}", "d": [true, 2]}))
        else {
            panic!("an object")
        };
        let expected = [("a", "1"), ("a", "x"), ("b", "{{ a }}"), ("d", "true"), ("d", "2")];
        assert_eq!(
            pairs(&entries, values(&arguments(), &JsonObject::new())),
            expected.map(|(name, text)| (name, text.to_owned()))
        );
    }
}
