//! Passes fields of the caller's context to the program as environment variables. They never get
//! into the command line by themselves, and no shell expands them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::call::JsonObject;
use crate::call::json::plain_text;
use crate::kinds::{BuildContext, ConfigFault, ValueFault};

/// The prefix of these variables' names.
const VARIABLE_PREFIX: &str = "TOOLCRIB_CONTEXT_";
/// The longest `NAME=value` that Linux accepts (`MAX_ARG_STRLEN`, 32 pages), without its final NUL.
const MAX_VARIABLE_BYTES: usize = 32 * 4096 - 1;

/// The declared fields, each with the name of its variable.
pub(super) struct ContextVariables(Vec<(String, String)>);

impl ContextVariables {
    /// Names a variable for each field that the tool declares, and reports names that are already
    /// in use.
    pub(super) fn build(
        context: &BuildContext<'_>,
        environment: &BTreeMap<String, String>,
    ) -> (Self, Vec<ConfigFault>) {
        let (mut variables, mut faults): (Vec<(String, String)>, _) = (Vec::new(), Vec::new());
        for (index, field) in context.context_fields.iter().enumerate() {
            let name = variable_name(field);
            if let Some((other, _)) = variables.iter().find(|(_, known)| *known == name) {
                let message = format!(
                    "`{field}` and `{other}` would both be the variable {name}: rename one of them"
                );
                faults.push(ConfigFault::error(
                    &["context", &index.to_string()],
                    message,
                ));
            }
            if environment.contains_key(&name) {
                let message = format!(
                    "this variable holds the context field `{field}`: give it another name here"
                );
                faults.push(ConfigFault::error(&["environment", &name], message));
            }
            variables.push((field.clone(), name));
        }
        (Self(variables), faults)
    }

    /// The variables of a call. A field that is absent or null has no variable.
    pub(super) fn for_call<'a>(
        &'a self,
        context: &'a JsonObject,
    ) -> impl Iterator<Item = (&'a str, String)> {
        let present = |field: &str| context.get(field).filter(|value| !value.is_null());
        self.0
            .iter()
            .filter_map(move |(field, name)| Some((name.as_str(), plain_text(present(field)?))))
    }

    /// The bytes of the variables of a call, plus `each` for every variable.
    pub(super) fn total_bytes(&self, context: &JsonObject, each: usize) -> usize {
        let bytes = |(field, name): &(String, String)| {
            let value = context.get(field).filter(|value| !value.is_null())?;
            Some(name.len() + 1 + text_len(value) + each)
        };
        self.0.iter().filter_map(bytes).sum()
    }

    /// Why these values are not permitted as variables.
    pub(super) fn value_faults(&self, context: &JsonObject) -> Vec<ValueFault> {
        let fault = |(field, name): &(String, String)| {
            let value = context.get(field)?;
            let length = || name.len() + 1 + text_len(value);
            let problem = match value {
                Value::String(text) if text.contains('\0') => {
                    "must not contain a NUL character".to_owned()
                }
                _ if length() > MAX_VARIABLE_BYTES => {
                    format!(
                        "is too long: a variable has at most {MAX_VARIABLE_BYTES} bytes with its name"
                    )
                }
                _ => return None,
            };
            Some(ValueFault::Context(format!(
                "`context.{field}` is the variable {name} and {problem}."
            )))
        };
        self.0.iter().filter_map(fault).collect()
    }
}

/// The variable's name for a field: in upper case, with `_` for characters that are not permitted.
fn variable_name(field: &str) -> String {
    let name = field.chars().map(|c| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    });
    VARIABLE_PREFIX.chars().chain(name).collect()
}

/// The bytes of a value as plain text.
pub(super) fn text_len(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Null => 0,
        other => plain_text(other).len(),
    }
}
