//! An ended call as data: its entry in `results`, and what its reply to the model is made of.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolcrib_dialect::ToolReply;

use super::answer::CallProblem;
use crate::call::{Answer, Caller, Content, InvocationId};
use crate::catalog::registry::Registry;
use crate::http::api::invocations::results::select_first_part;
use crate::http::api::invocations::route::find_visible;
use crate::http::api::wire::InvokeAnswer;
use crate::http::problem::{ApiError, Problem};
use crate::ledger::{End, Row, State, UnreadableRow};

/// An ended call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct EndedCall {
    /// The content for the model.
    pub(super) content: Vec<Content>,
    /// The same as data.
    pub(super) structured: Option<Value>,
    pub(super) is_error: bool,
    pub(super) is_final_answer: bool,
    pub(super) is_invalid_call: bool,
    /// The entry in `results`.
    pub(super) result: Value,
}

impl EndedCall {
    /// What the reply to the model is made of.
    pub(super) fn to_reply(&self) -> ToolReply<'_> {
        ToolReply {
            content: &self.content,
            structured: self.structured.as_ref(),
            is_error: self.is_error,
            is_final_answer: self.is_final_answer,
            is_invalid_call: self.is_invalid_call,
        }
    }

    /// Reads a call of this caller from the ledger. `None`: it has not ended.
    pub(super) async fn load(
        registry: &Registry,
        caller: &Caller,
        id: InvocationId,
    ) -> Result<Option<Self>, ApiError> {
        let found = find_visible(registry, caller, id).await?;
        let row = found.row;
        if matches!(row.state, State::Waiting | State::Reserved | State::Running) {
            return Ok(None);
        }
        let end = row.decode_end(found.origin_result);
        let end = end.map_err(|UnreadableRow| ApiError::Internal)?;
        Ok(Some(match end {
            End::Answered { result, meta } => {
                let answer = select_first_part(row.to_answer(result, meta));
                Self::from_answer(registry, caller, &row, &answer)
            }
            End::Failed(failure) => {
                Self::from_problem(&row, &Problem::from_failure(failure, Some(row.id)))
            }
            End::DigestOnly(_) => Self::without_result(
                &row,
                "The call has ended, but its result is not stored (capture: digest).",
            ),
            End::Open => {
                Self::without_result(&row, row.summary().unwrap_or("The call has no result."))
            }
        }))
    }

    fn from_answer(registry: &Registry, caller: &Caller, row: &Row, answer: &Answer) -> Self {
        let as_answer = registry
            .get(&row.tool)
            .is_some_and(|entry| entry.definition.result_as_answer);
        let reader = || registry.catalog().find_result_reader(caller, |_| true);
        let content = answer.model_content(reader);
        let content = content.unwrap_or_else(|| answer.result.content.clone());
        let shown = InvokeAnswer::new(&row.tool, as_answer, answer, Some(Cow::Borrowed(&content)));
        Self {
            result: json!(shown),
            structured: answer.result.structured_content.clone(),
            is_error: answer.result.is_error,
            is_final_answer: answer.result.is_answer(as_answer),
            is_invalid_call: false,
            content,
        }
    }

    fn from_problem(row: &Row, problem: &Problem) -> Self {
        Self {
            result: json!(CallProblem {
                tool: Some(&row.tool),
                tool_use_id: row.tool_use_id.as_deref(),
                problem,
            }),
            content: problem.content.clone(),
            is_error: true,
            ..Self::default()
        }
    }

    /// A call whose result the ledger does not have. `text` tells why.
    fn without_result(row: &Row, text: &str) -> Self {
        let is_error = row.state != State::Succeeded;
        let content = vec![Content::text(text)];
        let result = json!({
            "invocation_id": row.id,
            "tool": row.tool,
            "tool_use_id": row.tool_use_id,
            "state": row.state,
            "is_error": is_error,
            "content": content,
        });
        Self {
            content,
            is_error,
            result,
            ..Self::default()
        }
    }
}
