//! Makes the invocation for a `tools/call`.

use std::sync::Arc;

use rmcp::ErrorData;
use serde_json::json;

use super::meta;
use super::peer::McpPeer;
use crate::call::{CallError, ErrorKind, Invocation, JsonObject};
use crate::catalog::{Catalog, Entry, NotFound};
use crate::registry::Registry;

/// A prepared call.
pub struct PreparedCall {
    /// The catalog's entry of the tool.
    pub entry: Arc<Entry>,
    /// The call as data, not started yet.
    pub invocation: Invocation,
}

/// Why no call starts.
pub enum PrepareError {
    /// An error of the protocol, `-32602`: there is no such tool, or `_meta` is invalid.
    Wrong(ErrorData),
    /// A source that may have the tool is not up.
    Refused(CallError),
}

impl From<ErrorData> for PrepareError {
    fn from(error: ErrorData) -> Self {
        Self::Wrong(error)
    }
}

/// Prepares a call. `said` is the request's `_meta`.
///
/// The tool is found in the same way as by `POST /tools/{name}/invoke`.
///
/// # Errors
/// [`NoCall`].
pub fn prepare(
    registry: &Registry,
    catalog: &Catalog,
    guest: &McpPeer,
    name: &str,
    arguments: JsonObject,
    said: &JsonObject,
) -> Result<PreparedCall, PrepareError> {
    let (entry, how) = catalog.resolve(name, &guest.caller).map_err(|error| match error {
        NotFound::Unknown { did_you_mean } => PrepareError::Wrong(unknown(name, &did_you_mean)),
        NotFound::Unlisted { why, retry_after } => {
            PrepareError::Refused(CallError::ToolUnavailable { message: why, started: false, retry_after })
        }
    })?;
    let (entry, now) = (entry.clone(), registry.shared().clock.now());
    let mut invocation = Invocation::new(entry.name_for(&guest.caller, name), arguments, guest.caller.clone(), now);
    invocation.request_id = guest.request_id.clone();
    invocation.trace = meta::trace(said).or_else(|| guest.trace.clone());
    meta::read(said, &entry.policy, &mut invocation).map_err(|wrong| ErrorData::invalid_params(wrong, None))?;
    if let Some(warning) = how.warning(name, &entry) {
        invocation.notes.lock().meta.warnings.push(warning);
    }
    Ok(PreparedCall { entry, invocation })
}

/// MCP (Tools, Error Handling): an unknown tool is an error of the protocol, not of a tool.
fn unknown(name: &str, did_you_mean: &[String]) -> ErrorData {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let mut said = format!("Unknown tool: {shown}");
    if !did_you_mean.is_empty() {
        said.push_str(&format!(". Did you mean {}?", did_you_mean.join(", ")));
    }
    let data = json!({"kind": ErrorKind::UnknownTool.as_str(), "did_you_mean": did_you_mean});
    ErrorData::invalid_params(said, Some(data))
}
