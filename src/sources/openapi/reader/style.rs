//! How arrays and objects become text in a request: the styles of parameters in OpenAPI 3.1, which
//! follow RFC 6570.
//!
//! A placeholder names its style: `{{ ids | comma }}`. Each item is encoded for its position; the
//! signs between the items are not, so that a server can tell them from the signs within an item.

use serde_json::Value;
use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::call::json::plain_text;

/// The style of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Style {
    /// `a,b`; an object as `key,value,key,value`.
    Comma,
    /// `key=value,key=value`; an array as `a,b`.
    Pairs,
    /// `a b`.
    Space,
    /// `a|b`.
    Pipe,
    /// JSON.
    Json,
    /// `.a,b`.
    Label,
    /// `.a.b`; an object as `.key=value.key=value`.
    LabelExploded,
    /// `;name=a,b`.
    Matrix,
    /// `;name=a;name=b`; an object as `;key=value;key=value`.
    MatrixExploded,
    /// In a query or form: the properties of an object as parameters of their own.
    Spread,
    /// In a query or form: `name[key]=value`.
    Deep,
}

impl Style {
    /// The names of all styles, as placeholders write them.
    pub const WORDS: &'static [&'static str] = <Self as strum::VariantNames>::VARIANTS;

    /// Whether the value becomes several parameters, which only a query or a form can hold.
    pub fn makes_parameters(self) -> bool {
        matches!(self, Self::Spread | Self::Deep)
    }

    /// Whether nothing is sent for the value, which is null, or a list or an object without values
    /// (RFC 6570, 2.3). As JSON, only null is nothing.
    pub fn is_undefined(self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(items) => self != Self::Json && items.iter().all(Value::is_null),
            Value::Object(entries) => self != Self::Json && entries.values().all(Value::is_null),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    /// The value as one text. `name` is the name of the placeholder; `encode` encodes one item.
    pub fn text(self, name: &str, value: &Value, mut encode: impl FnMut(&str) -> String) -> String {
        if self == Self::Json {
            return encode(&value.to_string());
        }
        // A space or a bar has no place in a URL, so it is encoded there.
        let separator = match self {
            Self::Space => encode(" "),
            Self::Pipe => encode("|"),
            Self::LabelExploded => ".".into(),
            Self::MatrixExploded => ";".into(),
            _ => ",".into(),
        };
        let explodes = matches!(
            self,
            Self::Pairs | Self::LabelExploded | Self::MatrixExploded | Self::Spread
        );
        let items: Vec<String> = match value {
            Value::Array(items) => {
                let key = if self == Self::MatrixExploded {
                    format!("{}=", encode(name))
                } else {
                    String::new()
                };
                items
                    .iter()
                    .filter(|item| !item.is_null())
                    .map(|item| format!("{key}{}", encode(&plain_text(item))))
                    .collect()
            }
            Value::Object(entries) => {
                let sign = if explodes { "=" } else { separator.as_str() };
                let shown = entries.iter().filter(|(_, value)| !value.is_null());
                shown
                    .map(|(key, value)| {
                        format!("{}{sign}{}", encode(key), encode(&plain_text(value)))
                    })
                    .collect()
            }
            single if self == Self::MatrixExploded => {
                vec![format!("{}={}", encode(name), encode(&plain_text(single)))]
            }
            single => vec![encode(&plain_text(single))],
        };
        let joined = items.join(&separator);
        match self {
            Self::Label | Self::LabelExploded => format!(".{joined}"),
            Self::Matrix => format!(";{}={joined}", encode(name)),
            Self::MatrixExploded => format!(";{joined}"),
            _ => joined,
        }
    }

    /// The parameters that a value becomes in a query or form: names and values, not encoded.
    pub fn parameters(self, name: &str, value: &Value) -> Vec<(String, String)> {
        let mut parameters = Vec::new();
        match (self, value) {
            (Self::Spread, Value::Object(entries)) => {
                entries
                    .iter()
                    .for_each(|(key, value)| repeat(key, value, &mut parameters));
            }
            (Self::Deep, value) => nest(name, value, &mut parameters),
            (_, value) => repeat(name, value, &mut parameters),
        }
        parameters
    }
}

/// One parameter, or one for each item of an array.
fn repeat(name: &str, value: &Value, parameters: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Array(items) => items.iter().for_each(|item| match item {
            Value::Null => {}
            item => parameters.push((name.into(), plain_text(item))),
        }),
        value => parameters.push((name.into(), plain_text(value))),
    }
}

/// `name[key]` for each property, and `name[0]` for each item.
fn nest(name: &str, value: &Value, parameters: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(entries) => {
            entries
                .iter()
                .for_each(|(key, value)| nest(&format!("{name}[{key}]"), value, parameters));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| nest(&format!("{name}[{at}]"), item, parameters));
        }
        value => parameters.push((name.into(), plain_text(value))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn styles_write_values_as_rfc_6570_does() {
        let (single, array, object) = (
            json!("blue"),
            json!(["blue", "a,b"]),
            json!({"R": 100, "G": 200}),
        );
        for (style, of_single, of_array, of_object) in [
            (Style::Comma, "blue", "blue,a%2Cb", "R,100,G,200"),
            (Style::Pairs, "blue", "blue,a%2Cb", "R=100,G=200"),
            (Style::Space, "blue", "blue%20a%2Cb", "R%20100%20G%20200"),
            (Style::Pipe, "blue", "blue%7Ca%2Cb", "R%7C100%7CG%7C200"),
            (Style::Label, ".blue", ".blue,a%2Cb", ".R,100,G,200"),
            (Style::LabelExploded, ".blue", ".blue.a%2Cb", ".R=100.G=200"),
            (
                Style::Matrix,
                ";color=blue",
                ";color=blue,a%2Cb",
                ";color=R,100,G,200",
            ),
            (
                Style::MatrixExploded,
                ";color=blue",
                ";color=blue;color=a%2Cb",
                ";R=100;G=200",
            ),
        ] {
            let text = |value: &Value| {
                style.text("color", value, |text| {
                    text.replace(',', "%2C")
                        .replace(' ', "%20")
                        .replace('|', "%7C")
                })
            };
            assert_eq!(
                [text(&single), text(&array), text(&object)],
                [of_single, of_array, of_object],
                "{style:?}"
            );
        }
        assert_eq!(
            Style::Json.text("x", &array, str::to_owned),
            r#"["blue","a,b"]"#
        );
        assert_eq!(Style::Pipe.text("x", &array, str::to_owned), "blue|a,b");
    }

    #[test]
    fn list_without_items_is_undefined() {
        for value in [
            json!(null),
            json!([]),
            json!([null]),
            json!({}),
            json!({"a": null}),
        ] {
            assert!(Style::Comma.is_undefined(&value), "{value}");
            assert_eq!(Style::Json.is_undefined(&value), value.is_null(), "{value}");
        }
        for value in [json!(""), json!(0), json!([""]), json!({"a": ""})] {
            assert!(!Style::Comma.is_undefined(&value), "{value}");
        }
    }

    #[test]
    fn objects_become_parameters() {
        let value = json!({"a": 1, "b": {"c": ["x", "y"]}, "d": null});
        let pairs = |style: Style, value: &Value| {
            let pairs = style.parameters("f", value);
            pairs
                .into_iter()
                .map(|(name, text)| format!("{name}={text}"))
                .collect::<Vec<_>>()
                .join("&")
        };
        assert_eq!(
            pairs(Style::Deep, &value),
            "f[a]=1&f[b][c][0]=x&f[b][c][1]=y"
        );
        assert_eq!(
            pairs(Style::Spread, &json!({"a": 1, "b": [2, 3]})),
            "a=1&b=2&b=3"
        );
        assert_eq!(pairs(Style::Deep, &json!("x")), "f=x");
    }
}
