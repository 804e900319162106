//! Stored results and results on record, as a tool may ask for them.

use std::sync::Arc;

use async_trait::async_trait;

use super::context::ToolContext;
use super::error::Violation;
use super::invocation::InvocationId;
use super::json::JsonObject;
use super::result::ToolResult;

/// Answers out of what is stored, and never runs a tool. A tool finds it as
/// `context.service::<Arc<dyn StoredResults>>()`.
#[async_trait]
pub trait StoredResults: Send + Sync {
    /// What the cache would now answer to a call of `tool` with these arguments, by whoever called the asking tool and
    /// with the same context.
    ///
    /// # Errors
    /// Why there is nothing.
    async fn find(
        &self,
        asking: &ToolContext,
        tool: &str,
        arguments: &JsonObject,
    ) -> Result<Arc<ToolResult>, NotStored>;
}

/// Why there is no stored result.
#[derive(Debug, Clone, PartialEq)]
pub enum NotStored {
    /// No tool of that name, or none that the caller may use; names that were probably meant.
    Unknown(Vec<String>),
    /// The request denies the tool.
    Denied,
    /// The tool is switched off.
    Off,
    /// The tool's results are not stored.
    NoCache,
    /// What is stored must not be on record, where the asking tool's answers are.
    Withheld,
    /// The tool would not take these arguments.
    Unfit(Vec<Violation>),
    /// Nothing of that call: never made, said no, expired or purged.
    Nothing,
}

/// What calls answered before, for whoever made them. A tool finds it as `context.service::<Arc<dyn OwnResults>>()`.
#[async_trait]
pub trait OwnResults: Send + Sync {
    /// What this call answered, if whoever called the asking tool made it. Nothing runs.
    ///
    /// # Errors
    /// Why there is nothing.
    async fn read(&self, asking: &ToolContext, id: InvocationId) -> Result<OwnResult, NotRead>;
}

/// What a call answered.
#[derive(Debug)]
pub struct OwnResult {
    /// The call whose row holds the result: another one, where a stored result was the answer.
    pub origin: InvocationId,
    /// All of the result.
    pub result: ToolResult,
}

/// Why there is no result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRead {
    /// No such call of this caller is on record.
    Unknown,
    /// The request denies the tool that was called.
    Denied,
    /// The call has not ended.
    Open,
    /// The call failed, so no tool has answered.
    Failed,
    /// The result was not kept, or is not kept any more.
    NotKept,
    /// The ledger cannot be read.
    Unavailable,
}
