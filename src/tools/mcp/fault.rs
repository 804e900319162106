//! Turns failures between this service and a server into failures of a call, or into sentences for people.

use std::error::Error;

use rmcp::ServiceError;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use super::message::LONGEST;
use crate::call::{ToolContext, ToolError};
use crate::secrets::Redactor;

/// Longest text of a server that is repeated, in bytes.
pub(super) const LONGEST_MESSAGE: usize = 4 << 10;
/// Marks of error responses that we make instead of an unusable message.
const TOO_LONG: &str = "toolcrib: too long";
const UNREADABLE: &str = "toolcrib: unreadable";

/// Why a call has no result.
pub(super) enum Failed {
    /// The server did not get the call. Another connection may carry it.
    NotBegun(String),
    /// The connection ended during the call.
    Lost,
    /// The server, or a proxy before it, reported a failure.
    Said(ToolError),
}

/// Why a server did not list its tools.
pub(super) struct ListToolsError {
    /// A part of a sentence with the server as subject.
    pub why: String,
    /// No request over this connection reaches the server.
    pub is_gone: bool,
}

impl From<String> for ListToolsError {
    fn from(why: String) -> Self {
        Self { why, is_gone: false }
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
    fn from(spoilt: InvalidMessage) -> Self {
        let (mark, message) = match spoilt {
            InvalidMessage::TooLong => (TOO_LONG, ""),
            InvalidMessage::Unreadable => (UNREADABLE, "what it answered is no JSON-RPC message"),
        };
        Self::new(ErrorCode::PARSE_ERROR, message, Some(Value::from(mark)))
    }
}

/// Why a call of the server `name` failed.
pub(super) fn of_call(name: &str, error: ServiceError, context: &ToolContext) -> Failed {
    match error {
        ServiceError::McpError(error) => Failed::Said(answered(name, error, context)),
        ServiceError::TransportSend(DynamicTransportError { error, .. }) => not_sent(&*error),
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => Failed::Lost,
        other => Failed::Said(bad_output(name, &other.to_string())),
    }
}

/// Why a message was not sent, or has no response.
fn not_sent(error: &(dyn Error + 'static)) -> Failed {
    match error.downcast_ref() {
        Some(StreamableHttpError::Client(HttpFault(error))) => match error {
            // The server was not reached.
            ToolError::Upstream { message, down: true, untouched: true, .. } => Failed::NotBegun(message.clone()),
            error => Failed::Said(error.clone()),
        },
        Some(StreamableHttpError::SessionExpired) => Failed::NotBegun("its session has ended".into()),
        _ => Failed::Lost,
    }
}

/// The failure for a JSON-RPC error response.
fn answered(name: &str, error: ErrorData, context: &ToolContext) -> ToolError {
    let ErrorData { code: ErrorCode(code), message, data } = error;
    if data.as_ref().is_some_and(|data| data == TOO_LONG) {
        return too_long(name);
    }
    if data.as_ref().is_some_and(|data| data == UNREADABLE) {
        return bad_output(name, &message);
    }
    let message = context.shortened(&message, LONGEST_MESSAGE);
    // The server had the call by then, so no error code proves that nothing ran.
    match code {
        // The specification's code for invalid arguments, and for an unknown tool. The model should read the message.
        -32602 => ToolError::Said(format!("The MCP server {name} refuses the call: {message}")),
        // Internal errors, and errors that implementations define. They are treated like HTTP status 500.
        -32603 | -32019..=-32000 => {
            let message = format!("the MCP server {name} answered with error {code}: {message}");
            ToolError::Upstream { message, retryable: true, down: false, untouched: false, retry_after: None }
        }
        _ => ToolError::upstream_final(format!("the MCP server {name} answered with error {code}: {message}")),
    }
}

/// The failure for a response that is longer than what is read.
pub(super) fn too_long(name: &str) -> ToolError {
    let most = bytesize::ByteSize(LONGEST as u64);
    ToolError::BadOutput(format!("the MCP server {name} answered more than {most}: ask for less"))
}

/// The failure for a response that is not the result of a call.
pub(super) fn bad_output(name: &str, what: &str) -> ToolError {
    ToolError::BadOutput(format!("the MCP server {name} gave no result of a tool: {what}"))
}

/// Why the handshake failed, as a part of a sentence with the server as subject.
pub(super) fn of_handshake(error: ClientInitializeError, redactor: &Redactor) -> String {
    let cut = |text: &str| redactor.shortened(text, LONGEST_MESSAGE);
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection during the handshake".into(),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused the handshake with error {}: {}", error.code.0, cut(&error.message))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<&str> = server_supported.iter().map(ProtocolVersion::as_str).collect();
            format!("it speaks other versions of MCP only: {}", cut(&versions.join(", ")))
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => of_handshake(*fallback, redactor),
        ClientInitializeError::TransportError { error, .. } => unsent(&*error.error, redactor),
        other => format!("the handshake failed: {}", cut(&other.to_string())),
    }
}

/// Whether the connection was lost during the handshake.
pub(super) fn is_loss(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => true,
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_loss(fallback),
        _ => false,
    }
}

/// Rejects protocol versions we do not support (MCP, Lifecycle).
///
/// # Errors
/// A part of a sentence with the server as subject.
pub(super) fn of_version(chosen: Option<ProtocolVersion>, redactor: &Redactor) -> Result<(), String> {
    match chosen.filter(|chosen| !ProtocolVersion::KNOWN_VERSIONS.contains(chosen)) {
        Some(unknown) => {
            let version = redactor.shortened(unknown.as_str(), LONGEST_MESSAGE);
            Err(format!("it speaks a version of MCP that is not known here: {version}"))
        }
        None => Ok(()),
    }
}

/// Why the server did not list its tools.
pub(super) fn of_listing(error: ServiceError, redactor: &Redactor) -> ListToolsError {
    let cut = |text: &str| redactor.shortened(text, LONGEST_MESSAGE);
    let why = match error {
        ServiceError::McpError(ErrorData { data: Some(data), .. }) if data == TOO_LONG => {
            format!("its list of tools is longer than {}", bytesize::ByteSize(LONGEST as u64))
        }
        ServiceError::McpError(error) => {
            format!("it did not list its tools but answered with error {}: {}", error.code.0, cut(&error.message))
        }
        ServiceError::TransportClosed => "it closed the connection instead of listing its tools".into(),
        ServiceError::TransportSend(DynamicTransportError { error, .. }) => {
            return match not_sent(&*error) {
                Failed::NotBegun(why) => ListToolsError { why, is_gone: true },
                Failed::Said(_) | Failed::Lost => unsent(&*error, redactor).into(),
            };
        }
        other => format!("it could not be asked for its tools: {}", cut(&other.to_string())),
    };
    why.into()
}

fn unsent(error: &(dyn Error + 'static), redactor: &Redactor) -> String {
    match error.downcast_ref() {
        Some(StreamableHttpError::Client(HttpFault(error))) => error.to_string(),
        _ => format!("it could not be asked: {}", redactor.shortened(&error.to_string(), LONGEST_MESSAGE)),
    }
}
