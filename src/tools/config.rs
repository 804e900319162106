//! Between the manifest and a kind: what a kind is told, and what it finds wrong.

use std::path::Path;

use serde_json::Value;

use super::http::Clients;
use super::sql::Databases;
use super::template::Template;
use crate::call::Effect;

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

    /// Faults of placeholders that name no parameter.
    pub fn unknown_placeholders(&self, template: &Template, path: &[&str]) -> Vec<ConfigFault> {
        let unknown = template.arguments().filter(|name| self.parameter(name).is_none());
        unknown
            .map(|name| ConfigFault::error(path, format!("`{{{{ {name} }}}}`: the tool has no parameter `{name}`")))
            .collect()
    }
}

/// How a parameter is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterUse {
    /// Every validated call has a value for it.
    pub always: bool,
}
