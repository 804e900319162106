//! How far a call is that may need an approval, and the answer for a call that waits.

use std::sync::Arc;

use super::error::CallError;
use super::invocation_id::InvocationId;
use super::json::JsonObject;
use super::question::Question;
use super::result::ToolResult;

/// Where a call stands that may need an approval.
#[derive(Debug, Clone)]
pub enum ApprovalStage {
    /// The call is new. These are its arguments as received.
    Requested(Arc<JsonObject>),
    /// A person has approved the call.
    Approved(Approved),
    /// The call must not run any more. The layer `record` writes its row with this failure.
    Refused(CallError),
}

/// The approval under which a call runs. It permits one start, with exactly these arguments.
#[derive(Debug, Clone)]
pub struct Approved {
    /// Hash of the definition and the arguments that were shown; see [`approval_hash`](super::approval_hash).
    pub hash: [u8; 32],
    /// The arguments that the person approved instead of those of the request.
    pub changed_arguments: Option<Arc<JsonObject>>,
    /// The arguments of the request. An idempotency key belongs to these.
    pub requested_arguments: Arc<JsonObject>,
}

/// The result that answers a call while its tool waits for the answer to a question.
pub fn question_result(question: &Question, invocation: InvocationId) -> ToolResult {
    let Question { tool, message, .. } = question;
    ToolResult::text(format!(
        "The tool `{tool}` asks: {message}\nIt waits for the answer: \
         POST /invocations/{invocation}/answer. Then read GET /invocations/{invocation}."
    ))
}

/// The result that answers a call while it waits for a person.
pub fn waiting_result(tool: &str, invocation: InvocationId) -> ToolResult {
    ToolResult::text(format!(
        "The tool `{tool}` has not run yet: a person must approve this call first (invocation {invocation}). Do not call \
         the tool again for the same purpose. Continue with other work, or tell the user that the call waits for approval."
    ))
}
