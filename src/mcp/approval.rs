//! Asks the client of a call that waits for approval: by a form if the caller may decide itself,
//! else by a URL at which another person decides.
//!
//! Until 2025-11-25 the question is a request of the server (`elicitation/create`) while the call
//! is open. Since 2026-07-28 the call is answered with the question, and the client repeats the
//! call with the answer.

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationSchema, ServerRequest,
};
use rmcp::{Peer, RoleServer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::approval::deciding::{Decision, Verdict};
use crate::approval::request::ApprovalRequest;
use crate::call::{Caller, InvocationId, JsonObject};
use crate::catalog::Entry;
use crate::catalog::registry::Registry;
use crate::ledger::ApprovalRow;

/// Longest note, in bytes.
const MAX_NOTE_BYTES: usize = 2000;
/// Longest text of the arguments in a question, in characters.
const MAX_SHOWN_CHARS: usize = 4000;

/// The way in which a client is asked about a call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A form. Its answer decides.
    Form,
    /// A URL. Its answer decides nothing.
    Url,
}

/// What an answer to a form means.
#[derive(Debug)]
pub(super) enum FormAnswer {
    /// The person has decided.
    Decided(Verdict, Option<Arc<str>>),
    /// The person has closed the form. The call waits on.
    Closed,
}

/// Whether a client takes forms.
pub(super) fn takes_forms(capabilities: Option<ClientCapabilities>) -> bool {
    let takes = capabilities.and_then(|capabilities| capabilities.elicitation);
    // Without any mode, a client takes forms: it was the only mode until 2025-06-18.
    takes.is_some_and(|takes| takes.form.is_some() || takes.url.is_none())
}

impl Way {
    /// The way for calls of this tool by this caller. `None`: the client is not asked.
    pub(super) fn for_call(
        registry: &Registry,
        entry: &Entry,
        caller: &Caller,
        capabilities: impl FnOnce() -> Option<ClientCapabilities>,
    ) -> Option<Self> {
        let policy = entry.policy.approval.as_ref()?;
        let capabilities = capabilities()?;
        let takes = capabilities.elicitation.clone()?;
        let is_named = policy.by.contains(&caller.name);
        if is_named && takes_forms(Some(capabilities)) {
            return Some(Self::Form);
        }
        let has_page = registry.shared().public_url.is_some();
        (takes.url.is_some() && has_page).then_some(Self::Url)
    }

    /// The question about a call that waits.
    pub(super) fn question(self, registry: &Registry, row: &ApprovalRow) -> Option<ElicitRequest> {
        let request = ApprovalRequest::from_row(row)?;
        let kept = || {
            let kept = registry.shared().waiting_calls.kept(row.invocation);
            kept.map(|kept| kept.shown)
        };
        let message = message(row, &request, request.arguments.clone().or_else(kept));
        let params = match self {
            Self::Form => ElicitRequestParams::FormElicitationParams {
                meta: None,
                message,
                requested_schema: ElicitationSchema::builder()
                    .optional_string("note")
                    .build_unchecked(),
            },
            Self::Url => {
                let call = row.invocation;
                let url = registry.shared().public_url.as_ref()?;
                ElicitRequestParams::UrlElicitationParams {
                    meta: None,
                    message,
                    url: url.join(&format!("#/approvals/{call}")),
                    elicitation_id: call.to_string(),
                }
            }
        };
        Some(ElicitRequest::new(params))
    }
}

fn message(row: &ApprovalRow, request: &ApprovalRequest, shown: Option<JsonObject>) -> String {
    let arguments = shown.map_or_else(
        || "(not shown)".to_owned(),
        |arguments| Value::Object(arguments).to_string(),
    );
    let mut text: String = arguments.chars().take(MAX_SHOWN_CHARS).collect();
    if text.len() < arguments.len() {
        text.push_str(" … (cut)");
    }
    let mut message = format!(
        "Call of the tool {} waits for approval. Arguments: {text}",
        row.tool
    );
    if let Some(of_operator) = &request.message {
        message = format!("{of_operator}\n{message}");
    }
    message
}

impl FormAnswer {
    /// Reads the answer of a client. `None`: it is not an answer to a form.
    pub(super) fn read(answer: &Value) -> Option<Self> {
        let answer: ElicitResult = serde_json::from_value(answer.clone()).ok()?;
        Some(Self::from_result(answer))
    }

    fn from_result(answer: ElicitResult) -> Self {
        let content = answer.content.as_ref();
        let note = content.and_then(|content| content.get("note"));
        let note = note.and_then(Value::as_str);
        let note = note
            .filter(|note| !note.trim().is_empty() && note.len() <= MAX_NOTE_BYTES)
            .map(Into::into);
        match answer.action {
            ElicitationAction::Accept => Self::Decided(Verdict::Approve(None), note),
            ElicitationAction::Decline => Self::Decided(Verdict::Deny, note),
            _ => Self::Closed,
        }
    }
}

/// Asks the client of a session about its call, and decides by its answer. `wait_ends` is tripped
/// when no decision can come from the form, so that the call is answered.
pub(super) async fn ask_in_session(
    registry: &Arc<Registry>,
    (way, id, caller): (Way, InvocationId, &Caller),
    peer: &Peer<RoleServer>,
    wait_ends: &CancellationToken,
) {
    let row = registry.shared().ledger.find_approval(id).await;
    let question = row.ok().flatten();
    let question = question.and_then(|row| way.question(registry, &row));
    let Some(question) = question else {
        return wait_ends.cancel();
    };
    let answer = peer
        .send_request(ServerRequest::ElicitRequest(question))
        .await;
    if way == Way::Url {
        return;
    }
    let decided = match answer {
        Ok(ClientResult::ElicitResult(answer)) => match FormAnswer::from_result(answer) {
            FormAnswer::Decided(verdict, note) => {
                let by = caller.name.clone();
                let decision = Decision { verdict, by, note };
                registry.decide(id, decision).await.is_ok()
            }
            FormAnswer::Closed => false,
        },
        _ => false,
    };
    if !decided {
        wait_ends.cancel();
    }
}
