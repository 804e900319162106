//! The items of `command:` in the manifest: a text, items for an argument that is given, or items
//! for each element of a list.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The shapes that an item may have, for messages.
const SHAPES: &str = "an item is a text, `{when: NAME, args: [...]}` or `{each: NAME}`";

/// An item of `command:`.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(untagged)]
pub enum CommandItem {
    /// One argument of the program, with placeholders.
    Text(String),
    /// Items that are there only if the call has a value.
    When(WhenItem),
    /// Items for each element of a list.
    Each(EachItem),
}

/// Items that are there only if an argument is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhenItem {
    /// The parameter, or `context.NAME`. Its value must not be absent, null, false or an empty
    /// list.
    pub when: String,
    /// The items.
    pub args: Vec<CommandItem>,
}

/// Items for each element of a list argument, in the order of the list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EachItem {
    /// The parameter.
    pub each: String,
    /// The texts for one element, which is `{{ item }}`. Default: the element alone.
    pub args: Option<Vec<String>>,
}

impl<'de> Deserialize<'de> for CommandItem {
    /// Reads by the keys that are there, so that a message is about the shape that was meant.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Object(entries) if entries.contains_key("when") => {
                if !entries.contains_key("args") {
                    return Err(D::Error::custom(
                        "`when` needs its items: `{when: NAME, args: [...]}`",
                    ));
                }
                WhenItem::deserialize(Value::Object(entries))
                    .map(Self::When)
                    .map_err(D::Error::custom)
            }
            Value::Object(entries) if entries.contains_key("each") => {
                EachItem::deserialize(Value::Object(entries))
                    .map(Self::Each)
                    .map_err(D::Error::custom)
            }
            value @ (Value::Number(_) | Value::Bool(_)) => Err(D::Error::custom(format!(
                "{SHAPES}: write {value} in quotes, \"{value}\""
            ))),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(D::Error::custom(SHAPES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_items_show_the_right_shapes() {
        for (item, expected) in [
            (json!(5), "write 5 in quotes, \"5\""),
            (json!(true), "write true in quotes, \"true\""),
            (json!(null), SHAPES),
            (json!(["a"]), SHAPES),
            (json!({"if": "a"}), SHAPES),
            (
                json!({"when": "a"}),
                "`when` needs its items: `{when: NAME, args: [...]}`",
            ),
            (
                json!({"when": "a", "args": [], "else": []}),
                "unknown field `else`",
            ),
            (json!({"each": "a", "sep": ","}), "unknown field `sep`"),
        ] {
            let message = serde_json::from_value::<CommandItem>(item)
                .unwrap_err()
                .to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
