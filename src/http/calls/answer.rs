//! What `POST /calls` answers.

use serde::Serialize;
use serde_json::Value;

use super::turn::Answered;
use crate::dialect::Dialect;
use crate::http::problem::Problem;
use crate::http::wire::InvokeAnswer;

/// What `POST /calls` answers once the message was understood, whatever its calls did.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct CallsAnswer<'a> {
    /// The dialect of the message.
    pub(super) dialect: Dialect,
    /// To be appended to the conversation after the message, in its dialect; none when it has no calls.
    #[schema(value_type = Vec<Object>)]
    pub(super) messages: Vec<Value>,
    /// One of the results is the agent's final answer.
    pub(super) result_as_answer: bool,
    /// What came of each call, in the message's order.
    pub(super) results: Vec<CallResult<'a>>,
    /// Anything worth knowing about the message.
    pub(super) warnings: Vec<String>,
}

/// What came of one call.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(super) enum CallResult<'a> {
    /// The tool ran.
    Answer(InvokeAnswer<'a>),
    /// It did not, or failed.
    Problem(CallProblem<'a>),
}

/// Why one call of a message came to nothing.
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

impl Answered {
    /// The whole answer.
    pub(super) fn answer(&self) -> CallsAnswer<'_> {
        let results: Vec<CallResult<'_>> = self.results().collect();
        let is_answer =
            |result: &CallResult<'_>| matches!(result, CallResult::Answer(answer) if answer.result_as_answer);
        CallsAnswer {
            dialect: self.message.dialect,
            messages: self.messages(),
            result_as_answer: results.iter().any(is_answer),
            results,
            warnings: self.message.warnings.clone(),
        }
    }
}
