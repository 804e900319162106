//! The placeholders of a manifest, their values in one call, and the faults of these values.

use serde_json::Value;

use crate::call::json::escape_pointer_token;
use crate::call::{CallError, CallerCredentials, JsonObject, ToolContext, ToolError, Violation};

/// The prefix of a placeholder's name for a field of the caller's context.
pub(super) const CONTEXT_PREFIX: &str = "context.";

/// What a placeholder stands for. This is decided when the tool is built, so that an argument can
/// never replace a field of the context. It is displayed as between the braces.
#[derive(Debug, Clone, PartialEq, Eq, Hash, derive_more::Display)]
pub enum Placeholder {
    /// The argument of this name.
    Argument(String),
    /// This field of the caller's context.
    #[display("{CONTEXT_PREFIX}{_0}")]
    Context(String),
    /// This credential of the caller.
    #[display("${{caller:{_0}}}")]
    Caller(String),
}

impl Placeholder {
    /// The name of the argument; `None` for a field of the context or a credential.
    pub fn argument(&self) -> Option<&str> {
        match self {
            Self::Argument(name) => Some(name),
            Self::Context(_) | Self::Caller(_) => None,
        }
    }

    /// A fault of its value. The message names the placeholder. It must not quote the value.
    pub fn fault(&self, keyword: &str, message: impl Into<String>) -> ValueFault {
        match self {
            Self::Argument(name) => {
                let token = escape_pointer_token(name);
                let (pointer, schema_pointer) =
                    (format!("/{token}"), format!("/properties/{token}"));
                ValueFault::Argument(Violation {
                    pointer,
                    keyword: keyword.into(),
                    message: message.into(),
                    schema_pointer,
                })
            }
            Self::Context(_) | Self::Caller(_) => ValueFault::Context(message.into()),
        }
    }
}

/// The values of one call.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// The arguments, by parameter.
    pub arguments: &'a JsonObject,
    /// The caller's context.
    pub context: &'a JsonObject,
    /// The caller's credentials. `None` while arguments are checked, which does not concern
    /// credentials.
    pub credentials: Option<&'a CallerCredentials>,
}

impl<'a> Values<'a> {
    /// The values of a call with this context.
    pub fn for_call(arguments: &'a JsonObject, context: &'a ToolContext) -> Self {
        Self {
            arguments,
            context: &context.context,
            credentials: Some(&context.caller.credentials),
        }
    }

    /// The value of a placeholder; `None` if the call has no value for it.
    pub fn get(&self, placeholder: &Placeholder) -> Option<&'a Value> {
        match placeholder {
            Placeholder::Argument(name) => self.arguments.get(name),
            Placeholder::Context(field) => self.context.get(field),
            Placeholder::Caller(name) => self.credentials?.get(name),
        }
    }
}

/// A fault of a value that a JSON Schema cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueFault {
    /// A fault for the model to correct.
    Argument(Violation),
    /// A fault for the caller to correct: a sentence that names the field.
    Context(String),
}

/// The model's faults, or the caller's faults as one text. The caller's come first, because other
/// arguments would not help against them.
fn split_faults(faults: Vec<ValueFault>) -> Result<Vec<Violation>, String> {
    let (mut violations, mut sentences) = (Vec::new(), Vec::new());
    for fault in faults {
        match fault {
            ValueFault::Argument(violation) => violations.push(violation),
            ValueFault::Context(sentence) => sentences.push(sentence),
        }
    }
    if sentences.is_empty() {
        Ok(violations)
    } else {
        Err(sentences.join(" "))
    }
}

impl From<Vec<ValueFault>> for ToolError {
    fn from(faults: Vec<ValueFault>) -> Self {
        split_faults(faults).map_or_else(Self::InvalidContext, Self::InvalidArguments)
    }
}

impl From<Vec<ValueFault>> for CallError {
    fn from(faults: Vec<ValueFault>) -> Self {
        split_faults(faults).map_or_else(Self::InvalidContext, Self::InvalidArguments)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    impl ValueFault {
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

    impl<'a> Values<'a> {
        /// The values of a call without a context.
        pub(crate) fn from_arguments(arguments: &'a JsonObject) -> Self {
            Self {
                arguments,
                context: Box::leak(Box::default()),
                credentials: None,
            }
        }
    }

    #[test]
    fn argument_never_replaces_context_field() {
        let arguments = json!({"context.tenant": "other", "tenant": "other"});
        let context = json!({"tenant": "acme"});
        let values = Values {
            arguments: arguments.as_object().unwrap(),
            context: context.as_object().unwrap(),
            credentials: None,
        };
        assert_eq!(
            values.get(&Placeholder::Context("tenant".into())),
            Some(&json!("acme"))
        );
        assert_eq!(
            values.get(&Placeholder::Argument("context.tenant".into())),
            Some(&json!("other"))
        );
        assert_eq!(values.get(&Placeholder::Context("user".into())), None);
    }

    #[test]
    fn context_faults_take_precedence() {
        let argument = Placeholder::Argument("a/b".into()).fault("format", "wrong");
        let field =
            Placeholder::Context("tenant".into()).fault("format", "`context.tenant` is wrong.");
        let CallError::InvalidArguments(violations) = CallError::from(vec![argument.clone()])
        else {
            panic!("of it")
        };
        assert_eq!(
            (&*violations[0].pointer, &*violations[0].schema_pointer),
            ("/a~1b", "/properties/a~1b")
        );
        let both = CallError::from(vec![argument, field]);
        assert_eq!(
            both,
            CallError::InvalidContext("`context.tenant` is wrong.".into())
        );
    }
}
