//! Makes the invocation for a `tools/call`.

use std::sync::Arc;

use rmcp::ErrorData;
use serde_json::json;

use super::meta;
use super::peer::McpPeer;
use crate::call::{CallError, ErrorKind, Invocation, JsonObject};
use crate::catalog::registry::Registry;
use crate::catalog::{Catalog, Entry, NewCall, ResolveError};

/// A prepared call.
pub struct PreparedCall {
    /// The catalog's entry of the tool.
    pub entry: Arc<Entry>,
    /// The call as data, not started yet.
    pub invocation: Box<Invocation>,
}

impl PreparedCall {
    /// Adds the request of MCP for the span of the call, if calls are traced. `id` makes the text of
    /// the message's id.
    #[must_use]
    pub fn with_request(
        mut self,
        registry: &Registry,
        peer: &McpPeer,
        id: impl FnOnce() -> String,
    ) -> Self {
        if registry.shared().telemetry.is_some() {
            self.invocation.correlation.mcp = Some(Arc::new(peer.describe_request(Some(id()))));
        }
        self
    }
}

/// Why no call starts.
#[derive(derive_more::From)]
pub enum PrepareError {
    /// An error of the protocol, `-32602`: there is no such tool, or `_meta` is invalid.
    #[from]
    Protocol(ErrorData),
    /// A source that may have the tool is not up.
    Unavailable(CallError),
}

/// Prepares a call. `meta` is the request's `_meta`.
///
/// The tool is found in the same way as by `POST /tools/{name}/invoke`.
///
/// # Errors
/// [`PrepareError`].
pub fn prepare_call(
    registry: &Registry,
    catalog: &Catalog,
    peer: &McpPeer,
    name: &str,
    arguments: JsonObject,
    meta: &JsonObject,
) -> Result<PreparedCall, PrepareError> {
    let (entry, name_match) = catalog
        .resolve(name, &peer.caller)
        .map_err(|error| match error {
            ResolveError::Unknown { did_you_mean } => {
                PrepareError::Protocol(unknown_tool(name, &did_you_mean))
            }
            ResolveError::Unlisted {
                reason,
                retry_after,
            } => PrepareError::Unavailable(CallError::ToolUnavailable {
                message: reason,
                started: false,
                retry_after,
            }),
        })?;
    // A tool that finds others gives access to those of the selection only.
    if !entry.is_in(&peer.selection) && !entry.finds_tools() {
        return Err(unknown_tool(name, &[]).into());
    }
    let (entry, now) = (entry.clone(), registry.shared().clock.now());
    let (options, idempotency_key) =
        meta::read_meta(meta).map_err(|error| ErrorData::invalid_params(error, None))?;
    let mut invocation = entry.new_invocation(NewCall {
        options,
        idempotency_key,
        request_id: peer.request_id.clone(),
        trace: meta::trace_from_meta(meta).or_else(|| peer.trace.clone()),
        ..NewCall::new((name, name_match), peer.caller.clone(), Ok(arguments), now)
    });
    if entry.finds_tools() || entry.runs_scripts() {
        invocation.call_chain.selection = peer.selection.clone();
    }
    if invocation.run.id.is_none() {
        invocation.run.is_implied = peer.run_id.is_none();
        invocation.run.id = peer.run_id.as_ref().or(peer.session_id.as_ref()).cloned();
    }
    Ok(PreparedCall { entry, invocation })
}

/// MCP (Tools, Error Handling): an unknown tool is an error of the protocol, not of a tool.
fn unknown_tool(name: &str, did_you_mean: &[String]) -> ErrorData {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let mut message = format!("Unknown tool: {shown}");
    if !did_you_mean.is_empty() {
        message.push_str(&format!(". Did you mean {}?", did_you_mean.join(", ")));
    }
    let data = json!({"kind": ErrorKind::UnknownTool.as_str(), "did_you_mean": did_you_mean});
    ErrorData::invalid_params(message, Some(data))
}
