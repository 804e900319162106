//! The body of an operation: which media type is sent, and what its arguments are.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::document::{Document, Members};
use super::parameters::{Location, Shape, read_style, write_placeholder};
use super::style::Style;
use crate::call::JsonObject;
use crate::call::media_type::{is_json_essence, media_type_essence};

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFormat {
    Json,
    Urlencoded,
    Multipart,
    Text,
    Bytes,
}

/// The body of an operation.
pub(super) struct Body<'d> {
    pub(super) format: BodyFormat,
    pub(super) media_type: &'d str,
    pub(super) schema: Option<&'d Value>,
    pub(super) required: bool,
    pub(super) description: Option<&'d str>,
    encoding: Option<&'d JsonObject>,
}

/// The body that an operation declares: of several media types the one that is easiest for a model.
///
/// # Errors
/// A sentence, if a reference cannot be followed.
pub(super) fn read_body<'d>(
    document: &'d Document,
    operation: &'d JsonObject,
) -> Result<Option<Body<'d>>, String> {
    let Some(written) = operation.get("requestBody") else {
        return Ok(None);
    };
    let written = document.resolve(written)?;
    let Some(content) = written.get("content").and_then(Value::as_object) else {
        return Ok(None);
    };
    let best = content
        .iter()
        .min_by_key(|(media_type, _)| rank_media_type(media_type));
    let Some((media_type, entry)) = best else {
        return Ok(None);
    };
    if entry
        .get("schema")
        .is_some_and(|schema| allows_only_empty_object(document, schema))
    {
        return Ok(None);
    }
    Ok(Some(Body {
        format: read_body_format(media_type),
        media_type,
        schema: entry.get("schema"),
        required: written.get("required") == Some(&Value::Bool(true)),
        description: written.get("description").and_then(Value::as_str),
        encoding: entry.get("encoding").and_then(Value::as_object),
    }))
}

fn read_body_format(media_type: &str) -> BodyFormat {
    let essence = media_type_essence(media_type).to_ascii_lowercase();
    match essence.split_once('/').unwrap_or((&essence, "")) {
        _ if is_json_essence(&essence) => BodyFormat::Json,
        ("*", _) => BodyFormat::Json,
        ("application", "x-www-form-urlencoded") => BodyFormat::Urlencoded,
        ("multipart", _) => BodyFormat::Multipart,
        ("text", _) => BodyFormat::Text,
        (_, sub)
            if sub == "xml"
                || sub.ends_with("+xml")
                || sub == "graphql"
                || sub == "x-ndjson"
                || sub.ends_with("yaml") =>
        {
            BodyFormat::Text
        }
        ("application", "*") => BodyFormat::Json,
        _ => BodyFormat::Bytes,
    }
}

/// How well a model can write a media type, best first. A JSON Patch is a list of changes, and
/// harder than an object.
fn rank_media_type(media_type: &str) -> u8 {
    match read_body_format(media_type) {
        BodyFormat::Json if is_plain_json(media_type) => 0,
        BodyFormat::Json if !media_type.contains("json-patch") => 1,
        BodyFormat::Json => 2,
        BodyFormat::Urlencoded => 3,
        BodyFormat::Multipart => 4,
        BodyFormat::Text => 5,
        BodyFormat::Bytes => 6,
    }
}

/// Whether the request needs no header for this media type of a JSON body.
pub(super) fn is_plain_json(media_type: &str) -> bool {
    let media_type = media_type.to_ascii_lowercase();
    media_type == "application/json"
        || media_type == "application/json; charset=utf-8"
        || media_type.contains('*')
}

/// The properties of an object body, if each can be an argument of its own.
///
/// `allOf` of objects is one object. Alternatives and further properties are not, because they
/// restrict the object as a whole.
pub(super) fn find_properties<'d>(
    document: &'d Document,
    schema: &'d Value,
) -> Result<Option<Properties<'d>>, String> {
    let mut found = Properties::default();
    let is_object = collect_properties(document, schema, &mut found, 0)?;
    Ok((is_object && !found.properties.is_empty()).then_some(found))
}

/// The properties of an object body.
#[derive(Default)]
pub(super) struct Properties<'d> {
    /// Names and schemas.
    pub(super) properties: Vec<(&'d str, &'d Value)>,
    /// The names of those that are required.
    pub(super) required: Vec<&'d str>,
}

/// Whether `{}` is the only value of a schema.
fn allows_only_empty_object(document: &Document, schema: &Value) -> bool {
    let Ok(Value::Object(fields)) = document.resolve(schema) else {
        return false;
    };
    fields.entries("properties").next().is_none()
        && fields.get("additionalProperties") == Some(&Value::Bool(false))
        && !fields.contains_key("allOf")
}

fn collect_properties<'d>(
    document: &'d Document,
    schema: &'d Value,
    found: &mut Properties<'d>,
    depth: usize,
) -> Result<bool, String> {
    let schema = document.resolve(schema)?;
    let Some(fields) = schema.as_object().filter(|_| depth < 16) else {
        return Ok(false);
    };
    let is_open = match fields.get("additionalProperties") {
        None | Some(Value::Bool(_)) => false,
        Some(schema) => schema.as_object().is_some_and(|schema| !schema.is_empty()),
    };
    let restricts = [
        "anyOf",
        "oneOf",
        "not",
        "if",
        "patternProperties",
        "dependentSchemas",
        "dependentRequired",
        "minProperties",
    ];
    if is_open || restricts.iter().any(|word| fields.contains_key(*word)) {
        return Ok(false);
    }
    if fields.get("type").is_some_and(|name| {
        *name != "object"
            && !name
                .as_array()
                .is_some_and(|all| all.contains(&"object".into()))
    }) {
        return Ok(false);
    }
    for part in fields.items("allOf") {
        if !collect_properties(document, part, found, depth + 1)? {
            return Ok(false);
        }
    }
    for (name, schema) in fields.entries("properties") {
        match found.properties.iter_mut().find(|(other, _)| other == name) {
            Some(other) => other.1 = schema,
            None => found.properties.push((name, schema)),
        }
    }
    let required = fields.items("required").filter_map(Value::as_str);
    found.required.extend(required);
    Ok(true)
}

impl Body<'_> {
    /// Whether it is a value with a schema, and not one text.
    pub(super) fn is_structured(&self) -> bool {
        !matches!(self.format, BodyFormat::Text | BodyFormat::Bytes)
    }

    /// The key of `request:` that holds the body.
    pub(super) fn request_key(&self) -> &'static str {
        match self.format {
            BodyFormat::Json => "json",
            BodyFormat::Urlencoded => "form",
            BodyFormat::Multipart => "multipart",
            BodyFormat::Text => "body",
            BodyFormat::Bytes => "body_base64",
        }
    }

    /// The value of one property in the request.
    pub(super) fn write_property(
        &self,
        document: &Document,
        name: &str,
        schema: &Value,
        argument: &str,
    ) -> Value {
        let encoding = self
            .encoding
            .and_then(|encoding| encoding.get(name)?.as_object());
        let media_type = encoding.and_then(|encoding| encoding.text("contentType"));
        match self.format {
            BodyFormat::Json => write_placeholder(argument, None).into(),
            BodyFormat::Urlencoded => {
                let shape = Shape::from_schema(document, Some(schema));
                let style = match encoding {
                    _ if media_type.is_some_and(|name| name.contains("json")) => Some(Style::Json),
                    Some(encoding) => read_style(encoding, Location::Query, shape),
                    // Without `encoding`, servers of forms read nested names.
                    None if shape == Shape::Object => Some(Style::Deep),
                    None => None,
                };
                write_placeholder(argument, style).into()
            }
            BodyFormat::Multipart if find_files(document, schema).is_some() => {
                let mut part =
                    json!({"base64": write_placeholder(argument, None), "filename": name});
                if let Some(media_type) = media_type.filter(|name| !name.contains([',', '*'])) {
                    part["type"] = media_type.into();
                }
                part
            }
            BodyFormat::Multipart => write_placeholder(argument, None).into(),
            BodyFormat::Text | BodyFormat::Bytes => Value::Null,
        }
    }
}

/// How many files a part of a multipart body holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Files {
    One,
    List,
}

/// The files that a schema describes.
pub(super) fn find_files(document: &Document, schema: &Value) -> Option<Files> {
    if is_file(document, schema) {
        return Some(Files::One);
    }
    let items = document.resolve(schema).ok()?.get("items")?;
    is_file(document, items).then_some(Files::List)
}

/// Whether a value of the schema can have a file within it.
pub(super) fn contains_file(document: &Document, schema: &Value) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        let Ok(schema) = document.resolve(schema) else {
            continue;
        };
        // A schema may contain itself.
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        if is_file(document, schema) {
            return true;
        }
        for key in ["items", "additionalProperties"] {
            open.extend(schema.get(key));
        }
        for key in ["allOf", "anyOf", "oneOf", "prefixItems"] {
            open.extend(schema.items(key));
        }
        open.extend(schema.entries("properties").map(|(_, value)| value));
    }
    false
}

/// Whether a schema describes the bytes of a file.
fn is_file(document: &Document, schema: &Value) -> bool {
    let Ok(schema) = document.resolve(schema) else {
        return false;
    };
    let encoding = schema.text("contentEncoding");
    let media_type = schema.text("contentMediaType");
    schema.text("format") == Some("binary")
        || encoding == Some("base64")
        || (media_type.is_some_and(|name| name != "application/json") && encoding.is_none())
}
