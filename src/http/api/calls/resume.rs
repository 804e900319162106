//! `POST /calls {"resume": [ID…]}`: the results of calls that waited for a person.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib_dialect::{Dialect, ToolReply};

use super::ended_call::EndedCall;
use super::held_message::{HeldCall, HeldMessage};
use super::turn::append_reminder;
use crate::approval::request::ApprovalRequest;
use crate::call::{Caller, InvocationId, waiting_result};
use crate::catalog::registry::Registry;
use crate::http::problem::ApiError;
use crate::ledger::ApprovalRow;

/// Answers for calls that waited.
///
/// # Errors
/// 404 for an id that is not of a call of this caller that needed an approval. 400, if calls of a
/// held message are missing, or if the dialect is.
pub(super) async fn resume(
    registry: &Arc<Registry>,
    caller: &Caller,
    ids: &[InvocationId],
    dialect: Option<Dialect>,
) -> Result<Value, ApiError> {
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        rows.push(find_own(registry, caller, *id).await?);
    }
    let mut held = Vec::new();
    for id in ids {
        held.push(HeldMessage::find(registry, *id).await?);
    }
    if held.iter().all(Option::is_none) {
        return answer_in_words(registry, caller, &rows, dialect).await;
    }
    let Some(Some(message)) = held.into_iter().next() else {
        let text = "resume: some of these calls belong to a held message and others do not: send them in two requests";
        return Err(ApiError::Malformed(text.into()));
    };
    let waited: Vec<InvocationId> = message.waiting().collect();
    let is_complete =
        waited.iter().all(|id| ids.contains(id)) && ids.iter().all(|id| waited.contains(id));
    if !is_complete {
        let names: Vec<String> = waited.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        let text = format!(
            "resume: the message was held for these calls, and its results come together: send {names}"
        );
        return Err(ApiError::Malformed(text));
    }
    if dialect.is_some_and(|dialect| dialect != message.message.dialect) {
        let text = format!(
            "dialect: the message was of dialect `{}`",
            message.message.dialect.as_str()
        );
        return Err(ApiError::Malformed(text));
    }
    answer_held(registry, caller, &message, &rows).await
}

/// The approval of a call of this caller.
async fn find_own(
    registry: &Registry,
    caller: &Caller,
    id: InvocationId,
) -> Result<ApprovalRow, ApiError> {
    let row = registry.shared().ledger.find_approval(id).await?;
    row.filter(|row| caller.admin || row.caller == caller.name)
        .ok_or_else(|| {
            ApiError::NotFound(format!(
                "resume: there is no call `{id}` that waited for approval"
            ))
        })
}

/// One user message about the calls that have ended.
async fn answer_in_words(
    registry: &Registry,
    caller: &Caller,
    rows: &[ApprovalRow],
    dialect: Option<Dialect>,
) -> Result<Value, ApiError> {
    let Some(dialect) = dialect else {
        let known = Dialect::names().join(", ");
        let text = format!("resume: name the dialect of the conversation in `dialect`: {known}");
        return Err(ApiError::Malformed(text));
    };
    let (mut results, mut waiting, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        match EndedCall::load(registry, caller, row.invocation).await? {
            Some(ended) => {
                results.push(ended.result.clone());
                texts.push((introduction(row), ended));
            }
            None => {
                results.push(waiting_entry(row));
                waiting.push(row.invocation);
            }
        }
    }
    let late = texts
        .iter()
        .map(|(introduction, ended)| (introduction.as_str(), ended.to_reply()));
    let messages = match texts.is_empty() {
        true => Vec::new(),
        false => vec![toolcrib_dialect::write_late_results(dialect, late)],
    };
    let is_answer = texts.iter().any(|(_, ended)| ended.is_final_answer);
    Ok(answer(dialect, messages, is_answer, results, &waiting))
}

fn introduction(row: &ApprovalRow) -> String {
    format!(
        "The call of {} that waited for approval ({}) has ended:",
        row.tool, row.invocation
    )
}

/// The results of the whole message, once every call has ended.
async fn answer_held(
    registry: &Registry,
    caller: &Caller,
    held: &HeldMessage,
    rows: &[ApprovalRow],
) -> Result<Value, ApiError> {
    let (mut ended, mut results, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for call in &held.calls {
        let id = match call {
            HeldCall::Ended(call) => {
                results.push(call.result.clone());
                ended.push((**call).clone());
                continue;
            }
            HeldCall::Waiting(id) => *id,
        };
        if let Some(call) = EndedCall::load(registry, caller, id).await? {
            results.push(call.result.clone());
            ended.push(call);
        } else {
            results.extend(
                rows.iter()
                    .find(|row| row.invocation == id)
                    .map(waiting_entry),
            );
            waiting.push(id);
        }
    }
    let dialect = held.message.dialect;
    if !waiting.is_empty() {
        return Ok(answer(dialect, Vec::new(), false, results, &waiting));
    }
    let replies: Vec<ToolReply<'_>> = ended.iter().map(EndedCall::to_reply).collect();
    let mut messages = toolcrib_dialect::write_replies(&held.message, &replies);
    append_reminder(&mut messages, held.reminder.as_deref());
    let is_answer = ended.iter().any(|call| call.is_final_answer);
    Ok(answer(dialect, messages, is_answer, results, &waiting))
}

/// The entry in `results` of a call that has not ended.
fn waiting_entry(row: &ApprovalRow) -> Value {
    json!({
        "state": "waiting",
        "invocation_id": row.invocation,
        "tool": row.tool,
        "tool_use_id": ApprovalRequest::from_row(row).and_then(|request| request.tool_use_id),
        "is_error": false,
        "content": waiting_result(&row.tool, row.invocation).content,
    })
}

fn answer(
    dialect: Dialect,
    messages: Vec<Value>,
    result_as_answer: bool,
    results: Vec<Value>,
    waiting: &[InvocationId],
) -> Value {
    json!({
        "dialect": dialect,
        "messages": messages,
        "result_as_answer": result_as_answer,
        "results": results,
        "warnings": [],
        "waiting": waiting,
    })
}
