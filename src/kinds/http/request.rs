//! The request of a tool. It is parsed once and filled in for every attempt.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request};

use super::body::BodyTemplate;
use super::config::RequestConfig;
use super::fault_collector::FaultCollector;
use super::header_value::parse_header_value;
use super::json_template::{JsonTemplate, render_pairs};
use super::trace;
use super::url_template::{UrlTemplate, percent_encode};
use crate::call::json::plain_text;
use crate::call::{Effect, ToolContext, ToolError};
use crate::kinds::template::{Part, Template};
use crate::kinds::{ConfigFault, FaultRule, Placeholder, ValueFault, Values};
use crate::sources::openapi::reader::Style;

const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// Methods that change something. POST is not among them, because many APIs read by POST: searches,
/// GraphQL.
const WRITING_METHODS: [Method; 3] = [Method::PUT, Method::PATCH, Method::DELETE];

/// Header fields that frame the message or choose its receiver. The HTTP client sets them; a
/// manifest must not.
#[rustfmt::skip]
const CLIENT_HEADERS: [&str; 10] = [
    "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
];

/// A request with placeholders.
pub(super) struct RequestTemplate {
    method: Method,
    pub(super) url: UrlTemplate,
    query: Vec<(String, JsonTemplate)>,
    headers: Vec<(HeaderName, HeaderField)>,
    cookies: Vec<(String, JsonTemplate)>,
    body: BodyTemplate,
    effect: Effect,
}

/// The value of a header field.
enum HeaderField {
    Fixed(HeaderValue),
    Template(Template),
}

impl RequestTemplate {
    /// Reads `request:`, and adds its faults to `collector`.
    pub(super) fn parse(config: RequestConfig, collector: &mut FaultCollector<'_>) -> Option<Self> {
        let effect = collector.context.effect;
        let method = parse_method(config.method.as_deref().unwrap_or("GET"), collector);
        let url = UrlTemplate::parse(&config, collector);
        let query =
            JsonTemplate::parse_entries(config.query.clone(), &["request", "query"], collector);
        let headers = parse_headers(config.headers.clone(), collector);
        let cookies =
            JsonTemplate::parse_entries(config.cookies.clone(), &["request", "cookies"], collector);
        let body = BodyTemplate::parse(&config, collector);
        let method = method?;
        if effect == Effect::Read && WRITING_METHODS.contains(&method) {
            let message = format!(
                "a {method} request changes something, and a tool with `effect: read` may be called again and cached: \
                 write `effect: idempotent` or `effect: write`"
            );
            let warning = ConfigFault::warning(&["effect"], message);
            let warning = warning.with_rule(FaultRule::WritingRead);
            collector.faults.push(warning);
        }
        if matches!(method, Method::GET | Method::HEAD) && !body.is_empty() {
            collector.warning(
                &["request", "method"],
                format!("servers may ignore the body of a {method}: is it a POST?"),
            );
        }
        if body.has_text_placeholder()
            && headers
                .iter()
                .any(|(name, value)| name == CONTENT_TYPE && value.is_json())
        {
            collector.warning(
                &["request", "body"],
                "a value can break out of a text that is JSON: use `json:` instead",
            );
        }
        Some(Self {
            method,
            url: url?,
            query,
            headers,
            cookies,
            body,
            effect,
        })
    }

    /// The names of the credentials that it sends for the caller.
    pub(super) fn caller_credentials(&self) -> Vec<String> {
        let mut found: Vec<&Placeholder> = self.url.placeholders().collect();
        self.query
            .iter()
            .for_each(|(_, template)| template.collect_placeholders(&mut found));
        let headers = self.headers.iter().filter_map(|(_, field)| match field {
            HeaderField::Template(template) => Some(template),
            HeaderField::Fixed(_) => None,
        });
        found.extend(headers.flat_map(Template::placeholders));
        let names = found
            .into_iter()
            .filter_map(|placeholder| match placeholder {
                Placeholder::Caller(name) => Some(name.clone()),
                Placeholder::Argument(_) | Placeholder::Context(_) => None,
            });
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether the manifest sets the header `authorization`.
    pub(super) fn sets_authorization(&self) -> bool {
        self.headers.iter().any(|(name, _)| name == AUTHORIZATION)
    }

    /// Faults of values that satisfy the schema but cannot be sent in this request.
    pub(super) fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let mut faults = self.url.value_faults(values);
        for (field, value) in &self.headers {
            let HeaderField::Template(template) = value else {
                continue;
            };
            let is_invalid = |placeholder: &&Placeholder| {
                values
                    .get(placeholder)
                    .is_some_and(|value| parse_header_value(&plain_text(value)).is_none())
            };
            faults.extend(template.placeholders().filter(is_invalid).map(|placeholder| {
                let message =
                    format!("`{placeholder}` stands in the header `{field}`, which holds one line of plain ASCII.");
                placeholder.fault("format", message)
            }));
        }
        faults.extend(self.body.value_faults(values));
        faults.dedup();
        faults
    }

    /// Builds the request for these values.
    pub(super) fn render(
        &self,
        values: Values<'_>,
        context: &ToolContext,
    ) -> Result<Request, ToolError> {
        let faults = self.value_faults(values);
        if !faults.is_empty() {
            return Err(faults.into());
        }
        let url = self
            .url
            .render(values, &render_pairs(&self.query, values, percent_encode))?;
        let mut request = Request::new(self.method.clone(), url);
        let fields = request.headers_mut();
        for (name, field) in &self.headers {
            if let Some(value) = field.render(values) {
                fields.insert(name, value);
            }
        }
        let cookies = render_pairs(&self.cookies, values, percent_encode);
        if !cookies.is_empty() {
            // A client sends one `cookie` field at most (RFC 6265, 5.4).
            let set = fields.get(COOKIE).and_then(|value| value.to_str().ok());
            let cookies = cookies.iter().map(|(name, text)| format!("{name}={text}"));
            let all: Vec<String> = set.map(str::to_owned).into_iter().chain(cookies).collect();
            if let Some(value) = parse_header_value(&all.join("; ")) {
                fields.insert(COOKIE, value);
            }
        }
        trace::add_trace_headers(context.trace(), fields);
        if self.effect != Effect::Read {
            set_default_header(
                fields,
                HeaderName::from_static("idempotency-key"),
                &context.invocation_id.to_string(),
            );
        }
        if let Some((media_type, bytes)) = self.body.render(values, context.invocation_id) {
            set_default_header(fields, CONTENT_TYPE, &media_type);
            *request.body_mut() = Some(bytes.into());
        }
        Ok(request)
    }
}

impl HeaderField {
    /// Whether the fixed value names a JSON media type.
    fn is_json(&self) -> bool {
        match self {
            Self::Fixed(value) => value.to_str().is_ok_and(|value| value.contains("json")),
            Self::Template(_) => false,
        }
    }

    /// The value; `None` if a placeholder in it has no value. A partial header, such as `Bearer `
    /// without a token, would be meaningless.
    fn render(&self, values: Values<'_>) -> Option<HeaderValue> {
        match self {
            Self::Fixed(value) => Some(value.clone()),
            Self::Template(template) => {
                let is_absent = |part: &Part| match part {
                    Part::Value(name, style) => values.get(name).is_none_or(|value| {
                        value.is_null() || style.is_some_and(|style| style.is_undefined(value))
                    }),
                    Part::Text(_) => false,
                };
                if template.parts().iter().any(is_absent) {
                    return None;
                }
                parse_header_value(&template.render(values, plain_text))
            }
        }
    }
}

/// Sets a header field, unless the manifest sets it.
fn set_default_header(fields: &mut HeaderMap, name: HeaderName, value: &str) {
    if let (false, Ok(value)) = (fields.contains_key(&name), HeaderValue::from_str(value)) {
        fields.insert(name, value);
    }
}

fn parse_method(text: &str, collector: &mut FaultCollector<'_>) -> Option<Method> {
    let method = METHODS
        .into_iter()
        .find(|method| method.as_str().eq_ignore_ascii_case(text));
    if method.is_none() {
        let names: Vec<String> = METHODS.iter().map(ToString::to_string).collect();
        collector.error(
            &["request", "method"],
            format!("`{text}` is not one of {}", names.join(", ")),
        );
    }
    method
}

fn parse_headers(
    config: BTreeMap<String, String>,
    collector: &mut FaultCollector<'_>,
) -> Vec<(HeaderName, HeaderField)> {
    let mut headers: Vec<(HeaderName, HeaderField)> = Vec::new();
    for (key, text) in config {
        let path = ["request", "headers", &key];
        collector.check_key(&key, &path);
        let Ok(name) = HeaderName::try_from(&key) else {
            collector.error(&path, "this is not a valid header name");
            continue;
        };
        if CLIENT_HEADERS.contains(&name.as_str()) {
            collector.error(&path, "the HTTP client sets this header: leave it out");
        }
        if headers.iter().any(|(other, _)| *other == name) {
            collector.error(&path, "this header is set twice, in different spellings");
        }
        let Some(template) = collector.parse_template(&text, &path) else {
            continue;
        };
        let is_invalid =
            |part: &Part| matches!(part, Part::Text(text) if parse_header_value(text).is_none());
        if template.parts().iter().any(is_invalid) {
            // The message does not show the value: it may be a secret.
            collector.error(
                &path,
                "the value has a character that is not visible ASCII, perhaps a line break",
            );
        } else if template.styles().any(Style::makes_parameters) {
            collector.error(
                &path,
                "the styles `spread` and `deep` are for entries of `query` and `form`",
            );
        } else if let Some(text) = template.as_literal() {
            headers.extend(parse_header_value(text).map(|value| (name, HeaderField::Fixed(value))));
        } else {
            headers.push((name, HeaderField::Template(template)));
        }
    }
    headers
}
