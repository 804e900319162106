//! The body of a request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded;

use super::config::{Fields, RequestConfig};
use super::fault_collector::FaultCollector;
use super::json_template::{JsonTemplate, render_pairs};
use crate::call::json::plain_text;
use crate::call::{InvocationId, JsonObject};
use crate::kinds::template::Template;
use crate::kinds::{Placeholder, ValueFault, Values};

/// The body of a request, with placeholders.
pub(super) enum BodyTemplate {
    None,
    Json(JsonTemplate),
    Text(Template),
    /// Bytes whose base64 text is filled in.
    Bytes(Template),
    Form(Entries<JsonTemplate>),
    /// The parts of a `multipart/form-data` body.
    Multipart(Entries<PartTemplate>),
}

/// The fields of a form, or the parts of a body.
pub(super) enum Entries<T> {
    Map(Vec<(String, T)>),
    /// One placeholder for an object with all of them.
    Whole(JsonTemplate),
}

/// One part.
pub(super) enum PartTemplate {
    /// A value: a text, or JSON. An array becomes one part per item.
    Value(JsonTemplate),
    /// A file: its base64 text, its name and its media type. An array of texts becomes one part
    /// per item.
    File {
        base64: Template,
        filename: Option<Template>,
        media_type: Option<String>,
    },
}

/// A file as the manifest writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    base64: String,
    filename: Option<String>,
    #[serde(rename = "type")]
    media_type: Option<String>,
}

impl BodyTemplate {
    /// Reads the body of `request:`, and adds its faults to `collector`.
    pub(super) fn parse(config: &RequestConfig, collector: &mut FaultCollector<'_>) -> Self {
        let given = [
            config.json.is_some(),
            config.body.is_some(),
            config.body_base64.is_some(),
            config.form.is_some(),
            config.multipart.is_some(),
        ];
        if given.into_iter().filter(|given| *given).count() > 1 {
            let message =
                "at most one body is allowed: `json`, `body`, `body_base64`, `form` or `multipart`";
            collector.error(&["request"], message);
        }
        let parsed = if let Some(json) = &config.json {
            let template = JsonTemplate::parse(json.clone(), &["request", "json"], collector);
            if template.has_style() {
                collector.error(
                    &["request", "json"],
                    "a style such as `| comma` has no place in JSON: leave it out",
                );
            }
            Some(Self::Json(template))
        } else if let Some(text) = &config.body {
            collector
                .parse_template(text, &["request", "body"])
                .map(Self::Text)
        } else if let Some(text) = &config.body_base64 {
            collector
                .parse_template(text, &["request", "body_base64"])
                .map(Self::Bytes)
        } else if let Some(form) = &config.form {
            let path = ["request", "form"];
            Some(Self::Form(match form {
                Fields::Map(entries) => Entries::Map(JsonTemplate::parse_entries(
                    entries.clone(),
                    &path,
                    collector,
                )),
                Fields::Whole(text) => Entries::Whole(parse_whole(text, &path, collector)),
            }))
        } else {
            let parts = config.multipart.as_ref();
            parts.map(|parts| Self::Multipart(Entries::parse(parts, collector)))
        };
        parsed.unwrap_or(Self::None)
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether it is a text into which a value is filled.
    pub(super) fn has_text_placeholder(&self) -> bool {
        matches!(self, Self::Text(template) if template.as_literal().is_none())
    }

    /// Faults of texts that have to be base64.
    pub(super) fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let report = |template: &Template| -> Vec<ValueFault> {
            let fault = |name: &Placeholder| {
                name.fault("contentEncoding", format!("`{name}` is not base64."))
            };
            template.placeholders().map(fault).collect()
        };
        match self {
            Self::Bytes(template) if decode(template, values).is_none() => report(template),
            Self::Multipart(Entries::Map(parts)) => parts
                .iter()
                .flat_map(|(_, part)| match part {
                    PartTemplate::File { base64, .. } if decode_files(base64, values).is_none() => {
                        report(base64)
                    }
                    PartTemplate::File { .. } | PartTemplate::Value(_) => Vec::new(),
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The media type and the bytes; `None` if the request has no body. `id` makes the boundary of
    /// parts unique.
    pub(super) fn render(&self, values: Values<'_>, id: InvocationId) -> Option<(String, Vec<u8>)> {
        match self {
            Self::None => None,
            Self::Json(template) => template
                .render(values)
                .map(|value| ("application/json".into(), value.to_string().into_bytes())),
            Self::Text(template) => Some((
                "text/plain; charset=utf-8".into(),
                template.render(values, plain_text).into_bytes(),
            )),
            Self::Bytes(template) => {
                if is_absent(template, values) {
                    return None;
                }
                Some((
                    "application/octet-stream".into(),
                    decode(template, values).unwrap_or_default(),
                ))
            }
            Self::Form(fields) => {
                let encode = |text: &str| {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()
                };
                let owned;
                let entries = match fields {
                    Entries::Map(entries) => entries,
                    Entries::Whole(template) => {
                        owned = whole_entries(template, values)?;
                        &owned
                    }
                };
                let pairs = render_pairs(entries, values, encode).into_iter();
                let text: Vec<String> =
                    pairs.map(|(name, text)| format!("{name}={text}")).collect();
                Some((
                    "application/x-www-form-urlencoded".into(),
                    text.join("&").into_bytes(),
                ))
            }
            Self::Multipart(parts) => {
                let boundary = format!("toolcrib-{id}");
                let mut bytes = Vec::new();
                parts.render(values, &boundary, &mut bytes)?;
                bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
                Some((format!("multipart/form-data; boundary={boundary}"), bytes))
            }
        }
    }
}

impl Entries<PartTemplate> {
    fn parse(parts: &Fields, collector: &mut FaultCollector<'_>) -> Self {
        let path = ["request", "multipart"];
        let entries = match parts {
            Fields::Whole(text) => return Self::Whole(parse_whole(text, &path, collector)),
            Fields::Map(entries) => entries,
        };
        let entry = |(name, value): (&String, &Value)| {
            let path = ["request", "multipart", name];
            collector.check_key(name, &path);
            let part = match value {
                Value::Object(file) if file.contains_key("base64") => {
                    PartTemplate::parse_file(value, &path, collector)?
                }
                value => PartTemplate::Value(JsonTemplate::parse(value.clone(), &path, collector)),
            };
            Some((name.clone(), part))
        };
        Self::Map(entries.iter().filter_map(entry).collect())
    }

    fn render(&self, values: Values<'_>, boundary: &str, bytes: &mut Vec<u8>) -> Option<()> {
        let owned;
        let parts = match self {
            Self::Map(parts) => parts,
            Self::Whole(template) => {
                let entries = whole_entries(template, values)?.into_iter();
                owned = entries
                    .map(|(name, value)| (name, PartTemplate::Value(value)))
                    .collect();
                &owned
            }
        };
        for (name, part) in parts {
            match part {
                PartTemplate::Value(template) => {
                    let items = match template.render(values) {
                        Some(Value::Array(items)) => items,
                        Some(value) => vec![value],
                        None => continue,
                    };
                    for item in items.iter().filter(|item| !item.is_null()) {
                        let is_json = item.is_object() || item.is_array();
                        let media_type = is_json.then_some("application/json");
                        write_part(
                            bytes,
                            boundary,
                            name,
                            None,
                            media_type,
                            plain_text(item).as_bytes(),
                        );
                    }
                }
                PartTemplate::File {
                    base64,
                    filename,
                    media_type,
                } => {
                    if is_absent(base64, values) {
                        continue;
                    }
                    let filename = filename
                        .as_ref()
                        .map_or_else(|| name.clone(), |text| text.render(values, plain_text));
                    let media_type = media_type.as_deref().or(Some("application/octet-stream"));
                    for content in decode_files(base64, values).unwrap_or_default() {
                        write_part(bytes, boundary, name, Some(&filename), media_type, &content);
                    }
                }
            }
        }
        Some(())
    }
}

impl PartTemplate {
    fn parse_file(
        value: &Value,
        path: &[&str],
        collector: &mut FaultCollector<'_>,
    ) -> Option<Self> {
        let entry: FileEntry = match serde_json::from_value(value.clone()) {
            Ok(entry) => entry,
            Err(error) => {
                collector.error(
                    path,
                    format!("{error}; a file has `base64`, and may have `filename` and `type`"),
                );
                return None;
            }
        };
        let is_line = |text: &String| {
            !text.is_empty() && text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        };
        if entry.media_type.as_ref().is_some_and(|text| !is_line(text)) {
            collector.error(
                &[path, &["type"]].concat(),
                "a media type such as application/pdf is expected here",
            );
        }
        Some(Self::File {
            base64: collector.parse_template(&entry.base64, &[path, &["base64"]].concat())?,
            filename: entry
                .filename
                .and_then(|text| collector.parse_template(&text, &[path, &["filename"]].concat())),
            media_type: entry.media_type,
        })
    }
}

/// One part, as RFC 7578 writes it. Names are escaped as browsers do.
fn write_part(
    bytes: &mut Vec<u8>,
    boundary: &str,
    name: &str,
    filename: Option<&str>,
    media_type: Option<&str>,
    content: &[u8],
) {
    let escape = |text: &str| {
        text.replace('\r', "%0D")
            .replace('\n', "%0A")
            .replace('"', "%22")
    };
    let mut head = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"",
        escape(name)
    );
    if let Some(filename) = filename {
        head += &format!("; filename=\"{}\"", escape(filename));
    }
    if let Some(media_type) = media_type {
        head += &format!("\r\ncontent-type: {media_type}");
    }
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(b"\r\n\r\n");
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(b"\r\n");
}

fn parse_whole(text: &str, path: &[&str], collector: &mut FaultCollector<'_>) -> JsonTemplate {
    let template = JsonTemplate::parse(text.into(), path, collector);
    if !matches!(template, JsonTemplate::Value(..)) {
        collector.error(
            path,
            "a map of fields, or a text with one placeholder for all fields, is expected here",
        );
    }
    template
}

/// The fields of the object that a placeholder stands for. With a style, objects within have names
/// such as `a[b]`.
fn whole_entries(
    template: &JsonTemplate,
    values: Values<'_>,
) -> Option<Vec<(String, JsonTemplate)>> {
    let JsonTemplate::Value(placeholder, style) = template else {
        return None;
    };
    let fields: &JsonObject = values.get(placeholder)?.as_object()?;
    let entries = fields
        .iter()
        .flat_map(|(name, value)| match (style, value) {
            (Some(style), Value::Object(_)) => style
                .parameters(name, value)
                .into_iter()
                .map(|(name, text)| (name, JsonTemplate::Literal(text.into())))
                .collect(),
            _ => vec![(name.clone(), JsonTemplate::Literal(value.clone()))],
        });
    Some(entries.collect())
}

fn is_absent(template: &Template, values: Values<'_>) -> bool {
    template
        .placeholders()
        .any(|placeholder| values.get(placeholder).is_none_or(Value::is_null))
}

/// The bytes of a template's base64 text. An absent value has no bytes.
fn decode(template: &Template, values: Values<'_>) -> Option<Vec<u8>> {
    decode_text(&template.render(values, plain_text))
}

/// The files of one part: several if the template is a lone placeholder for a list.
fn decode_files(template: &Template, values: Values<'_>) -> Option<Vec<Vec<u8>>> {
    let value = match template.single_value() {
        Some((placeholder, None)) => values.get(placeholder),
        _ => None,
    };
    match value {
        Some(Value::Array(items)) => items
            .iter()
            .filter(|item| !item.is_null())
            .map(|item| decode_text(&plain_text(item)))
            .collect(),
        _ => Some(vec![decode(template, values)?]),
    }
}

/// The bytes of a base64 text. White space in the text is ignored.
fn decode_text(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    STANDARD.decode(text).ok()
}
