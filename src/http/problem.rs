//! Maps failures to statuses and problems: RFC 9457 `application/problem+json`.
//!
//! No other file decides which failure of REST has which status. `http/mcp/` decides about errors
//! of MCP.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytesize::ByteSize;
use serde::Serialize;

use crate::call::{
    CallError, Content, ErrorKind, Failure, FailureSource, InvocationId, LimitUsage, Violation,
};
use crate::ledger;

/// All errors of handlers.
#[derive(Debug, derive_more::From)]
pub enum ApiError {
    /// Not JSON, or JSON of the wrong shape: 400.
    Malformed(String),
    /// A model's call cannot be read: 422.
    UnreadableCall {
        /// What is wrong with it.
        detail: String,
        /// What to do about it, for the model.
        correction: String,
    },
    /// Nothing with this name exists: 404.
    NotFound(String),
    /// A tool's definition cannot be used: 400.
    InvalidDefinition {
        /// The first few faults.
        detail: String,
        /// All faults.
        violations: Vec<Violation>,
    },
    /// The request contradicts the current state, such as a name that is taken: 409.
    Conflict(String),
    /// The route has other methods: 405.
    MethodNotAllowed,
    /// The body did not arrive in time: 408.
    BodyTimeout(Duration),
    /// The body is too large: 413.
    BodyTooLarge(usize),
    /// The body has more lists and objects than this: 413.
    TooManyValues(usize),
    /// The header block is too large: 431.
    HeaderTooLarge(usize),
    /// All connections have requests in flight: 503.
    AtCapacity,
    /// Too many large bodies are being read: 503.
    OutOfMemory,
    /// The `Content-Type` of the body is not JSON: 415.
    UnsupportedMediaType,
    /// No key: 401.
    Unauthenticated,
    /// A key that no caller has: 401.
    UnknownKey,
    /// This caller, host or origin is not allowed: 403.
    Forbidden(String),
    /// No such tool: 404.
    UnknownTool {
        /// The name as the client sent it.
        name: String,
        /// Names of tools that were probably meant.
        did_you_mean: Vec<String>,
    },
    /// A call was refused or failed.
    Call {
        /// The failure, which decides the status.
        failure: Failure,
        /// The id of the call's row; `None` if the call has no row.
        invocation: Option<InvocationId>,
    },
    /// Sources of tools are still loading: 503.
    SourcesLoading(String),
    /// The ledger failed: 503.
    #[from]
    Ledger(ledger::Error),
    /// Internal error: 500.
    Internal,
}

/// A call that was not recorded.
impl From<&CallError> for ApiError {
    fn from(error: &CallError) -> Self {
        Self::Call {
            failure: Failure::from(error),
            invocation: None,
        }
    }
}

/// The body of a problem.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// A URN that names the kind.
    #[serde(rename = "type")]
    pub type_: String,
    /// The kind as text.
    pub title: String,
    /// The HTTP status again.
    pub status: u16,
    /// What happened in this case.
    pub detail: String,
    /// The kind, one of a closed list.
    pub kind: ErrorKind,
    /// Whether the service failed, or the tool.
    pub source: FailureSource,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// How long to wait before the next attempt, in milliseconds.
    #[schema(required)]
    pub retry_after_ms: Option<u64>,
    /// The id of the call, when it has a row in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub invocation_id: Option<String>,
    /// The usage limit that refused the call, in the form of `meta.usage`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<LimitUsage>,
    /// Every position where the arguments violate the schema.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// Names that were probably meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub did_you_mean: Vec<String>,
    /// The same as text for a model.
    pub content: Vec<Content>,
}

/// The status of a failed call.
pub(super) fn status_of_kind(kind: ErrorKind, started: bool) -> StatusCode {
    match kind {
        ErrorKind::InvalidRequest => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden
        | ErrorKind::ToolDisabled
        | ErrorKind::ApprovalDenied
        | ErrorKind::ApprovalExpired => StatusCode::FORBIDDEN,
        ErrorKind::UnknownTool => StatusCode::NOT_FOUND,
        ErrorKind::InvalidArguments => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::IdempotencyInProgress | ErrorKind::RepeatedCall | ErrorKind::OutcomeUnknown => {
            StatusCode::CONFLICT
        }
        ErrorKind::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::UsageLimitReached => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::DefinitionChanged
        | ErrorKind::Overloaded
        | ErrorKind::Draining
        | ErrorKind::LedgerUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::ToolUnavailable if started => StatusCode::BAD_GATEWAY,
        ErrorKind::ToolUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::DeadlineExceeded | ErrorKind::AttemptTimedOut => StatusCode::GATEWAY_TIMEOUT,
        // nginx's "client closed request"; there is no registered code.
        ErrorKind::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        ErrorKind::UpstreamFailed | ErrorKind::BadOutput => StatusCode::BAD_GATEWAY,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn status_of_failure(failure: &Failure) -> StatusCode {
    match failure.conflict {
        true => StatusCode::CONFLICT,
        false => status_of_kind(failure.kind, failure.started),
    }
}

/// Gives a response in another shape, such as JSON-RPC, the status and the `Retry-After` of the
/// failure's problem.
pub(super) fn with_failure_status(failure: &Failure, mut response: Response) -> Response {
    *response.status_mut() = status_of_failure(failure);
    set_retry_after(failure.retry_after_ms, &mut response);
    response
}

fn set_retry_after(retry_after_ms: Option<u64>, response: &mut Response) {
    if let Some(millis) = retry_after_ms {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, millis.div_ceil(1000).max(1).into());
    }
}

impl Problem {
    /// The problem for a failed call.
    pub fn from_failure(failure: Failure, invocation: Option<InvocationId>) -> Self {
        let status = status_of_failure(&failure);
        // The request of a call was read: it is not possible for this tool or at this time.
        let title = if failure.kind == ErrorKind::InvalidRequest {
            "Not possible"
        } else {
            failure.kind.title()
        };
        Self {
            title: title.into(),
            usage: failure.limit.map(|limit| *limit).into_iter().collect(),
            violations: failure.violations,
            retryable: failure.retryable,
            retry_after_ms: failure.retry_after_ms,
            invocation_id: invocation.map(|id| id.to_string()),
            content: vec![Content::text(failure.for_model)],
            ..Self::from_kind(failure.kind, status, failure.detail)
        }
    }

    fn from_kind(kind: ErrorKind, status: StatusCode, detail: String) -> Self {
        Self {
            type_: format!("urn:toolcrib:problem:{}", kind.as_str()),
            title: kind.title().into(),
            status: status.as_u16(),
            content: vec![Content::text(format!("{}: {detail}.", kind.title()))],
            detail,
            kind,
            source: kind.facts().source,
            retryable: false,
            retry_after_ms: None,
            invocation_id: None,
            usage: Vec::new(),
            violations: Vec::new(),
            did_you_mean: Vec::new(),
        }
    }

    /// The same problem under another title than that of its kind.
    fn with_title(self, title: &str) -> Self {
        Self {
            title: title.into(),
            content: vec![Content::text(format!("{title}: {}.", self.detail))],
            ..self
        }
    }

    fn overloaded(detail: &str) -> Self {
        let kind = ErrorKind::Overloaded;
        let plain = Self::from_kind(kind, status_of_kind(kind, false), detail.into());
        Self {
            retryable: true,
            retry_after_ms: Some(1000),
            ..plain
        }
    }
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        let invalid = |status, detail| Self::from_kind(ErrorKind::InvalidRequest, status, detail);
        let titled = |status, title, detail| invalid(status, detail).with_title(title);
        let too_large = |status, detail| titled(status, "The request is too large", detail);
        match error {
            ApiError::Malformed(detail) => invalid(StatusCode::BAD_REQUEST, detail),
            ApiError::UnreadableCall { detail, correction } => {
                let status = status_of_kind(ErrorKind::InvalidArguments, false);
                let content = vec![Content::text(correction)];
                Self {
                    content,
                    ..Self::from_kind(ErrorKind::InvalidArguments, status, detail)
                }
            }
            ApiError::InvalidDefinition { detail, violations } => Self {
                violations,
                ..invalid(StatusCode::BAD_REQUEST, detail)
            },
            ApiError::Conflict(detail) => titled(StatusCode::CONFLICT, "Not possible now", detail),
            ApiError::NotFound(detail) => titled(StatusCode::NOT_FOUND, "Not found", detail),
            ApiError::MethodNotAllowed => {
                let detail = "this route does not support the method".into();
                titled(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail)
            }
            ApiError::BodyTimeout(limit) => {
                let limit = humantime::format_duration(limit);
                let detail = format!("the body did not arrive within {limit}");
                titled(
                    StatusCode::REQUEST_TIMEOUT,
                    "The request is too slow",
                    detail,
                )
            }
            ApiError::BodyTooLarge(limit) => too_large(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {}", ByteSize(limit as u64)),
            ),
            ApiError::TooManyValues(limit) => too_large(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body has more than {limit} lists and objects"),
            ),
            ApiError::HeaderTooLarge(limit) => too_large(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                format!("the header block is larger than {}", ByteSize(limit as u64)),
            ),
            ApiError::AtCapacity => Self::overloaded("all connections are in use"),
            ApiError::OutOfMemory => Self::overloaded(
                "too many large requests at once: no memory is free for this request",
            ),
            ApiError::UnsupportedMediaType => {
                let detail = "the content type of the body is not JSON: add the header `content-type: application/json`";
                let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                titled(status, "Unsupported content type", detail.into())
            }
            ApiError::Unauthenticated => {
                let detail = "send a caller's key as `authorization: Bearer <key>`".into();
                Self::from_kind(ErrorKind::Unauthenticated, StatusCode::UNAUTHORIZED, detail)
            }
            ApiError::UnknownKey => {
                let detail = "this key is not known: no caller in the manifest has it".into();
                let status = StatusCode::UNAUTHORIZED;
                Self::from_kind(ErrorKind::Unauthenticated, status, detail)
                    .with_title("The key is not known")
            }
            ApiError::Forbidden(detail) => {
                Self::from_kind(ErrorKind::Forbidden, StatusCode::FORBIDDEN, detail)
            }
            ApiError::UnknownTool { name, did_you_mean } => {
                let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
                let mut text = format!("There is no tool `{shown}`.");
                if !did_you_mean.is_empty() {
                    text.push_str(&format!(" Did you mean `{}`?", did_you_mean.join("`, `")));
                }
                let detail = format!("there is no tool `{shown}`");
                Self {
                    did_you_mean,
                    content: vec![Content::text(text)],
                    ..Self::from_kind(ErrorKind::UnknownTool, StatusCode::NOT_FOUND, detail)
                }
            }
            ApiError::Call {
                failure,
                invocation,
            } => Self::from_failure(failure, invocation),
            ApiError::SourcesLoading(detail) => Self {
                retryable: true,
                retry_after_ms: Some(1000),
                ..Self::from_kind(
                    ErrorKind::ToolUnavailable,
                    status_of_kind(ErrorKind::ToolUnavailable, false),
                    detail,
                )
            },
            // A repeated request would fail again, so this is not a 503. The log names the row.
            ApiError::Ledger(ledger::Error::DamagedRow(id)) => {
                Self::from_failure(Failure::from(&CallError::Internal), Some(id))
            }
            ApiError::Ledger(error) => {
                let error = CallError::ledger_unavailable(&error);
                Self::from_failure(Failure::from(&error), None)
            }
            ApiError::Internal => Self::from_failure(Failure::from(&CallError::Internal), None),
        }
    }
}

impl Problem {
    /// A response with the status and the headers of this problem, and another body.
    pub(super) fn respond_with(&self, body: impl Serialize) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(body)).into_response();
        if self.kind == ErrorKind::Unauthenticated {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        set_retry_after(self.retry_after_ms, &mut response);
        response
    }

    /// The reason phrase of the status (RFC 9110, section 15).
    pub(super) fn reason_phrase(&self) -> &str {
        let status = StatusCode::from_u16(self.status).ok();
        let phrase = status.and_then(|status| status.canonical_reason());
        phrase.unwrap_or(&self.title)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.respond_with(&self);
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        Problem::from(self).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that waits for `Retry-After` must not come too early: the header is rounded up.
    #[test]
    fn retry_after_rounds_up() {
        let header = |millis| {
            let mut response = Response::default();
            set_retry_after(Some(millis), &mut response);
            response.headers()[header::RETRY_AFTER]
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            [0, 1, 1000, 1001, 1500, 2000].map(header),
            ["1", "1", "1", "2", "2", "2"]
        );
    }
}
