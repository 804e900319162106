//! Which values may begin with `-`, where a program could read them as options.

use serde_json::Value;

use crate::call::json::plain_text;
use crate::kinds::{BuildContext, ConfigFault, FaultRule, Placeholder};

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
