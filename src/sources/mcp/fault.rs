//! Turns failures between this service and a server into failures of a call, or into sentences for
//! people.

use std::error::Error;

use rmcp::ServiceError;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use super::message::{MAX_MESSAGE_BYTES, offered_versions};
use crate::call::{ToolContext, ToolError};
use crate::secrets::Redactor;

/// Longest text of a server that is repeated, in bytes.
pub(super) const MAX_QUOTED_BYTES: usize = 4 << 10;
/// Marks of error responses that we make instead of an unusable message.
const TOO_LONG_MARK: &str = "toolcrib: too long";
const UNREADABLE_MARK: &str = "toolcrib: unreadable";

/// Why a call has no result.
pub(super) enum CallFailure {
    /// The server did not get the call. Another connection may carry it.
    NotDelivered(String),
    /// The connection ended during the call.
    ConnectionLost,
    /// The server, or a proxy before it, reported a failure.
    Reported(ToolError),
}

/// Why a server did not list its tools.
pub(super) struct ListToolsError {
    /// A part of a sentence with the server as subject.
    pub reason: String,
    /// No request over this connection reaches the server.
    pub is_disconnected: bool,
}

impl From<String> for ListToolsError {
    fn from(reason: String) -> Self {
        Self {
            reason,
            is_disconnected: false,
        }
    }
}

/// A request that failed in HTTP.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct HttpFault(pub ToolError);

/// An unusable message that came instead of a response.
pub(super) enum InvalidMessage {
    /// It was too long to be kept.
    TooLong,
    /// It is not a JSON-RPC message.
    Unreadable,
}

impl From<InvalidMessage> for ErrorData {
    fn from(invalid: InvalidMessage) -> Self {
        let (mark, message) = match invalid {
            InvalidMessage::TooLong => (TOO_LONG_MARK, ""),
            InvalidMessage::Unreadable => {
                (UNREADABLE_MARK, "its response is not a JSON-RPC message")
            }
        };
        Self::new(ErrorCode::PARSE_ERROR, message, Some(Value::from(mark)))
    }
}

/// Why a call of the server `name` failed.
pub(super) fn call_failure(name: &str, error: ServiceError, context: &ToolContext) -> CallFailure {
    match error {
        ServiceError::McpError(error) => {
            CallFailure::Reported(error_response_failure(name, error, context))
        }
        ServiceError::TransportSend(DynamicTransportError { error, .. }) => send_failure(&*error),
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => {
            CallFailure::ConnectionLost
        }
        other => CallFailure::Reported(bad_output(name, &other.to_string())),
    }
}

/// Why a message was not sent, or has no response.
pub(super) fn send_failure(error: &(dyn Error + 'static)) -> CallFailure {
    match error.downcast_ref() {
        Some(StreamableHttpError::Client(HttpFault(error))) => match error {
            // The server was not reached.
            ToolError::Upstream(failure) if failure.unavailable && failure.not_delivered => {
                CallFailure::NotDelivered(failure.message.clone())
            }
            error => CallFailure::Reported(error.clone()),
        },
        Some(StreamableHttpError::SessionExpired) => {
            CallFailure::NotDelivered("its session has ended".into())
        }
        _ => CallFailure::ConnectionLost,
    }
}

/// Whether the server says with this error that it does not know the session. It took no request
/// then. Servers use the codes that implementations define, and -32600.
pub(super) fn is_session_loss(error: &ErrorData) -> bool {
    matches!(error.code.0, -32001 | -32000 | -32600) && names_session(&error.message)
}

/// Whether a server's text is about a session, or about the handshake that makes one.
pub(super) fn names_session(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["session", "not initialized"]
        .iter()
        .any(|word| text.contains(word))
}

/// The failure for a JSON-RPC error response.
fn error_response_failure(name: &str, error: ErrorData, context: &ToolContext) -> ToolError {
    let ErrorData {
        code: ErrorCode(code),
        message,
        data,
    } = error;
    if data.as_ref().is_some_and(|data| data == TOO_LONG_MARK) {
        return response_too_long(name);
    }
    if data.as_ref().is_some_and(|data| data == UNREADABLE_MARK) {
        return bad_output(name, &message);
    }
    let message = context.redact_and_shorten(&message, MAX_QUOTED_BYTES);
    // The server had the call by then, so no error code proves that nothing ran.
    match code {
        // Errors of the protocol: the model cannot do anything about them.
        -32768..=-32604 | -32601..=-32020 => ToolError::upstream_permanent(format!(
            "the MCP server {name} answered with error {code}: {message}"
        )),
        // Errors that implementations define for themselves, such as a lost session. They are
        // treated like HTTP status 500.
        -32019..=-32000 => ToolError::upstream_busy(format!(
            "the MCP server {name} answered with error {code}: {message}"
        )),
        // Many servers report a failure of the tool itself as invalid parameters, an internal error
        // or a code of their own. The model should read the message.
        _ => ToolError::ErrorResult(format!(
            "The MCP server {name} answered with error {code}: {message}"
        )),
    }
}

/// The failure for a response that is longer than what is read.
pub(super) fn response_too_long(name: &str) -> ToolError {
    let max_bytes = bytesize::ByteSize(MAX_MESSAGE_BYTES as u64);
    ToolError::BadOutput(format!(
        "the MCP server {name} answered more than {max_bytes}: ask for less"
    ))
}

/// The failure for a response that is not the result of a call.
pub(super) fn bad_output(name: &str, what: &str) -> ToolError {
    ToolError::BadOutput(format!(
        "the MCP server {name} did not return a tool result: {what}"
    ))
}

/// Why the handshake failed, as a part of a sentence with the server as subject.
pub(super) fn describe_handshake_error(
    error: ClientInitializeError,
    redactor: &Redactor,
) -> String {
    let quote = |text: &str| redactor.redact_and_shorten(text, MAX_QUOTED_BYTES);
    match error {
        ClientInitializeError::ConnectionClosed(_) => {
            "it closed the connection during the handshake".into()
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!(
                "it refused the handshake with error {}: {}",
                error.code.0,
                quote(&error.message)
            )
        }
        ClientInitializeError::NoCompatibleProtocolVersion {
            server_supported, ..
        } => {
            let versions: Vec<&str> = server_supported
                .iter()
                .map(ProtocolVersion::as_str)
                .collect();
            format!(
                "it supports only other versions of MCP: {}",
                quote(&versions.join(", "))
            )
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            describe_handshake_error(*fallback, redactor)
        }
        ClientInitializeError::TransportError { error, .. } => {
            describe_send_error(&*error.error, redactor)
        }
        // The SDK's texts of these have the form of a program's debug output.
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_) => {
            "its answer to initialize is not a result of initialize".into()
        }
        ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
            "its answer in the handshake has the id of another request".into()
        }
        other => format!("the handshake failed: {}", quote(&other.to_string())),
    }
}

/// The newest version known here that a refused handshake offers instead.
pub(super) fn offered_version(error: &ClientInitializeError) -> Option<ProtocolVersion> {
    match error {
        ClientInitializeError::JsonRpcError(error) => {
            let offered = offered_versions(error);
            let mut known = ProtocolVersion::KNOWN_VERSIONS.iter().rev();
            known.find(|known| offered.contains(known)).cloned()
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => offered_version(fallback),
        _ => None,
    }
}

/// Whether the connection was lost during the handshake.
pub(super) fn is_connection_loss(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. } => true,
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            is_connection_loss(fallback)
        }
        _ => false,
    }
}

/// Rejects protocol versions we do not support (MCP, Lifecycle).
///
/// # Errors
/// A part of a sentence with the server as subject.
pub(super) fn check_protocol_version(
    chosen: Option<ProtocolVersion>,
    redactor: &Redactor,
) -> Result<(), String> {
    match chosen.filter(|chosen| !ProtocolVersion::KNOWN_VERSIONS.contains(chosen)) {
        Some(unknown) => {
            let version = redactor.redact_and_shorten(unknown.as_str(), MAX_QUOTED_BYTES);
            Err(format!(
                "it selected a version of MCP that this service does not support: {version}"
            ))
        }
        None => Ok(()),
    }
}

/// Why the server did not list its tools.
pub(super) fn list_tools_error(error: ServiceError, redactor: &Redactor) -> ListToolsError {
    let quote = |text: &str| redactor.redact_and_shorten(text, MAX_QUOTED_BYTES);
    let reason = match error {
        ServiceError::McpError(ErrorData {
            data: Some(data), ..
        }) if data == TOO_LONG_MARK => {
            format!(
                "its list of tools is longer than {}",
                bytesize::ByteSize(MAX_MESSAGE_BYTES as u64)
            )
        }
        ServiceError::McpError(error) => {
            format!(
                "it did not list its tools but answered with error {}: {}",
                error.code.0,
                quote(&error.message)
            )
        }
        ServiceError::TransportClosed => {
            "it closed the connection instead of listing its tools".into()
        }
        ServiceError::TransportSend(DynamicTransportError { error, .. }) => {
            return match send_failure(&*error) {
                CallFailure::NotDelivered(reason) => ListToolsError {
                    reason,
                    is_disconnected: true,
                },
                CallFailure::Reported(_) | CallFailure::ConnectionLost => {
                    describe_send_error(&*error, redactor).into()
                }
            };
        }
        other => format!("it did not list its tools: {}", quote(&other.to_string())),
    };
    reason.into()
}

fn describe_send_error(error: &(dyn Error + 'static), redactor: &Redactor) -> String {
    match error.downcast_ref() {
        Some(StreamableHttpError::Client(HttpFault(error))) => error.to_string(),
        _ => format!(
            "it could not be reached: {}",
            redactor.redact_and_shorten(&error.to_string(), MAX_QUOTED_BYTES)
        ),
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CustomResult, RequestId, ServerResult};
    use serde_json::json;

    use super::*;

    #[test]
    fn handshake_faults_are_words() {
        let odd = || ServerResult::CustomResult(CustomResult(json!({"a": {"b": null}})));
        let version = || vec![ProtocolVersion::LATEST];
        let faults = [
            ClientInitializeError::ExpectedInitResponse(None),
            ClientInitializeError::ExpectedInitResult(Some(odd())),
            ClientInitializeError::ConflictInitResponseId(
                RequestId::Number(1),
                RequestId::Number(2),
            ),
            ClientInitializeError::ConnectionClosed("x".into()),
            ClientInitializeError::JsonRpcError(ErrorData::invalid_params(
                "no",
                Some(json!({"a": {}})),
            )),
            ClientInitializeError::NoCompatibleProtocolVersion {
                client_supported: version(),
                server_supported: version(),
            },
            ClientInitializeError::NoPreferredProtocolVersion,
            ClientInitializeError::Cancelled,
            ClientInitializeError::LegacyFallbackFailed {
                discover: Box::new(ClientInitializeError::Cancelled),
                fallback: Box::new(ClientInitializeError::ExpectedInitResult(Some(odd()))),
            },
        ];
        for fault in faults {
            let text = describe_handshake_error(fault, &Redactor::default());
            for form in ["Some(", "None", "Object {", "Err(", "ProtocolVersion("] {
                assert!(!text.contains(form), "{text}");
            }
        }
    }
}
