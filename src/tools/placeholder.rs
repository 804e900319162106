//! What a placeholder of a manifest stands for, its value in one call, and what may be wrong with that value.

use std::fmt;

use serde_json::Value;

use crate::call::json::pointer_token;
use crate::call::{CallError, JsonObject, ToolError, Violation};

/// Begins the name of a placeholder that is a field of the caller's context.
pub(super) const CONTEXT: &str = "context.";

/// What a placeholder stands for. Decided when the tool is built, so that an argument can never take a field's place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Placeholder {
    /// The argument of this name.
    Argument(String),
    /// This field of the caller's context.
    Context(String),
}

impl fmt::Display for Placeholder {
    /// As it is written between the braces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(name) => f.write_str(name),
            Self::Context(field) => write!(f, "{CONTEXT}{field}"),
        }
    }
}

impl Placeholder {
    /// A fault of its value. The message names the placeholder and never quotes the value.
    pub fn fault(&self, keyword: &str, message: impl Into<String>) -> Fault {
        match self {
            Self::Argument(name) => {
                let token = pointer_token(name);
                let (pointer, schema_pointer) = (format!("/{token}"), format!("/properties/{token}"));
                Fault::Argument(Violation { pointer, keyword: keyword.into(), message: message.into(), schema_pointer })
            }
            Self::Context(_) => Fault::Context(message.into()),
        }
    }
}

/// The values of one call.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// By parameter.
    pub arguments: &'a JsonObject,
    /// The caller's context.
    pub context: &'a JsonObject,
}

impl<'a> Values<'a> {
    /// The value that a placeholder stands for; `None` if the call has none.
    pub fn get(&self, placeholder: &Placeholder) -> Option<&'a Value> {
        match placeholder {
            Placeholder::Argument(name) => self.arguments.get(name),
            Placeholder::Context(field) => self.context.get(field),
        }
    }
}

/// Something wrong with a value that a JSON Schema cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The model's to correct.
    Argument(Violation),
    /// The caller's: a sentence that names the field.
    Context(String),
}

#[cfg(test)]
impl Fault {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Argument(violation) => &violation.message,
            Self::Context(sentence) => sentence,
        }
    }

    pub(crate) fn pointer(&self) -> &str {
        match self {
            Self::Argument(violation) => &violation.pointer,
            Self::Context(_) => "",
        }
    }
}

#[cfg(test)]
impl<'a> Values<'a> {
    /// A call without a context.
    pub(crate) fn of(arguments: &'a JsonObject) -> Self {
        Self { arguments, context: Box::leak(Box::default()) }
    }
}

/// The model's faults, or the caller's as one text: while there are such, no other arguments would help.
fn split(faults: Vec<Fault>) -> Result<Vec<Violation>, String> {
    let (mut violations, mut sentences) = (Vec::new(), Vec::new());
    for fault in faults {
        match fault {
            Fault::Argument(violation) => violations.push(violation),
            Fault::Context(sentence) => sentences.push(sentence),
        }
    }
    if sentences.is_empty() { Ok(violations) } else { Err(sentences.join(" ")) }
}

impl From<Vec<Fault>> for ToolError {
    fn from(faults: Vec<Fault>) -> Self {
        split(faults).map_or_else(Self::InvalidContext, Self::InvalidArguments)
    }
}

impl From<Vec<Fault>> for CallError {
    fn from(faults: Vec<Fault>) -> Self {
        split(faults).map_or_else(Self::InvalidContext, Self::InvalidArguments)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_argument_never_stands_for_a_field() {
        let arguments = json!({"context.tenant": "other", "tenant": "other"});
        let context = json!({"tenant": "acme"});
        let values = Values { arguments: arguments.as_object().unwrap(), context: context.as_object().unwrap() };
        assert_eq!(values.get(&Placeholder::Context("tenant".into())), Some(&json!("acme")));
        assert_eq!(values.get(&Placeholder::Argument("context.tenant".into())), Some(&json!("other")));
        assert_eq!(values.get(&Placeholder::Context("user".into())), None);
    }

    #[test]
    fn faults_of_the_caller_come_first() {
        let argument = Placeholder::Argument("a/b".into()).fault("format", "wrong");
        let field = Placeholder::Context("tenant".into()).fault("format", "`context.tenant` is wrong.");
        let CallError::InvalidArguments(violations) = CallError::from(vec![argument.clone()]) else { panic!("of it") };
        assert_eq!((&*violations[0].pointer, &*violations[0].schema_pointer), ("/a~1b", "/properties/a~1b"));
        let both = CallError::from(vec![argument, field]);
        assert_eq!(both, CallError::InvalidContext("`context.tenant` is wrong.".into()));
    }
}
