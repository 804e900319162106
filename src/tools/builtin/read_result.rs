//! `read_result`: further pages of a long result. It runs no tool.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::NoSettings;
use crate::call::{
    Effect, Idempotency, InvocationId, JsonObject, NotRead, OwnResult, OwnResults, Paging, ToolContext, ToolError,
    ToolResult,
};
use crate::tools::{Fault, Placeholder, Runner, Tool, Values};

const DESCRIPTION: &str = "Reads on in the result of an earlier tool call, page by page and without running that tool again. Use it \
     when an answer says that only a part is shown: it names the invocation_id and the offset to go on from.";

/// The tool, registered as `name`.
pub(super) fn tool(name: &str, _none: NoSettings) -> Tool {
    let id = "The invocation_id that the answer names whose rest you want";
    Tool::new(name, DESCRIPTION)
        .param("invocation_id", "string", id)
        .effect(Effect::Read)
        // A repeated reading does no harm. An answer stored under an idempotency key would copy the result once more.
        .idempotency(Idempotency::Off)
        .paging(Paging::Pages)
        .with_runner(Arc::new(ReadResult))
}

struct ReadResult;

#[async_trait]
impl Runner for ReadResult {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        let Some(id) = id_of(&arguments) else { return Err(ToolError::Said(explain(NotRead::Unknown))) };
        let Some(results) = context.service::<Arc<dyn OwnResults>>().cloned() else {
            return Err(ToolError::unavailable("this service has no results on record"));
        };
        match results.read(&context, id).await {
            Ok(OwnResult { origin, result }) => {
                context.answered_by(origin);
                // The result may have been the final answer of the earlier call. Here it is not, and its hint no
                // longer applies.
                Ok(ToolResult { result_as_answer: None, hint: None, ..result })
            }
            Err(NotRead::Unavailable) => Err(ToolError::unavailable("the results on record cannot be read")),
            Err(why) => Err(ToolError::Said(explain(why))),
        }
    }

    fn faults(&self, values: Values<'_>) -> Vec<Fault> {
        if id_of(values.arguments).is_some() {
            return Vec::new();
        }
        let message = "`invocation_id` must be the id that an answer names.";
        vec![Placeholder::Argument("invocation_id".into()).fault("format", message)]
    }

    fn has_one_target(&self) -> bool {
        false
    }

    fn keeps(&self) -> bool {
        false
    }

    fn reads_results(&self) -> bool {
        true
    }
}

fn id_of(arguments: &JsonObject) -> Option<InvocationId> {
    arguments.get("invocation_id").and_then(Value::as_str)?.trim().parse().ok()
}

/// Why there is no result, and what to do.
fn explain(why: NotRead) -> String {
    match why {
        NotRead::Unknown => {
            "none of your calls on record has this invocation_id: make the call that you want the result of"
        }
        NotRead::Denied => "the tool of that call is not allowed for this request",
        NotRead::Open => "that call has not ended: ask again later",
        NotRead::Failed => "that call failed, so there is no result: make it again if you need one",
        NotRead::NotKept => {
            "the result of that call is not kept: make the call again if you need it, and ask for less at once"
        }
        NotRead::Unavailable => "the results on record cannot be read",
    }
    .into()
}
