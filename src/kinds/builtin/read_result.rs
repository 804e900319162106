//! `read_result`: further pages of a long result. It runs no tool.

use std::sync::Arc;

use async_trait::async_trait;

use super::arguments::text_argument;
use crate::call::{
    Effect, Idempotency, InvocationId, JsonObject, OwnResult, OwnResultError, OwnResults, Paging,
    ToolContext, ToolError, ToolResult,
};
use crate::kinds::{Placeholder, Runner, RunnerTraits, Tool, ToolOutcome, ValueFault, Values};

const DESCRIPTION: &str = "Reads on in the result of an earlier tool call, page by page and without running that tool again. Use it \
     when an answer says that only a part is shown: it names the invocation_id and the offset to go on from.";

/// The tool, registered as `name`.
pub(super) fn tool(name: &str) -> Tool {
    let id = "The invocation_id from the answer whose further pages you want";
    Tool::new(name, DESCRIPTION)
        .param("invocation_id", "string", id)
        .effect(Effect::Read)
        // A repeated reading does no harm. An answer stored under an idempotency key would copy the
        // result once more.
        .idempotency(Idempotency::Off)
        .paging(Paging::PagedReader)
        .with_runner(Arc::new(ReadResult))
}

struct ReadResult;

#[async_trait]
impl Runner for ReadResult {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let Some(id) = parse_invocation_id(&arguments) else {
            return Err(ToolError::ErrorResult(explain_not_read(
                OwnResultError::Unknown,
            )));
        };
        let Some(results) = context.service::<Arc<dyn OwnResults>>().cloned() else {
            return Err(ToolError::unavailable(
                "this service has no results on record",
            ));
        };
        match results.read_result(&context, id).await {
            Ok(OwnResult { origin, result }) => {
                context.set_origin(origin);
                // The result may have been the final answer of the earlier call. Here it is not,
                // and its hint no longer applies.
                Ok(ToolResult {
                    result_as_answer: None,
                    hint: None,
                    ..result
                })
            }
            Err(OwnResultError::Unavailable) => Err(ToolError::unavailable(
                "the results on record cannot be read",
            )),
            Err(reason) => Err(ToolError::ErrorResult(explain_not_read(reason))),
        }
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        if parse_invocation_id(values.arguments).is_some() {
            return Vec::new();
        }
        let message = "`invocation_id` must be the id that an answer names.";
        vec![Placeholder::Argument("invocation_id".into()).fault("format", message)]
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            has_one_target: false,
            is_cacheable: false,
            reads_results: true,
            ..RunnerTraits::default()
        }
    }
}

fn parse_invocation_id(arguments: &JsonObject) -> Option<InvocationId> {
    let id = text_argument(arguments, "invocation_id");
    id.trim().parse().ok()
}

/// Why there is no result, and what to do.
fn explain_not_read(reason: OwnResultError) -> String {
    match reason {
        OwnResultError::Unknown => {
            "no recorded call of yours has this invocation_id: make the call whose result you need"
        }
        OwnResultError::Denied => "the tool of that call is not allowed for this request",
        OwnResultError::InProgress => "that call has not ended: ask again later",
        OwnResultError::Failed => "that call failed, so there is no result: make it again if you need one",
        OwnResultError::NotRetained => {
            "the result of that call is not kept: make the call again if you need it, and ask for less at once"
        }
        OwnResultError::Unavailable => "the results on record cannot be read",
    }
    .into()
}
