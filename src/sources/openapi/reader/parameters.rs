//! The parameters of an operation: which argument fills which part of the request, and how.

use serde_json::{Value, json};

use super::document::{Document, Members};
use super::style::Style;
use crate::call::JsonObject;

/// The part of the request that a parameter is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    Path,
    Query,
    Header,
    Cookie,
}

/// One parameter.
pub(super) struct Parameter<'d> {
    pub(super) name: &'d str,
    pub(super) location: Location,
    pub(super) required: bool,
    pub(super) schema: Option<&'d Value>,
    pub(super) description: Option<&'d str>,
    pub(super) is_deprecated: bool,
    pub(super) example: Option<&'d Value>,
    /// How an array or object becomes text.
    pub(super) style: Option<Style>,
}

/// The placeholder for an argument. Without a style, an array in a query is repeated.
pub(super) fn write_placeholder(argument: &str, style: Option<Style>) -> String {
    match style {
        None => format!("{{{{ {argument} }}}}"),
        Some(style) => format!("{{{{ {argument} | {} }}}}", <&str>::from(style)),
    }
}

/// The style for `style` and `explode` as written, at this location and for this shape of value.
/// `None`: a single value, or an array of a query as repeated parameters.
pub(super) fn read_style(written: &JsonObject, location: Location, shape: Shape) -> Option<Style> {
    let default = match location {
        Location::Path | Location::Header => "simple",
        Location::Query | Location::Cookie => "form",
    };
    let style = written.text("style").unwrap_or(default);
    let explode = written
        .get("explode")
        .and_then(Value::as_bool)
        .unwrap_or(matches!(style, "form" | "deepObject" | "cookie"));
    let is_cookie = location == Location::Cookie;
    match (style, shape) {
        ("label", Shape::Array | Shape::Object | Shape::Any) if explode => {
            Some(Style::LabelExploded)
        }
        ("label", _) => Some(Style::Label),
        ("matrix", _) if explode => Some(Style::MatrixExploded),
        ("matrix", _) => Some(Style::Matrix),
        ("deepObject", _) => Some(Style::Deep),
        (_, Shape::Single | Shape::Any) => None,
        ("spaceDelimited", _) if !explode => Some(Style::Space),
        ("pipeDelimited", _) if !explode => Some(Style::Pipe),
        ("simple", Shape::Object) if explode => Some(Style::Pairs),
        ("simple", _) => Some(Style::Comma),
        (_, Shape::Array) if explode && !is_cookie => None,
        (_, Shape::Object) if explode && is_cookie => Some(Style::Pairs),
        (_, Shape::Object) if explode => Some(Style::Spread),
        (_, Shape::Array | Shape::Object) => Some(Style::Comma),
    }
}

/// The shape of a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    Array,
    Object,
    /// The schema allows several shapes, or says nothing.
    Any,
}

impl Shape {
    /// The shape that a schema describes.
    pub(super) fn from_schema(document: &Document, schema: Option<&Value>) -> Self {
        Self::from_nested_schema(document, schema, 0)
    }

    fn from_nested_schema(document: &Document, schema: Option<&Value>, depth: usize) -> Self {
        let Some(schema) = schema.and_then(|schema| document.resolve(schema).ok()) else {
            return Self::Any;
        };
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| *name != "null")
                .collect(),
            _ => Vec::new(),
        };
        match types.as_slice() {
            ["array"] => return Self::Array,
            ["object"] => return Self::Object,
            [] => {}
            names if !names.contains(&"array") && !names.contains(&"object") => {
                return Self::Single;
            }
            _ => return Self::Any,
        }
        if schema.get("properties").is_some() {
            return Self::Object;
        }
        if schema.get("items").is_some() {
            return Self::Array;
        }
        if schema.get("enum").is_some() {
            return Self::Single;
        }
        if depth > 8 {
            return Self::Any;
        }
        for word in ["allOf", "anyOf", "oneOf"] {
            let Some(schemas) = schema.get(word).and_then(Value::as_array) else {
                continue;
            };
            let shapes: Vec<Self> = schemas
                .iter()
                .filter(|schema| schema.get("type") != Some(&json!("null")))
                .map(|schema| Self::from_nested_schema(document, Some(schema), depth + 1))
                .filter(|shape| word != "allOf" || *shape != Self::Any)
                .collect();
            if let Some(first) = shapes.first()
                && shapes.iter().all(|shape| shape == first)
            {
                return *first;
            }
        }
        Self::Any
    }
}

/// Header parameters that OpenAPI ignores: the request has them for other reasons.
const IGNORED: [&str; 3] = ["accept", "content-type", "authorization"];

/// The parameters of an operation: its own, and those of its path that it does not replace.
///
/// # Errors
/// A sentence, if a parameter cannot be read.
pub(super) fn read_parameters<'d>(
    document: &'d Document,
    path_item: &'d JsonObject,
    operation: &'d JsonObject,
) -> Result<Vec<Parameter<'d>>, String> {
    let mut parameters: Vec<Parameter<'d>> = Vec::new();
    for owner in [path_item, operation] {
        for written in owner.items("parameters") {
            let written = document.resolve(written)?;
            let Some(parameter) = read_parameter(document, written)? else {
                continue;
            };
            match parameters
                .iter_mut()
                .find(|other| other.name == parameter.name && other.location == parameter.location)
            {
                Some(other) => *other = parameter,
                None => parameters.push(parameter),
            }
        }
    }
    Ok(parameters)
}

fn read_parameter<'d>(
    document: &'d Document,
    written: &'d Value,
) -> Result<Option<Parameter<'d>>, String> {
    let fields = written.as_object().ok_or("a parameter is not an object")?;
    let name = fields.text("name").ok_or("a parameter has no name")?;
    let location = match fields.get("in").and_then(Value::as_str) {
        Some("path") => Location::Path,
        Some("query") => Location::Query,
        Some("header") => Location::Header,
        Some("cookie") => Location::Cookie,
        Some(other) => {
            return Err(format!(
                "the parameter `{name}` is in `{other}`, which is not path, query, header or cookie"
            ));
        }
        None => return Err(format!("the parameter `{name}` has no `in`")),
    };
    if location == Location::Header && IGNORED.contains(&name.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let content = fields.entries("content").next();
    let (schema, style) = match (fields.get("schema"), content) {
        (Some(schema), _) => (
            Some(schema),
            read_style(fields, location, Shape::from_schema(document, Some(schema))),
        ),
        (None, Some((media_type, content))) => {
            let schema = content.get("schema");
            let style = match Shape::from_schema(document, schema) {
                Shape::Single if !media_type.contains("json") => None,
                _ => Some(Style::Json),
            };
            (schema, style)
        }
        (None, None) => (None, None),
    };
    let first = fields.entries("examples").next();
    Ok(Some(Parameter {
        name,
        location,
        required: location == Location::Path || fields.get("required") == Some(&Value::Bool(true)),
        schema,
        description: fields.text("description"),
        is_deprecated: fields.get("deprecated") == Some(&Value::Bool(true)),
        example: fields.get("example").or_else(|| first?.1.get("value")),
        style,
    }))
}
