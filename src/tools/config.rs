//! Between the manifest and a kind: what a kind is told, and what it finds wrong.

use std::path::Path;

use serde_json::Value;

use super::http::Clients;
use super::placeholder::{CONTEXT, Placeholder};
use super::sql::Databases;
use super::template::Template;
use crate::call::{Effect, is_field_name};
use crate::similar::{HINT, closest};

/// Something that the manifest says of a tool and that cannot work, or not as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// Keys from the tool's entry down to the place, e.g. `["request", "url"]`; list positions as numbers.
    pub path: Vec<String>,
    /// What is wrong and what would be right.
    pub message: String,
    /// It can run all the same.
    pub warning: bool,
}

impl ConfigFault {
    /// It cannot run.
    pub fn error(path: &[&str], message: impl Into<String>) -> Self {
        let path = path.iter().map(|&key| key.to_owned()).collect();
        Self { path, message: message.into(), warning: false }
    }

    /// It can run, but hardly as meant.
    pub fn warning(path: &[&str], message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::error(path, message) }
    }
}

/// What a kind needs to know to build a runner from its part of the manifest.
pub struct BuildContext<'a> {
    /// Relative paths start here: the folder of the manifest.
    pub base: &'a Path,
    /// The tool's input schema, to hold placeholders against.
    pub input_schema: &'a Value,
    /// The fields of the caller's context that the tool declares.
    pub fields: &'a [String],
    /// What the tool may do.
    pub effect: Effect,
    /// The operator's file says it: a literal address that is out of reach is then odd, otherwise an error.
    pub trusted: bool,
    /// HTTP clients that tools share.
    pub clients: &'a Clients,
    /// Databases that tools share.
    pub databases: &'a Databases,
}

impl BuildContext<'_> {
    /// Whether the schema declares the parameter, and whether each call has a value for it (required or defaulted).
    pub fn parameter(&self, name: &str) -> Option<ParameterUse> {
        let schema = self.input_schema.get("properties")?.get(name)?;
        let required = self.input_schema.get("required").and_then(Value::as_array);
        let required = required.is_some_and(|list| list.iter().any(|item| item == name));
        Some(ParameterUse { always: required || schema.get("default").is_some() })
    }

    /// What the name in a placeholder stands for: a declared field of the context, else an argument.
    pub fn placeholder(&self, name: &str) -> Placeholder {
        match name.strip_prefix(CONTEXT).filter(|field| self.takes(field)) {
            Some(field) => Placeholder::Context(field.to_owned()),
            None => Placeholder::Argument(name.to_owned()),
        }
    }

    /// Whether the tool declares this field of the context.
    pub fn takes(&self, field: &str) -> bool {
        self.fields.iter().any(|declared| declared == field)
    }

    /// A text with its placeholders.
    ///
    /// # Errors
    /// A sentence, when it cannot be read.
    pub fn template(&self, text: &str) -> Result<Template, String> {
        Template::parse(text, |name| self.placeholder(name))
    }

    /// Faults of placeholders that name no parameter and no declared field.
    pub fn unknown_placeholders(&self, template: &Template, path: &[&str]) -> Vec<ConfigFault> {
        let unknown = template.placeholders().filter_map(|placeholder| match placeholder {
            Placeholder::Argument(name) if self.parameter(name).is_none() => Some(name),
            Placeholder::Argument(_) | Placeholder::Context(_) => None,
        });
        unknown
            .map(|name| {
                let why = match name.strip_prefix(CONTEXT) {
                    Some(field) => self.undeclared(field),
                    None => format!("the tool has no parameter `{name}`"),
                };
                ConfigFault::error(path, format!("`{{{{ {name} }}}}`: {why}"))
            })
            .collect()
    }

    /// Why a field of the context cannot be named, and what to write instead.
    pub fn undeclared(&self, field: &str) -> String {
        match field.split_once('.') {
            Some((first, _)) => {
                format!("a field of the context is one name and no path; `{CONTEXT}{first}` is all of it")
            }
            None if is_field_name(field) => {
                let declared = self.fields.iter().map(String::as_str);
                if let Some(meant) = closest(field, declared, HINT) {
                    return format!(
                        "the tool does not take this field of the context, did you mean `{CONTEXT}{meant}`?"
                    );
                }
                let fields: Vec<&str> = self.fields.iter().map(String::as_str).chain([field]).collect();
                format!("the tool does not take this field of the context; write `context: [{}]`", fields.join(", "))
            }
            None => "no field of the context has such a name".into(),
        }
    }
}

/// How a parameter is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterUse {
    /// Every validated call has a value for it.
    pub always: bool,
}
