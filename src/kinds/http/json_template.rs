//! JSON with placeholders: the body of a request, and the values of its query and form.

use std::borrow::Cow;

use serde_json::Value;

use super::fault_collector::FaultCollector;
use crate::call::json::plain_text;
use crate::kinds::template::Template;
use crate::kinds::{Placeholder, Values};
use crate::sources::openapi::reader::Style;

/// A JSON value whose placeholders are parsed.
pub(super) enum JsonTemplate {
    /// A value without placeholders.
    Literal(Value),
    /// A text that is exactly one placeholder. It becomes the value itself, with its type. Only queries,
    /// forms and cookies have placeholders with a style.
    Value(Placeholder, Option<Style>),
    /// A text with placeholders.
    Text(Template),
    Array(Vec<JsonTemplate>),
    Object(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    /// Parses a value of the manifest, and adds its faults to `collector`.
    pub(super) fn parse(value: Value, path: &[&str], collector: &mut FaultCollector<'_>) -> Self {
        match value {
            Value::String(text) => match collector.parse_template(&text, path) {
                Some(template) => match (template.single_value(), template.as_literal()) {
                    (Some((placeholder, style)), _) => Self::Value(placeholder.clone(), style),
                    (None, Some(text)) => Self::Literal(text.into()),
                    (None, None) => Self::Text(template),
                },
                None => Self::Literal(Value::Null),
            },
            Value::Array(items) => {
                let node = |(at, item): (usize, Value)| {
                    Self::parse(item, &[path, &[&at.to_string()]].concat(), collector)
                };
                Self::Array(items.into_iter().enumerate().map(node).collect())
            }
            Value::Object(entries) => Self::Object(Self::parse_entries(entries, path, collector)),
            literal => Self::Literal(literal),
        }
    }

    /// Parses the values of a map.
    pub(super) fn parse_entries<V: Into<Value>>(
        entries: impl IntoIterator<Item = (String, V)>,
        path: &[&str],
        collector: &mut FaultCollector<'_>,
    ) -> Vec<(String, Self)> {
        let entry = |(key, value): (String, V)| {
            let path = [path, &[&key]].concat();
            collector.check_key(&key, &path);
            let node = Self::parse(value.into(), &path, collector);
            (key, node)
        };
        entries.into_iter().map(entry).collect()
    }

    /// Adds its placeholders to `found`.
    pub(super) fn collect_placeholders<'t>(&'t self, found: &mut Vec<&'t Placeholder>) {
        match self {
            Self::Literal(_) => {}
            Self::Value(placeholder, _) => found.push(placeholder),
            Self::Text(template) => found.extend(template.placeholders()),
            Self::Array(items) => items
                .iter()
                .for_each(|item| item.collect_placeholders(found)),
            Self::Object(entries) => entries
                .iter()
                .for_each(|(_, item)| item.collect_placeholders(found)),
        }
    }

    /// Whether a placeholder in it has a style.
    pub(super) fn has_style(&self) -> bool {
        match self {
            Self::Value(_, style) => style.is_some(),
            Self::Text(template) => template.styles().next().is_some(),
            Self::Array(items) => items.iter().any(Self::has_style),
            Self::Object(entries) => entries.iter().any(|(_, template)| template.has_style()),
            Self::Literal(_) => false,
        }
    }

    /// Fills in the values of the call. The result is `None` for a lone placeholder without a
    /// value. An object then omits the key. An array contains null instead, so that the other items
    /// keep their positions.
    pub(super) fn render(&self, values: Values<'_>) -> Option<Value> {
        Some(match self {
            Self::Literal(value) => value.clone(),
            Self::Value(placeholder, None) => values.get(placeholder)?.clone(),
            Self::Value(placeholder, Some(style)) => {
                let value = values.get(placeholder);
                let value = value.filter(|value| !style.is_undefined(value))?;
                style
                    .text(&placeholder.to_string(), value, str::to_owned)
                    .into()
            }
            Self::Text(template) => template.render(values, plain_text).into(),
            Self::Array(items) => items
                .iter()
                .map(|item| item.render(values).unwrap_or_default())
                .collect(),
            Self::Object(entries) => {
                let filled = entries
                    .iter()
                    .filter_map(|(key, node)| Some((key.clone(), node.render(values)?)));
                Value::Object(filled.collect())
            }
        })
    }
}

/// A name and a text of a query or form, both encoded.
pub(super) type Pair<'n> = (Cow<'n, str>, String);

/// The entries as encoded pairs, for queries and forms. Null is omitted; an array becomes one pair
/// per item, unless its style joins the items.
pub(super) fn render_pairs<'n>(
    entries: &'n [(String, JsonTemplate)],
    values: Values<'_>,
    encode: impl Fn(&str) -> String,
) -> Vec<Pair<'n>> {
    let mut pairs: Vec<Pair<'n>> = Vec::new();
    for (name, template) in entries {
        if let JsonTemplate::Value(placeholder, Some(style)) = template {
            let value = values.get(placeholder);
            let Some(value) = value.filter(|value| !style.is_undefined(value)) else {
                continue;
            };
            if style.makes_parameters() {
                let parameters = style.parameters(name, value).into_iter();
                pairs.extend(parameters.map(|(name, text)| (encode(&name).into(), encode(&text))));
            } else {
                pairs.push((
                    encode(name).into(),
                    style.text(&placeholder.to_string(), value, &encode),
                ));
            }
            continue;
        }
        let rendered = match template.render(values) {
            Some(Value::Array(items)) => items,
            Some(value) => vec![value],
            None => continue,
        };
        let texts = rendered
            .iter()
            .filter(|value| !value.is_null())
            .map(plain_text);
        pairs.extend(texts.map(|text| (encode(name).into(), encode(&text))));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::{Effect, JsonObject};
    use crate::kinds::BuildContext;

    fn node(value: Value) -> JsonTemplate {
        let input_schema = json!({"properties": {"a": {}, "b": {}, "gone": {}}});
        let base = std::path::Path::new(".");
        let context = BuildContext {
            name: "t",
            base_dir: base,
            input_schema: &input_schema,
            context_fields: &["tenant".to_owned()],
            effect: Effect::Read,
            trusted: true,
        };
        let mut collector = FaultCollector::new(&context);
        let node = JsonTemplate::parse(value, &["request", "json"], &mut collector);
        assert_eq!(collector.faults, []);
        node
    }

    fn values<'a>(arguments: &'a JsonObject, context: &'a JsonObject) -> Values<'a> {
        Values {
            arguments,
            context,
            credentials: None,
        }
    }

    fn arguments() -> JsonObject {
        json!({"a": [1, null, "x"], "b": "{{ a }}"})
            .as_object()
            .unwrap()
            .clone()
    }

    #[test]
    fn single_placeholder_keeps_its_type() {
        let node = node(json!({
            "ids": "{{ a }}", "text": "b is {{ b }}", "{": 1, "none": "{{ gone }}", "nested": [{"x": "{{ gone }}"}, "{{ gone }}"]
        }));
        let expected =
            json!({"ids": [1, null, "x"], "text": "b is {{ a }}", "{": 1, "nested": [{}, null]});
        assert_eq!(
            node.render(values(&arguments(), &JsonObject::new())),
            Some(expected)
        );
    }

    #[test]
    fn context_fields_render_like_arguments() {
        let node =
            node(json!({"tenant": "{{ context.tenant }}", "text": "of {{ context.tenant }}"}));
        let context = json!({"tenant": {"id": 7}}).as_object().unwrap().clone();
        let expected = json!({"tenant": {"id": 7}, "text": "of {\"id\":7}"});
        assert_eq!(node.render(values(&arguments(), &context)), Some(expected));
        assert_eq!(
            node.render(values(&arguments(), &JsonObject::new())),
            Some(json!({"text": "of "}))
        );
    }

    #[test]
    fn joined_list_without_items_is_omitted() {
        let JsonTemplate::Object(entries) =
            node(json!({"a": "{{ a | comma }}", "b": "{{ b | json }}"}))
        else {
            panic!("an object")
        };
        let arguments = json!({"a": [], "b": []}).as_object().unwrap().clone();
        let pairs = render_pairs(
            &entries,
            values(&arguments, &JsonObject::new()),
            str::to_owned,
        );
        assert_eq!(pairs, [("b".into(), "[]".to_owned())]);
    }

    #[test]
    fn pairs_repeat_arrays_and_omit_missing_values() {
        let JsonTemplate::Object(entries) =
            node(json!({"a": "{{ a }}", "b": "{{ b }}", "c": "{{ gone }}", "d": [true, 2]}))
        else {
            panic!("an object")
        };
        let expected = [
            ("a", "1"),
            ("a", "x"),
            ("b", "{{ a }}"),
            ("d", "true"),
            ("d", "2"),
        ];
        assert_eq!(
            render_pairs(
                &entries,
                values(&arguments(), &JsonObject::new()),
                str::to_owned
            ),
            expected.map(|(name, text)| (name.into(), text.to_owned()))
        );
    }
}
