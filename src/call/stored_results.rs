//! The interfaces by which tools read stored results and recorded results.

use std::sync::Arc;

use async_trait::async_trait;

use super::context::ToolContext;
use super::error::Violation;
use super::invocation_id::InvocationId;
use super::json::JsonObject;
use super::result::ToolResult;

/// Looks up stored results, without running a tool. A tool gets it as
/// `context.service::<Arc<dyn StoredResults>>()`.
#[async_trait]
pub trait StoredResults: Send + Sync {
    /// The result that the cache has for a call of `tool` with these arguments. Caller and context
    /// are those of the calling tool's own call.
    ///
    /// # Errors
    /// Why there is no stored result.
    async fn find_result(
        &self,
        context: &ToolContext,
        tool: &str,
        arguments: &JsonObject,
    ) -> Result<Arc<ToolResult>, StoredResultError>;
}

/// Why there is no stored result.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredResultError {
    /// The caller may use no tool of that name; with names that were probably meant.
    UnknownTool(Vec<String>),
    /// The request denies the tool.
    Denied,
    /// The tool is disabled.
    ToolDisabled,
    /// The tool's results are not stored.
    NotCacheable,
    /// The result must not be recorded, but the calling tool's own results are.
    NotRecordable,
    /// The arguments violate the tool's schema.
    InvalidArguments(Vec<Violation>),
    /// No result is stored: the call was never made, gave an error result, or its result expired or
    /// was purged.
    NotFound,
}

/// Reads the results of a caller's earlier calls. A tool gets it as
/// `context.service::<Arc<dyn OwnResults>>()`.
#[async_trait]
pub trait OwnResults: Send + Sync {
    /// The recorded result of a call, if the calling tool's caller made that call. No tool runs.
    ///
    /// # Errors
    /// Why there is no result.
    async fn read_result(
        &self,
        context: &ToolContext,
        id: InvocationId,
    ) -> Result<OwnResult, OwnResultError>;
}

/// The recorded result of a call.
#[derive(Debug)]
pub struct OwnResult {
    /// The call whose row holds the result. It is another call if a stored result was the answer.
    pub origin: InvocationId,
    /// The whole result.
    pub result: ToolResult,
}

/// Why there is no recorded result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnResultError {
    /// This caller has no recorded call with this id.
    Unknown,
    /// The request denies the tool of that call.
    Denied,
    /// The call has not ended.
    InProgress,
    /// The call failed, so there is no result of a tool.
    Failed,
    /// The result was never kept, or is not kept any more.
    NotRetained,
    /// The ledger cannot be read.
    Unavailable,
}
