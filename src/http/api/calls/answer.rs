//! The answer of `POST /calls`.

use serde::Serialize;
use serde_json::Value;
use toolcrib_dialect::Dialect;

use crate::call::{Content, InvocationId};
use crate::http::api::wire::InvokeAnswer;
use crate::http::problem::Problem;
use crate::ledger::State;

/// The answer of `POST /calls` to a valid message, whether its calls succeeded or not.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct CallsAnswer<'a> {
    /// The dialect of the message.
    pub(super) dialect: Dialect,
    /// Messages to append to the conversation after the message, in its dialect. Empty when the
    /// message has no calls.
    #[schema(value_type = Vec<Object>)]
    pub(super) messages: Vec<Value>,
    /// One of the results is the agent's final answer.
    pub(super) result_as_answer: bool,
    /// The result of each call, in the message's order.
    pub(super) results: Vec<CallResult<'a>>,
    /// Warnings about the message.
    pub(super) warnings: Vec<String>,
    /// Ids for `resume`: calls that have not ended. Only for a held message, and for `resume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    pub(super) waiting: Option<&'a [InvocationId]>,
}

/// The result of one call.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(super) enum CallResult<'a> {
    /// The tool ran.
    Answer(InvokeAnswer<'a>),
    /// The call waits for a person.
    Waiting(WaitingCall<'a>),
    /// The tool did not run, or failed.
    Problem(CallProblem<'a>),
}

/// A call that waits for a person.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct WaitingCall<'a> {
    /// `waiting`.
    pub(super) state: State,
    /// The call's id, the key of its row in the ledger.
    #[schema(value_type = String)]
    pub(super) invocation_id: InvocationId,
    /// Name of the tool.
    pub(super) tool: &'a str,
    /// The model's id for the call.
    #[schema(required)]
    pub(super) tool_use_id: Option<&'a str>,
    /// False: a call that waits is no error.
    pub(super) is_error: bool,
    /// The text for the model.
    pub(super) content: &'a [Content],
}

/// Why one call of a message failed.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct CallProblem<'a> {
    /// The tool, by the name that the model gave it; null if that cannot be read.
    #[schema(required)]
    pub(super) tool: Option<&'a str>,
    /// The model's id for the call.
    #[schema(required)]
    pub(super) tool_use_id: Option<&'a str>,
    /// The problem.
    #[serde(flatten)]
    pub(super) problem: &'a Problem,
}
