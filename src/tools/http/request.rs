//! The request of a tool. It is parsed once and filled in for every attempt.

use std::collections::BTreeMap;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request};
use url::form_urlencoded;

use super::config::{Diagnostics, RequestConfig};
use super::target::Target;
use super::trace;
use super::values::{Node, pairs};
use crate::call::{Effect, ToolContext, ToolError};
use crate::tools::template::{Part, Template, plain_text};
use crate::tools::{Fault, Placeholder, Values};

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Header fields that frame the message or choose its receiver. The HTTP client sets them; a manifest must not.
#[rustfmt::skip]
const CLIENTS_OWN: [&str; 10] = [
    "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
];

/// A request with placeholders.
pub(super) struct RequestTemplate {
    method: Method,
    pub(super) target: Target,
    query: Vec<(String, Node)>,
    headers: Vec<(HeaderName, Field)>,
    body: Body,
    effect: Effect,
}

/// The value of a header field.
enum Field {
    Fixed(HeaderValue),
    Filled(Template),
}

impl Field {
    /// Whether the fixed value names a JSON media type.
    fn says_json(&self) -> bool {
        match self {
            Self::Fixed(value) => value.to_str().is_ok_and(|value| value.contains("json")),
            Self::Filled(_) => false,
        }
    }
}

enum Body {
    None,
    Json(Node),
    Text(Template),
    Form(Vec<(String, Node)>),
}

impl RequestTemplate {
    /// Reads `request:`, and adds its faults to the notebook.
    pub(super) fn parse(config: RequestConfig, effect: Effect, notes: &mut Diagnostics<'_>) -> Option<Self> {
        let method = method(config.method.as_deref().unwrap_or("GET"), notes);
        let target = Target::parse(&config, notes);
        let query = Node::entries(config.query, &["request", "query"], notes);
        let headers = headers(config.headers, notes);
        let body = match (config.json, config.body, config.form) {
            (None, None, None) => Body::None,
            (Some(json), None, None) => Body::Json(Node::parse(json, &["request", "json"], notes)),
            (None, Some(text), None) => Body::Text(notes.template(&text, &["request", "body"])?),
            (None, None, Some(form)) => Body::Form(Node::entries(form, &["request", "form"], notes)),
            _ => {
                notes.error(&["request"], "one body at most: `json`, `body` or `form`");
                Body::None
            }
        };
        let method = method?;
        if matches!(method, Method::GET | Method::HEAD) && !matches!(body, Body::None) {
            notes.warning(&["request", "method"], format!("servers may ignore the body of a {method}: is it a POST?"));
        }
        if let Body::Text(template) = &body
            && !template.is_literal()
            && headers.iter().any(|(name, value)| name == CONTENT_TYPE && value.says_json())
        {
            notes.warning(&["request", "body"], "a value can break out of a text that is JSON: use `json:` instead");
        }
        Some(Self { method, target: target?, query, headers, body, effect })
    }

    /// Faults of values that satisfy the schema but cannot be sent in this request.
    pub(super) fn faults(&self, values: Values<'_>) -> Vec<Fault> {
        let mut faults = self.target.faults(values);
        for (field, value) in &self.headers {
            let Field::Filled(template) = value else { continue };
            let bad = |placeholder: &&Placeholder| {
                values.get(placeholder).is_some_and(|value| header_value(&plain_text(value)).is_none())
            };
            faults.extend(template.placeholders().filter(bad).map(|placeholder| {
                let message =
                    format!("`{placeholder}` stands in the header `{field}`, which holds one line of plain ASCII.");
                placeholder.fault("format", message)
            }));
        }
        faults.dedup();
        faults
    }

    /// Builds the request for these values.
    pub(super) fn render(&self, values: Values<'_>, context: &ToolContext) -> Result<Request, ToolError> {
        let faults = self.faults(values);
        if !faults.is_empty() {
            return Err(faults.into());
        }
        let url = self.target.render(values, &pairs(&self.query, values))?;
        let mut request = Request::new(self.method.clone(), url);
        let fields = request.headers_mut();
        for (name, field) in &self.headers {
            if let Some(value) = field.render(values) {
                fields.insert(name, value);
            }
        }
        trace::send_on(context.trace(), fields);
        if self.effect != Effect::Read {
            fill(fields, HeaderName::from_static("idempotency-key"), &context.invocation_id.to_string());
        }
        let (media_type, bytes) = match &self.body {
            Body::None => return Ok(request),
            Body::Json(node) => match node.render(values) {
                Some(value) => ("application/json", value.to_string()),
                None => return Ok(request),
            },
            Body::Text(template) => ("text/plain; charset=utf-8", template.render(values, plain_text)),
            Body::Form(entries) => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                let text = form.extend_pairs(pairs(entries, values)).finish();
                ("application/x-www-form-urlencoded", text)
            }
        };
        fill(fields, CONTENT_TYPE, media_type);
        *request.body_mut() = Some(bytes.into());
        Ok(request)
    }
}

impl Field {
    /// The value; `None` if a placeholder in it has no value. A partial header, such as `Bearer ` without a token,
    /// would be meaningless.
    fn render(&self, values: Values<'_>) -> Option<HeaderValue> {
        match self {
            Self::Fixed(value) => Some(value.clone()),
            Self::Filled(template) => {
                let absent = |placeholder| values.get(placeholder).is_none_or(serde_json::Value::is_null);
                if template.placeholders().any(absent) {
                    return None;
                }
                header_value(&template.render(values, plain_text))
            }
        }
    }
}

/// Sets a header field, unless the manifest sets it.
fn fill(fields: &mut HeaderMap, name: HeaderName, value: &str) {
    if let (false, Ok(value)) = (fields.contains_key(&name), HeaderValue::from_str(value)) {
        fields.insert(name, value);
    }
}

/// A header value of visible ASCII. It is marked as sensitive to keep it out of logs, because it may be a secret.
fn header_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok().filter(|value| value.to_str().is_ok())?;
    value.set_sensitive(true);
    Some(value)
}

fn method(text: &str, notes: &mut Diagnostics<'_>) -> Option<Method> {
    let known = METHODS.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text));
    if known.is_none() {
        let names: Vec<String> = METHODS.iter().map(ToString::to_string).collect();
        notes.error(&["request", "method"], format!("`{text}` is none of {}", names.join(", ")));
    }
    known
}

fn headers(config: BTreeMap<String, String>, notes: &mut Diagnostics<'_>) -> Vec<(HeaderName, Field)> {
    let mut headers: Vec<(HeaderName, Field)> = Vec::new();
    for (key, text) in config {
        let path = ["request", "headers", &key];
        notes.key(&key, &path);
        let Ok(name) = HeaderName::try_from(&key) else {
            notes.error(&path, "not the name of a header field");
            continue;
        };
        if CLIENTS_OWN.contains(&name.as_str()) {
            notes.error(&path, "this header is the HTTP client's to set: leave it out");
        }
        if headers.iter().any(|(other, _)| *other == name) {
            notes.error(&path, "this header is there twice, in another spelling");
        }
        let Some(template) = notes.template(&text, &path) else {
            continue;
        };
        let plain = |part: &Part| matches!(part, Part::Text(text) if header_value(text).is_none());
        if template.parts().iter().any(plain) {
            // The message does not show the value: it may be a secret.
            notes.error(&path, "the value holds something else than visible ASCII, perhaps a line end");
        } else if let Some(text) = template.literal() {
            headers.extend(header_value(text).map(|value| (name, Field::Fixed(value))));
        } else {
            headers.push((name, Field::Filled(template)));
        }
    }
    headers
}
