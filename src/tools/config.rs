//! The interface between the manifest and the kinds of tools: what a kind gets for building a runner, and the faults
//! that it reports.

use std::path::Path;

use serde_json::Value;

use super::http::Clients;
use super::placeholder::{CONTEXT, Placeholder};
use super::sql::Databases;
use super::template::Template;
use crate::call::{Effect, is_field_name};
use crate::suggest::{HINT, closest};

/// A setting of a tool in the manifest that cannot work, or probably not as intended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The keys from the tool's entry to the setting, e.g. `["request", "url"]`. List positions are numbers.
    pub path: Vec<String>,
    /// A sentence: what is wrong, and what would be right.
    pub message: String,
    /// Whether the tool can run nevertheless.
    pub warning: bool,
}

impl ConfigFault {
    /// A fault that prevents the tool from running.
    pub fn error(path: &[&str], message: impl Into<String>) -> Self {
        let path = path.iter().map(|&key| key.to_owned()).collect();
        Self { path, message: message.into(), warning: false }
    }

    /// A fault with which the tool can run, but probably not as intended.
    pub fn warning(path: &[&str], message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::error(path, message) }
    }
}

/// What a kind needs to build a runner from its manifest keys.
pub struct BuildContext<'a> {
    /// The folder of the manifest. Relative paths start here.
    pub base: &'a Path,
    /// The tool's input schema. Placeholders are checked against it.
    pub input_schema: &'a Value,
    /// The fields of the caller's context that the tool declares.
    pub fields: &'a [String],
    /// The effect that the tool is declared to have.
    pub effect: Effect,
    /// Whether the operator's manifest declares the tool. Then a literal address that the tool may not reach is only
    /// a warning, otherwise an error.
    pub trusted: bool,
    /// The HTTP clients that tools share.
    pub clients: &'a Clients,
    /// The databases that tools share.
    pub databases: &'a Databases,
}

impl BuildContext<'_> {
    /// How the input schema declares the parameter; `None` if it does not declare it.
    pub fn parameter(&self, name: &str) -> Option<ParameterUse> {
        let schema = self.input_schema.get("properties")?.get(name)?;
        let required = self.input_schema.get("required").and_then(Value::as_array);
        let required = required.is_some_and(|list| list.iter().any(|item| item == name));
        Some(ParameterUse { always: required || schema.get("default").is_some() })
    }

    /// What the name in a placeholder stands for: a declared field of the context, or else an argument.
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

    /// Parses a text with placeholders.
    ///
    /// # Errors
    /// A sentence, if the text cannot be parsed.
    pub fn template(&self, text: &str) -> Result<Template, String> {
        Template::parse(text, |name| self.placeholder(name))
    }

    /// Faults of placeholders that name neither a parameter nor a declared field.
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

    /// Why a field of the context cannot be used, and what to write instead.
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
    /// Whether every validated call has a value for it: it is required or has a default.
    pub always: bool,
}
