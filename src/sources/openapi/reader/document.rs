//! An OpenAPI document, and the references within it.

use std::collections::HashMap;

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::yaml;
use crate::call::JsonObject;

/// A document of OpenAPI 3.0, 3.1 or 3.2.
#[derive(Debug)]
pub struct Document {
    root: Value,
    /// Whether schemas are those of OpenAPI 3.0, which differ from JSON Schema.
    pub(super) is_30: bool,
    /// Whether the target of a reference contains itself, as far as that was needed.
    pub(super) recursive: Mutex<HashMap<String, bool>>,
}

impl Document {
    /// Parses JSON or YAML.
    ///
    /// # Errors
    /// A sentence that says why the text is not a document that can be used.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_start_matches('\u{feff}');
        let root: Value = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text)
                .map_err(|error| format!("line {}: not JSON: {error}", error.line()))?,
            false => yaml::parse(text)?,
        };
        let version = root.get("openapi").map(|version| match version {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        match version.as_deref() {
            Some(version) if ["3.0", "3.1", "3.2"].iter().any(|known| version.starts_with(known)) => {
                Ok(Self { is_30: version.starts_with("3.0"), root, recursive: Mutex::default() })
            }
            Some(version) => Err(format!("it has version {version} of OpenAPI; versions 3.0 to 3.2 can be read")),
            None if root.get("swagger").is_some() => Err(
                "it has version 2.0 of OpenAPI (Swagger); convert it to 3.0 first, for example with swagger2openapi"
                    .into(),
            ),
            None => Err("it is not an OpenAPI document: it has no `openapi` with a version".into()),
        }
    }

    /// The value under a key at the top.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.root.get(key)
    }

    /// The target of a reference.
    ///
    /// # Errors
    /// A sentence: the target is in another document, or does not exist.
    pub(super) fn target(&self, reference: &str) -> Result<&Value, String> {
        let Some(fragment) = reference.strip_prefix('#') else {
            return Err(format!(
                "`{reference}` is in another document; bundle the documents into one"
            ));
        };
        let pointer = percent_decode_str(fragment).decode_utf8_lossy();
        self.root
            .pointer(&pointer)
            .ok_or_else(|| format!("`{reference}` does not exist"))
    }

    /// The object itself, or the target of its `$ref`. For objects that are not schemas.
    ///
    /// # Errors
    /// As [`Document::target`], and for references that lead in a circle.
    pub(super) fn resolve<'d>(&'d self, value: &'d Value) -> Result<&'d Value, String> {
        let mut value = value;
        for _ in 0..32 {
            match value.get("$ref").and_then(Value::as_str) {
                Some(reference) => value = self.target(reference)?,
                None => return Ok(value),
            }
        }
        Err("references lead in a circle".into())
    }
}

/// An object of the document, or a value that should be one.
pub(super) trait Members {
    fn member(&self, key: &str) -> Option<&Value>;

    fn text(&self, key: &str) -> Option<&str> {
        self.member(key)?.as_str()
    }

    /// The items of a list.
    fn items(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.member(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    }

    /// The members of an object.
    fn entries(&self, key: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.member(key)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
    }
}

impl Members for Value {
    fn member(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}

impl Members for JsonObject {
    fn member(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}
