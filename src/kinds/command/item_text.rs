//! The text of one item of argv: literal text and values.

use std::borrow::Cow;

use serde_json::Value;

use super::variables::text_len;
use crate::call::Violation;
use crate::call::json::{escape_pointer_token, plain_text};
use crate::kinds::template::{Part, Template};
use crate::kinds::{BuildContext, ConfigFault, FaultRule, Placeholder, ValueFault, Values};

/// The longest item that Linux accepts (`MAX_ARG_STRLEN`, 32 pages), without its final NUL.
const MAX_ITEM_BYTES: usize = 32 * 4096 - 1;
/// The name of the element in the `args` of `each`.
pub(super) const ELEMENT: &str = "item";

/// A text with placeholders that becomes one item of argv.
pub(super) struct ItemText {
    pub(super) template: Template,
    /// Which values may begin with `-` at its start.
    pub(super) dash_rule: DashRule,
}

/// An element of a list argument.
#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    /// The list's parameter.
    pub(super) list: &'a str,
    pub(super) index: usize,
    pub(super) value: &'a Value,
}

/// The values for one item: those of the call and, in `each`, the element.
#[derive(Clone, Copy)]
pub(super) struct ItemValues<'a> {
    pub(super) values: Values<'a>,
    pub(super) element: Option<Element<'a>>,
}

impl<'a> ItemValues<'a> {
    /// The values for an item outside of `each`.
    pub(super) fn new(values: Values<'a>) -> Self {
        let element = None;
        Self { values, element }
    }

    /// The element, if the placeholder stands for it.
    fn element(&self, placeholder: &Placeholder) -> Option<Element<'a>> {
        self.element
            .filter(|_| matches!(placeholder, Placeholder::Argument(name) if name == ELEMENT))
    }

    fn get(&self, placeholder: &Placeholder) -> Option<&'a Value> {
        match self.element(placeholder) {
            Some(element) => Some(element.value),
            None => self.values.get(placeholder),
        }
    }

    /// The value as a message names it.
    fn describe(&self, placeholder: &Placeholder) -> String {
        match self.element(placeholder) {
            Some(Element { list, index, .. }) => format!("{list}[{index}]"),
            None => placeholder.to_string(),
        }
    }

    fn fault(&self, placeholder: &Placeholder, message: String) -> ValueFault {
        match self.element(placeholder) {
            Some(Element { list, index, .. }) => {
                let token = escape_pointer_token(list);
                ValueFault::Argument(Violation {
                    pointer: format!("/{token}/{index}"),
                    keyword: "argv".into(),
                    message,
                    schema_pointer: format!("/properties/{token}/items"),
                })
            }
            None => placeholder.fault("argv", message),
        }
    }
}

impl ItemText {
    /// The item with all values filled in.
    pub(super) fn render(&self, values: ItemValues<'_>) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Value(placeholder, _) => {
                values.get(placeholder).map(plain_text).unwrap_or_default()
            }
        };
        self.template.parts().iter().map(part).collect()
    }

    /// The bytes of its literal text.
    pub(super) fn literal_bytes(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Value(..) => 0,
        };
        self.template.parts().iter().map(bytes).sum()
    }

    /// Each value with the placeholder that it fills; the placeholder of an element is that of its
    /// list.
    pub(super) fn value_bytes(
        &self,
        values: ItemValues<'_>,
        mut add: impl FnMut(Cow<'_, Placeholder>, usize),
    ) {
        for placeholder in self.template.placeholders() {
            let bytes = values.get(placeholder).map_or(0, text_len);
            match values.element(placeholder) {
                Some(element) => add(
                    Cow::Owned(Placeholder::Argument(element.list.to_owned())),
                    bytes,
                ),
                None => add(Cow::Borrowed(placeholder), bytes),
            }
        }
    }

    /// Why these values are not permitted in the item. One fault is enough: the others are found in
    /// the next call.
    pub(super) fn value_fault(&self, values: ItemValues<'_>) -> Option<ValueFault> {
        let placeholders = || self.template.placeholders();
        // A schema cannot require a field of the context. A program without one of its arguments
        // may do more than was meant, so the call is refused.
        let is_missing = |placeholder: &&Placeholder| {
            matches!(placeholder, Placeholder::Context(_))
                && values.get(placeholder).is_none_or(|value| value.is_null())
        };
        if let Some(placeholder @ Placeholder::Context(field)) = placeholders().find(is_missing) {
            let message = format!(
                "`{placeholder}` stands in the command line, so `context` must have `{field}`."
            );
            return Some(ValueFault::Context(message));
        }
        if let Some(placeholder) = self.dash_placeholder(values) {
            let name = values.describe(placeholder);
            let message = format!(
                "`{name}` must not begin with `-`, because the program would read it as an option."
            );
            return Some(values.fault(placeholder, message));
        }
        let has_nul = |placeholder: &&Placeholder| matches!(values.get(placeholder), Some(Value::String(text)) if text.contains('\0'));
        if let Some(placeholder) = placeholders().find(has_nul) {
            let message = format!(
                "`{}` must not contain a NUL character.",
                values.describe(placeholder)
            );
            return Some(values.fault(placeholder, message));
        }
        let mut bytes = self.literal_bytes();
        let mut longest = None;
        for placeholder in placeholders() {
            let value = values.get(placeholder).map_or(0, text_len);
            bytes += value;
            if longest.is_none_or(|(most, _)| value > most) {
                longest = Some((value, placeholder));
            }
        }
        let (_, placeholder) = longest.filter(|_| bytes > MAX_ITEM_BYTES)?;
        let name = values.describe(placeholder);
        let message = format!(
            "`{name}` is too long: it has {bytes} bytes, and a program argument has at most {MAX_ITEM_BYTES}."
        );
        Some(values.fault(placeholder, message))
    }

    /// The placeholder whose value gives the item a leading `-` that the program could read as an
    /// option.
    fn dash_placeholder(&self, values: ItemValues<'_>) -> Option<&Placeholder> {
        for part in self.template.parts() {
            match part {
                Part::Text(_) => return None,
                Part::Value(placeholder, _) => {
                    let value = values.get(placeholder);
                    match value.and_then(plain_text_start) {
                        None => {}
                        Some('-') => {
                            return Some(placeholder)
                                .filter(|_| value.is_none_or(|it| !self.dash_rule.permits(it)));
                        }
                        Some(_) => return None,
                    }
                }
            }
        }
        None
    }
}

/// The first character of a value as plain text.
fn plain_text_start(value: &Value) -> Option<char> {
    match value {
        Value::String(text) => text.chars().next(),
        other => plain_text(other).chars().next(),
    }
}

/// The values that may begin with `-` in an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum DashRule {
    /// None.
    #[default]
    Refused,
    /// A number, because the item before begins with `--`, such as `--lon`: the number is the
    /// option's value.
    Numbers,
    /// Any value, because a literal `--` is before it, after which a program reads no options.
    Any,
}

impl DashRule {
    /// Whether an item may begin with this value although the value begins with `-`.
    pub(super) fn permits(self, value: &Value) -> bool {
        match self {
            Self::Refused => false,
            Self::Numbers => value.is_number(),
            Self::Any => true,
        }
    }

    /// A warning if the schema of a parameter at the start of an item allows values that calls
    /// refuse. A text without such values in its schema is not reported: that texts may begin with
    /// `-` is rarely meant.
    pub(super) fn warning(
        self,
        placeholder: &Placeholder,
        context: &BuildContext<'_>,
        path: &[&str],
    ) -> Option<ConfigFault> {
        let name = placeholder.argument()?;
        let schema = context.input_schema.get("properties")?.get(name)?;
        let listed = schema
            .get("enum")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let given = listed
            .chain(schema.get("const"))
            .chain(schema.get("default"));
        let mut refused =
            given.filter(|value| plain_text(value).starts_with('-') && !self.permits(value));
        let message = if let Some(value) = refused.next() {
            format!(
                "`{name}` can be `{}`, and calls refuse a value here that begins with `-`: put an item `--` before it",
                plain_text(value)
            )
        } else if self == Self::Refused && allows_negative_numbers(schema) {
            format!(
                "`{name}` can be negative, and calls refuse a value here that begins with `-`: write `minimum: 0`, or put \
                 an item `--` or the name of a long option before it"
            )
        } else {
            return None;
        };
        Some(ConfigFault::warning(path, message).with_rule(FaultRule::RefusedArgument))
    }
}

/// Whether a schema of numbers allows negative ones.
fn allows_negative_numbers(schema: &Value) -> bool {
    let is_number = |word: &Value| word == "integer" || word == "number";
    let is_numeric = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(is_number),
        Some(word) => is_number(word),
        None => false,
    };
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let least_excluded = if schema.get("type").is_some_and(|word| word == "integer") {
        -1.0
    } else {
        0.0
    };
    let has_bound = bound("minimum").is_some_and(|least| least >= 0.0)
        || bound("exclusiveMinimum").is_some_and(|least| least >= least_excluded);
    is_numeric && !has_bound && schema.get("enum").is_none() && schema.get("const").is_none()
}
