//! Passes the questions of a server's tool on to the caller of the call: as a result of the call
//! (2026-07-28), or as requests of the server (before).

use rmcp::model::{ElicitRequestParams, InputRequest, InputRequiredResult, InputResponses};
use serde_json::{Value, json};

use crate::call::{QuestionAnswer, ToolContext};

/// Whether a tool asks only for forms. A caller is not asked for a model's answer, for folders, or
/// to open a URL.
pub(super) fn are_forms(asked: &InputRequiredResult) -> bool {
    let is_form = |request: &InputRequest| {
        matches!(request, InputRequest::Elicitation(request)
            if matches!(request.params, ElicitRequestParams::FormElicitationParams { .. }))
    };
    let requests = asked.input_requests.as_ref();
    requests.is_none_or(|requests| requests.values().all(is_form))
        && (requests.is_some() || asked.request_state.is_some())
}

/// Asks the caller each question.
pub(super) async fn ask(asked: &InputRequiredResult, context: &ToolContext) -> InputResponses {
    let mut answers = InputResponses::new();
    for (name, request) in asked.input_requests.iter().flatten() {
        let InputRequest::Elicitation(request) = request else {
            continue;
        };
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = &request.params
        else {
            continue;
        };
        let schema = serde_json::to_value(requested_schema).ok();
        let answer = ask_form(message, schema, name, context).await;
        answers.insert(name.clone(), json!(answer));
    }
    answers
}

/// Asks the caller one question. A question that cannot be asked is cancelled.
pub(super) async fn ask_form(
    message: &str,
    schema: Option<Value>,
    name: &str,
    context: &ToolContext,
) -> QuestionAnswer {
    let answer = context.ask(message, schema, Some(name)).await;
    answer.unwrap_or_else(|error| {
        tracing::debug!(tool = %context.tool, %error, "a question of an MCP server was cancelled");
        QuestionAnswer::Cancel
    })
}
