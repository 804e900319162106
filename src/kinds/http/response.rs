//! Turns an HTTP response into a tool's result: checks the status and size, reads the body by its
//! media type, and picks the wanted part.

use std::time::Duration;

use bytesize::ByteSize;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderName, LOCATION, RETRY_AFTER};
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use super::client::{Response, host_and_port};
use super::config::ResponseConfig;
use super::fault_collector::FaultCollector;
use super::received::{CappedBody, content_type};
use crate::call::json::{Mended, plain_text};
use crate::call::media_type::{is_json_essence, media_type_essence};
use crate::call::units::Size;
use crate::call::{Incomplete, ToolContext, ToolError, ToolResult, Unit, UpstreamReason};
use crate::kinds::media;

/// The longest body, unless the manifest sets `max_output`.
const DEFAULT_CAP: usize = 256 * 1024;
/// The highest `max_output` that a manifest may set.
const MAX_CAP: usize = 4 * 1024 * 1024;
/// The media type for bytes of unknown type (RFC 2046, 4.5.1).
const OCTET_STREAM: &str = "application/octet-stream";
/// How many bytes of a failed response's body operators get.
const MAX_OPERATOR_BODY_BYTES: usize = 1024;
/// How long they wait for that.
const OPERATOR_BODY_WAIT: Duration = Duration::from_millis(500);
/// How many bytes of an error's body the model gets.
const MAX_ERROR_BODY_BYTES: usize = 4 * 1024;

/// The settings for reading responses.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    pick: Option<String>,
    error_when: Option<String>,
    cap: usize,
    /// The manifest key that sets the cap. Error messages name it.
    cap_key: &'static str,
}

/// What the body is, according to the declared media type.
#[derive(Debug, PartialEq)]
enum BodyKind {
    Json,
    Text,
    /// A picture, sound, video or PDF of this type, whatever the bytes look like.
    Media(String),
    /// No media type is declared.
    Unknown,
    /// Any other media type.
    Other(String),
}

impl ResponseReader {
    /// Settings with this cap, or with the default cap. The error is a sentence.
    pub(crate) fn new(cap: Option<Size>, cap_key: &'static str) -> Result<Self, String> {
        let cap = cap.map_or(DEFAULT_CAP, Size::as_usize);
        match cap {
            1..=MAX_CAP => Ok(Self::with_cap(cap, cap_key)),
            _ => Err(format!(
                "a size between 1B and {}",
                ByteSize(MAX_CAP as u64)
            )),
        }
    }

    /// The cap in bytes, if it is higher than the default.
    pub(crate) fn raised_cap(&self) -> Option<usize> {
        Some(self.cap).filter(|cap| *cap > DEFAULT_CAP)
    }

    /// Reads `response:` and `max_output:`, and adds their faults to `collector`.
    pub(super) fn parse(
        config: ResponseConfig,
        cap: Option<Size>,
        collector: &mut FaultCollector<'_>,
    ) -> Option<Self> {
        for (key, pointer) in [("pick", &config.pick), ("error_when", &config.error_when)] {
            if pointer
                .as_deref()
                .is_some_and(|pointer| !is_json_pointer(pointer))
            {
                let message = "a JSON Pointer (RFC 6901) is empty or begins with `/`, and has `~` only as `~0` or `~1`";
                let meant = pointer.as_deref().and_then(pointer_of_dotted_path);
                let advice = meant
                    .map(|meant| format!(": did you mean `{meant}`?"))
                    .unwrap_or_default();
                collector.error(&["response", key], format!("{message}{advice}"));
            }
        }
        match Self::new(cap, "max_output") {
            Ok(reader) => Some(Self {
                pick: config.pick,
                error_when: config.error_when,
                ..reader
            }),
            Err(message) => {
                collector.error(&["max_output"], message);
                None
            }
        }
    }

    /// Settings that read whole responses of at most `cap` bytes, for tools with caps of their own.
    pub(crate) fn with_cap(cap: usize, cap_key: &'static str) -> Self {
        Self {
            pick: None,
            error_when: None,
            cap,
            cap_key,
        }
    }

    /// The tool's result for a response.
    pub(crate) async fn read_result(
        &self,
        response: Response,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let host = host_and_port(response.url());
        let response = check_status(response, &host, Some(context)).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(ToolResult::default());
        }
        let content_type = content_type(&response);
        let kind = match &self.pick {
            Some(_) => BodyKind::Json,
            None => BodyKind::from_content_type(content_type.as_deref()),
        };
        let url = response.url().clone();
        let body = self.read_body(response, kind == BodyKind::Text).await?;
        let is_blank = body.bytes.trim_ascii().is_empty();
        if body.bytes.is_empty() || is_blank && matches!(kind, BodyKind::Json | BodyKind::Unknown) {
            return Ok(ToolResult::default());
        }
        let file = |mime_type: &str, bytes| {
            ToolResult::from(media::content_block(
                mime_type,
                bytes,
                url_without_secrets(url),
            ))
        };
        match kind {
            BodyKind::Text => {
                let body = body.into_utf8(content_type.as_deref(), &host, self.cap, |text| {
                    context.warn(text);
                });
                let text = ToolResult::text(body.text(context));
                if body.excess.is_none() {
                    return Ok(text);
                }
                let cap = ByteSize(self.cap as u64);
                context.warn(format!(
                    "the answer of `{host}` was cut after {cap} (`{}`)",
                    self.cap_key
                ));
                Ok(text.with_incomplete(Incomplete::new(Unit::Characters, self.cap_key)))
            }
            BodyKind::Media(mime_type) => Ok(file(&mime_type, body.bytes)),
            BodyKind::Json => {
                let warn = |text| context.warn(text);
                let text = body.into_json_text(content_type.as_deref(), &host, self.cap, warn);
                let value = parse_json(&text, context).map_err(|error| {
                    ToolError::BadOutput(format!(
                        "its server answered JSON that does not parse: {error}"
                    ))
                })?;
                self.json_result(value)
            }
            BodyKind::Unknown | BodyKind::Other(_) => {
                match (parse_json(&body.bytes, context), kind) {
                    (Ok(value), _) => self.json_result(value),
                    (_, BodyKind::Other(mime_type)) if mime_type != OCTET_STREAM => {
                        Ok(file(&mime_type, body.bytes))
                    }
                    _ => match (
                        media::sniff_media_type(&body.bytes),
                        std::str::from_utf8(&body.bytes),
                    ) {
                        (Some(mime_type), _) => Ok(file(mime_type, body.bytes)),
                        (None, Ok(text)) if !text.contains('\0') => Ok(ToolResult::text(text)),
                        _ => Ok(file(OCTET_STREAM, body.bytes)),
                    },
                }
            }
        }
    }

    /// The bytes of a response, regardless of the declared media type.
    pub(crate) async fn read_bytes(
        &self,
        response: Response,
        context: &ToolContext,
    ) -> Result<Vec<u8>, ToolError> {
        let host = host_and_port(response.url());
        let response = check_status(response, &host, Some(context)).await?;
        self.read_body(response, false).await.map(|body| body.bytes)
    }

    /// Reads the body up to the cap. A longer body is cut if `may_be_cut` is set, and is an error
    /// otherwise.
    async fn read_body(
        &self,
        response: Response,
        may_be_cut: bool,
    ) -> Result<CappedBody, ToolError> {
        let too_long = || {
            let (cap, key) = (ByteSize(self.cap as u64), self.cap_key);
            let message =
                format!("its server answered more than {cap}: ask for less, or raise `{key}`");
            Err(ToolError::BadOutput(message))
        };
        if response.content_length().unwrap_or(0) > self.cap as u64 && !may_be_cut {
            return too_long();
        }
        let body = CappedBody::read(response, self.cap).await?;
        if body.excess.is_some() && !may_be_cut {
            too_long()
        } else {
            Ok(body)
        }
    }

    fn json_result(&self, mut value: Value) -> Result<ToolResult, ToolError> {
        match self
            .error_when
            .as_ref()
            .and_then(|pointer| value.pointer(pointer))
        {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::String(text)) if text.is_empty() => {}
            Some(error) => return Ok(ToolResult::error(plain_text(error))),
        }
        match &self.pick {
            None => Ok(ToolResult::json(value)),
            Some(pointer) => match value.pointer_mut(pointer) {
                Some(part) => Ok(ToolResult::json(part.take())),
                None => {
                    let message =
                        format!("its server answered JSON without `{pointer}` (`response.pick`)");
                    Err(ToolError::BadOutput(message))
                }
            },
        }
    }
}

impl BodyKind {
    fn from_content_type(content_type: Option<&str>) -> Self {
        let essence = media_type_essence(content_type.unwrap_or_default()).to_ascii_lowercase();
        let (top, sub) = essence.split_once('/').unwrap_or((&essence, ""));
        match (top, sub) {
            ("", _) => Self::Unknown,
            _ if is_json_essence(&essence) => Self::Json,
            ("text", _) => Self::Text,
            ("image" | "audio" | "video", _) | ("application", "pdf") => Self::Media(essence),
            (_, sub) if sub.ends_with("+xml") || sub.ends_with("+yaml") => Self::Text,
            (
                "application",
                "xml"
                | "javascript"
                | "ecmascript"
                | "yaml"
                | "x-yaml"
                | "toml"
                | "sql"
                | "graphql"
                | "x-ndjson"
                | "jsonl"
                | "json-seq"
                | "x-www-form-urlencoded"
                | "x-sh",
            ) => Self::Text,
            _ => Self::Other(essence),
        }
    }
}

/// The value of a JSON text, with warnings about what was changed in it.
fn parse_json(text: &[u8], context: &ToolContext) -> Result<Value, serde_json::Error> {
    let mended = Mended::of_result(text);
    let value = serde_json::from_slice(&mended.text)?;
    for warning in mended.changes.warnings("the answer") {
        context.warn(warning);
    }
    Ok(value)
}

/// The URL of a file, without the parts that may hold a secret.
pub(crate) fn url_without_secrets(mut url: Url) -> String {
    // Both fail only for URLs without a host, and no response comes from such a URL.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

pub(crate) fn header_text(response: &Response, name: HeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

/// Passes a successful response that can be read, and turns any other response into an error.
/// Without a `context` to redact it, the server's text is not repeated.
pub(crate) async fn check_status(
    response: Response,
    host: &str,
    context: Option<&ToolContext>,
) -> Result<Response, ToolError> {
    let status = response.status();
    match status.as_u16() {
        200..=299 => Ok(response),
        300..=399 => Err(redirect_error(&response, host)),
        400..=428 | 430..=499 => Err(Box::pin(client_error(response, host, context)).await),
        code => {
            let message = format!("`{host}` answered HTTP {status}");
            let wait = parse_retry_after(&response);
            let error = match code {
                // A server that asks for fewer calls is available.
                429 => ToolError::upstream_busy(message).with_retry_after(wait),
                502..=504 => ToolError::upstream(message).with_retry_after(wait),
                _ => ToolError::upstream_permanent(message),
            };
            let mut error = error.with_cause(UpstreamReason::Status(code), host);
            if let ToolError::Upstream(failure) = &mut error
                && let Some(cause) = &mut failure.cause
            {
                cause.body = Box::pin(body_for_operators(response, context)).await;
            }
            Err(error)
        }
    }
}

/// The beginning of the body of a failed response. The model does not get it: it may describe the
/// inside of the server.
async fn body_for_operators(response: Response, context: Option<&ToolContext>) -> Option<String> {
    let text = error_text(response, "", MAX_OPERATOR_BODY_BYTES, context?, |_| {});
    // A retry must not wait for a server that sends its answer slowly.
    timeout(OPERATOR_BODY_WAIT, text).await.ok()?.ok()?
}

/// The error for a status 4xx. The server understood the request and refused it, so its text is for
/// the model.
async fn client_error(response: Response, host: &str, context: Option<&ToolContext>) -> ToolError {
    let status = response.status();
    let text = match context {
        Some(context) => {
            let warn = |text| context.warn(text);
            error_text(response, host, MAX_ERROR_BODY_BYTES, context, warn)
                .await
                .unwrap_or_else(|error| Some(error.to_string()))
        }
        None => None,
    };
    let reason = status.canonical_reason().unwrap_or("no reason given");
    let text = text.as_deref().unwrap_or(reason);
    ToolError::ErrorResult(format!("HTTP {}: {text}", status.as_u16()))
}

/// At most `cap` bytes of the text of a failed response; `None` if it has none.
async fn error_text(
    response: Response,
    host: &str,
    cap: usize,
    context: &ToolContext,
    warn: impl FnMut(String),
) -> Result<Option<String>, ToolError> {
    let content_type = content_type(&response);
    let kind = BodyKind::from_content_type(content_type.as_deref());
    if matches!(kind, BodyKind::Media(_) | BodyKind::Other(_)) {
        return Ok(None);
    }
    let body = CappedBody::read(response, cap).await?;
    let body = body.into_utf8(content_type.as_deref(), host, cap, warn);
    let text = body.text(context).trim().to_owned();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The error for a redirect. It shows only scheme and host of the new location: the other parts may
/// hold secrets.
fn redirect_error(response: &Response, host: &str) -> ToolError {
    let (from, status) = (response.url(), response.status());
    let to = match header_text(response, LOCATION).and_then(|location| from.join(location).ok()) {
        Some(url) => format!("{}://{}", url.scheme(), super::client::host_and_port(&url)),
        None => "nowhere".into(),
    };
    let message =
        format!("`{host}` answered HTTP {status} and points to {to}; redirects are not followed");
    ToolError::upstream_permanent(message)
}

/// `Retry-After`: seconds or a date. A date is compared with the server's `Date` header, if there
/// is one.
pub(crate) fn parse_retry_after(response: &Response) -> Option<Duration> {
    let text = header_text(response, RETRY_AFTER)?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text: &str| rfc2822::parse(text).ok().map(|date| date.timestamp());
    let now = header_text(response, DATE)
        .and_then(date)
        .unwrap_or_else(Timestamp::now);
    Some(
        date(text)?
            .duration_since(now)
            .try_into()
            .unwrap_or_default(),
    )
}

fn is_json_pointer(text: &str) -> bool {
    let escapes = text
        .split('~')
        .skip(1)
        .all(|rest| rest.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && escapes
}
/// The JSON Pointer of a path with dots and indices, such as `data.items[0].title` or `$.data`.
fn pointer_of_dotted_path(path: &str) -> Option<String> {
    let path = path
        .strip_prefix("$.")
        .or_else(|| path.strip_prefix('.'))
        .unwrap_or(path)
        .replace('[', ".")
        .replace(']', "");
    let is_name = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    let parts: Vec<&str> = path.split(['.', '/']).collect();
    parts
        .iter()
        .all(|part| is_name(part))
        .then(|| parts.iter().map(|part| format!("/{part}")).collect())
}
