//! One operation as a tool.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::body::{self, Body, BodyFormat, Files};
use super::document::{Document, Members};
use super::parameters::{Location, Parameter, Shape, read_parameters, write_placeholder};
use super::schema::{Converter, Failure, Side};
use super::sentences::{append_sentence, end_sentence};
use super::style::Style;
use super::{Options, names, servers};
use crate::call::{Effect, JsonObject};

/// The longest description, in characters. Longer ones are cut: OpenAI refuses more.
const LONGEST_DESCRIPTION: usize = 1024;
/// The longest output schema, as JSON. It is only a description, and models read it with every list
/// of tools.
const LONGEST_OUTPUT: usize = 24 * 1024;

/// One operation as a tool of kind `http`.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The name of the tool, without the prefix of its source.
    pub name: String,
    /// The method, in lower case.
    pub method: String,
    /// The path, as the document has it.
    pub path: String,
    /// The description for the model.
    pub description: String,
    /// The schema of the arguments.
    pub input_schema: Value,
    /// The schema of the result, relaxed to types and names.
    pub output_schema: Option<Value>,
    /// The keys of `request:` in a manifest.
    pub request: JsonObject,
    /// What the method may do, by RFC 9110, 9.2.
    pub effect: Effect,
    /// The tags of the operation.
    pub tags: Vec<String>,
}

/// Builds the tool of an operation.
///
/// # Errors
/// A sentence that says why the operation cannot become a tool.
pub(super) fn build_operation(
    document: &Document,
    options: &Options,
    name: &str,
    (method, path): (&str, &str),
    item: &JsonObject,
    fields: &JsonObject,
) -> Result<Operation, String> {
    // Some documents keep equal paths apart with a `#`, which is never sent.
    let path = path.split('#').next().unwrap_or(path);
    let base = servers::find_base_url(document, item, fields, options)?;
    let parameters = read_parameters(document, item, fields)?;
    let body = body::read_body(document, fields)?;
    let build = |inlines| {
        let mut builder = Builder {
            document,
            options,
            converter: Converter::new(document, Side::Input, inlines),
            properties: Map::new(),
            required: Vec::new(),
            taken: HashSet::new(),
            request: JsonObject::new(),
        };
        builder
            .request
            .insert("method".into(), method.to_ascii_uppercase().into());
        builder.add_url(&base, path, &parameters)?;
        builder.add_parameters(&parameters)?;
        if let Some(body) = &body {
            builder.add_body(body)?;
        }
        builder.finish()
    };
    let (input_schema, request) = match build(true) {
        Err(Failure::TooLarge) => build(false),
        other => other,
    }
    .map_err(|failure| match failure {
        Failure::TooLarge => "its schema is too large".into(),
        Failure::Reference(sentence) => sentence,
    })?;
    let tags = fields.items("tags").filter_map(Value::as_str);
    Ok(Operation {
        name: name.into(),
        method: method.into(),
        path: path.into(),
        description: write_description(fields, item, method, path),
        input_schema,
        output_schema: convert_output_schema(document, fields),
        request,
        effect: match method {
            "get" | "head" | "options" => Effect::Read,
            "put" | "delete" => Effect::Idempotent,
            _ => Effect::Write,
        },
        tags: tags.map(ToOwned::to_owned).collect(),
    })
}

/// The operation as a person names it.
pub fn shown_operation(method: &str, path: &str) -> String {
    format!("{} {path}", method.to_ascii_uppercase())
}

/// Summary and description, cut to a length that all providers accept.
fn write_description(fields: &JsonObject, item: &JsonObject, method: &str, path: &str) -> String {
    let text = |key: &str| {
        let own = fields.get(key).or_else(|| item.get(key))?.as_str();
        own.map(str::trim).filter(|text| !text.is_empty())
    };
    let mut description = match (text("summary"), text("description")) {
        (Some(summary), Some(text)) if text.starts_with(summary) => text.to_owned(),
        (Some(summary), Some(text)) => {
            format!("{}\n\n{text}", end_sentence(summary))
        }
        (Some(text), None) | (None, Some(text)) => text.to_owned(),
        (None, None) => shown_operation(method, path),
    };
    if fields.get("deprecated") == Some(&Value::Bool(true)) {
        description = format!("Deprecated. {description}");
    }
    if description.chars().count() > LONGEST_DESCRIPTION {
        let cut: String = description.chars().take(LONGEST_DESCRIPTION - 1).collect();
        let end = cut
            .rfind(char::is_whitespace)
            .filter(|end| *end > LONGEST_DESCRIPTION / 2)
            .unwrap_or(cut.len());
        description = format!("{}…", cut[..end].trim_end());
    }
    description
}

/// The relaxed schema of the first successful answer in JSON, if it describes an object.
fn convert_output_schema(document: &Document, fields: &JsonObject) -> Option<Value> {
    let responses = fields.entries("responses");
    let mut successes: Vec<_> = responses
        .filter(|(status, _)| status.starts_with('2'))
        .collect();
    successes.sort_by_key(|(status, _)| *status);
    let content = successes
        .iter()
        .find_map(|(_, response)| document.resolve(response).ok()?.get("content")?.as_object())?;
    let (_, entry) = content
        .iter()
        .find(|(media_type, _)| media_type.to_ascii_lowercase().contains("json"))?;
    let schema = entry.get("schema")?;
    if Shape::from_schema(document, Some(schema)) != Shape::Object {
        return None;
    }
    let convert = |inlines| {
        let mut converter = Converter::new(document, Side::Output, inlines);
        let mut schema = converter.convert(schema)?;
        let parts = converter.take_parts()?;
        if let (Value::Object(fields), false) = (&mut schema, parts.is_empty()) {
            fields.insert("$defs".into(), parts.into());
        }
        Ok::<_, Failure>(schema)
    };
    let mut schema = convert(true).or_else(|_| convert(false)).ok()?;
    // At the top the answer is an object: MCP requires that, and a null would be an empty answer.
    if let Some(Value::Array(choices)) = schema.get("anyOf")
        && let [choice, null] = choices.as_slice()
        && *null == json!({"type": "null"})
    {
        let parts = schema.get("$defs").cloned();
        let description = schema.get("description").cloned();
        schema = choice.clone();
        for (key, value) in [("$defs", parts), ("description", description)] {
            if let Some(value) = value {
                schema[key] = value;
            }
        }
    }
    schema.as_object()?;
    schema["type"] = "object".into();
    (schema.to_string().len() <= LONGEST_OUTPUT).then_some(schema)
}

struct Builder<'d, 'o> {
    document: &'d Document,
    options: &'o Options,
    converter: Converter<'d>,
    properties: JsonObject,
    required: Vec<String>,
    taken: HashSet<String>,
    request: JsonObject,
}

impl<'d> Builder<'d, '_> {
    /// A new argument. Returns its name.
    fn add_argument(&mut self, wanted: String, schema: Value, required: bool) -> String {
        let name = names::make_distinct(wanted, &mut self.taken);
        self.properties.insert(name.clone(), schema);
        if required {
            self.required.push(name.clone());
        }
        name
    }

    /// The URL and the arguments in its path.
    fn add_url(
        &mut self,
        base: &str,
        path: &'d str,
        parameters: &[Parameter<'d>],
    ) -> Result<(), Failure> {
        let mut url = base.to_owned();
        let mut rest = path;
        while let Some((before, after)) = rest.split_once('{') {
            url.push_str(before);
            let Some((name, end)) = after.split_once('}') else {
                rest = after;
                continue;
            };
            let declared = parameters
                .iter()
                .find(|parameter| parameter.location == Location::Path && parameter.name == name);
            let schema = match declared {
                Some(parameter) => self.convert_parameter(parameter)?,
                // Many documents do not declare all parameters of their paths.
                None => json!({"type": "string"}),
            };
            let argument = self.add_argument(names::name_argument(name), schema, true);
            let style = declared.and_then(|parameter| parameter.style);
            url.push_str(&write_placeholder(&argument, style));
            rest = end;
        }
        url.push_str(rest);
        self.request.insert("url".into(), url.into());
        Ok(())
    }

    /// The arguments of query, header and cookies.
    fn add_parameters(&mut self, parameters: &[Parameter<'d>]) -> Result<(), Failure> {
        for (location, key) in [
            (Location::Query, "query"),
            (Location::Header, "headers"),
            (Location::Cookie, "cookies"),
        ] {
            let mut entries = Map::new();
            for parameter in parameters
                .iter()
                .filter(|parameter| parameter.location == location)
            {
                let given = match location {
                    Location::Query => self.options.query.iter().any(|name| name == parameter.name),
                    Location::Header => self
                        .options
                        .headers
                        .iter()
                        .any(|name| name.eq_ignore_ascii_case(parameter.name)),
                    Location::Path | Location::Cookie => false,
                };
                if given {
                    continue;
                }
                let schema = self.convert_parameter(parameter)?;
                let mut wanted = names::name_argument(parameter.name);
                if self.taken.contains(&wanted) {
                    wanted = format!("{wanted}_{key}");
                }
                let argument = self.add_argument(wanted, schema, parameter.required);
                entries.insert(
                    parameter.name.into(),
                    write_placeholder(&argument, parameter.style).into(),
                );
            }
            if !entries.is_empty() {
                self.request.insert(key.into(), entries.into());
            }
        }
        Ok(())
    }

    fn convert_parameter(&mut self, parameter: &Parameter<'d>) -> Result<Value, Failure> {
        let mut schema = match parameter.schema {
            Some(schema) => self.converter.convert(schema)?,
            None => json!({}),
        };
        if let Value::Object(fields) = &mut schema {
            let own = fields.text("description").unwrap_or_default();
            let default = own
                .rsplit_once("Default: ")
                .map(|(_, default)| format!("Default: {default}"));
            if let Some(text) = parameter
                .description
                .map(str::trim)
                .filter(|text| !text.is_empty())
            {
                let text = match default {
                    Some(default) if !text.to_lowercase().contains("default") => {
                        append_sentence(text, &default)
                    }
                    _ => text.to_owned(),
                };
                fields.insert("description".into(), text.into());
            }
            if let Some(example) = parameter.example {
                fields.insert("examples".into(), json!([example]));
            }
            if parameter.is_deprecated {
                let text = fields.text("description").unwrap_or_default();
                let text = format!("Deprecated. {text}").trim_end().to_owned();
                fields.insert("description".into(), text.into());
            }
        }
        Ok(schema)
    }

    /// The arguments of the body: one for each property of an object, else one for the whole.
    fn add_body(&mut self, body: &Body<'d>) -> Result<(), Failure> {
        let mut found = match body.schema.filter(|_| body.is_structured()) {
            Some(schema) => {
                body::find_properties(self.document, schema).map_err(Failure::Reference)?
            }
            None => None,
        };
        if let Some(found) = &mut found {
            found
                .properties
                .retain(|(_, schema)| !self.converter.is_hidden(schema));
        }
        match found {
            Some(body::Properties {
                properties,
                required,
            }) if self.has_room_for(&properties) => {
                let mut entries = Map::new();
                for (name, schema) in properties {
                    let mut converted = self.converter.convert(schema)?;
                    if body.format == BodyFormat::Multipart {
                        match body::find_files(self.document, schema) {
                            Some(Files::One) => describe_base64(&mut converted),
                            Some(Files::List) => {
                                converted
                                    .get_mut("items")
                                    .into_iter()
                                    .for_each(describe_base64);
                            }
                            None => {}
                        }
                    }
                    let argument = self.add_argument(
                        names::name_argument(name),
                        converted,
                        required.contains(&name),
                    );
                    entries.insert(
                        name.into(),
                        body.write_property(self.document, name, schema, &argument),
                    );
                }
                self.request
                    .insert(body.request_key().into(), entries.into());
            }
            _ => self.add_whole_body(body)?,
        }
        let is_default = match body.format {
            BodyFormat::Json => body::is_plain_json(body.media_type),
            BodyFormat::Urlencoded | BodyFormat::Multipart => true,
            BodyFormat::Text => {
                body.media_type.starts_with("text/plain") || body.media_type.contains('*')
            }
            BodyFormat::Bytes => body.media_type.contains('*'),
        };
        if !is_default {
            let headers = self.request.entry("headers").or_insert_with(|| json!({}));
            headers["content-type"] = body.media_type.into();
        }
        Ok(())
    }

    /// Whether no property of the body has the name of another argument.
    fn has_room_for(&self, properties: &[(&str, &Value)]) -> bool {
        let mut taken = self.taken.clone();
        properties
            .iter()
            .all(|(name, _)| taken.insert(names::name_argument(name)))
    }

    /// The whole body as the argument `body`.
    fn add_whole_body(&mut self, body: &Body<'d>) -> Result<(), Failure> {
        if body.format == BodyFormat::Multipart
            && body
                .schema
                .is_some_and(|schema| body::contains_file(self.document, schema))
        {
            let sentence =
                "its multipart body has files, and its parts cannot be arguments of their own";
            return Err(Failure::Reference(sentence.into()));
        }
        let mut schema = match (body.format, body.schema) {
            (BodyFormat::Text, _) => json!({"type": "string"}),
            (BodyFormat::Bytes, _) => json!({"type": "string", "contentEncoding": "base64"}),
            (_, Some(schema)) => self.converter.convert(schema)?,
            (_, None) => json!({}),
        };
        if matches!(body.format, BodyFormat::Urlencoded | BodyFormat::Multipart)
            && let Value::Object(fields) = &mut schema
        {
            fields.entry("type").or_insert_with(|| "object".into());
        }
        let text = match (body.format, body.description) {
            (BodyFormat::Bytes, Some(text)) => append_sentence(text.trim(), "As base64."),
            (BodyFormat::Bytes, None) => "The bytes of the body, as base64.".into(),
            (BodyFormat::Text, text) if !body.media_type.starts_with("text/plain") => {
                append_sentence(
                    text.unwrap_or("The body.").trim(),
                    &format!("As {}.", body.media_type),
                )
            }
            (_, Some(text)) => text.trim().to_owned(),
            (_, None) => String::new(),
        };
        if let (Value::Object(fields), false) = (&mut schema, text.is_empty()) {
            fields.insert("description".into(), text.into());
        }
        let wanted = if self.taken.contains("body") {
            "request_body"
        } else {
            "body"
        };
        let argument = self.add_argument(wanted.into(), schema, body.required);
        let style = (body.format == BodyFormat::Urlencoded).then_some(Style::Deep);
        let value = write_placeholder(&argument, style).into();
        self.request.insert(body.request_key().into(), value);
        Ok(())
    }

    /// The input schema and the request.
    fn finish(mut self) -> Result<(Value, JsonObject), Failure> {
        let parts = self.converter.take_parts()?;
        let mut schema =
            json!({"type": "object", "properties": self.properties, "additionalProperties": false});
        if !self.required.is_empty() {
            schema["required"] = self.required.into();
        }
        if !parts.is_empty() {
            schema["$defs"] = parts.into();
        }
        Ok((schema, self.request))
    }
}

/// A schema for the bytes of a file: base64, with a word about it for the model.
fn describe_base64(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return;
    };
    let text = fields.text("description").unwrap_or_default();
    let text = append_sentence(text.trim(), "As base64.");
    fields.insert("type".into(), "string".into());
    fields.insert("contentEncoding".into(), "base64".into());
    fields.insert("description".into(), text.into());
}
