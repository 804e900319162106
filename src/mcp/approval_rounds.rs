//! The rounds of a call that waits for approval, since 2026-07-28: the call is answered with a
//! question, and the client repeats it with the answer and the state.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{InputRequest, InputRequests, InputRequiredResult, InputResponses, MetaObject};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::approval::{FormAnswer, Way};
use super::content::{SERVER_INFO, server_info};
use super::request_state::StateScope;
use crate::approval::deciding::{DecideError, Decision};
use crate::call::{
    Answer, CallError, Caller, Invocation, InvocationId, JsonObject, waiting_result,
};
use crate::catalog::Entry;
use crate::catalog::registry::Registry;
use crate::catalog::registry::recorded_calls::find_call;
use crate::ledger::{ApprovalRow, ApprovalState, End, State};

/// Name of the question in `inputRequests`.
const QUESTION: &str = "approval";
/// Pause between looks for the end of a call that runs elsewhere.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

type Outcome = Result<Answer, CallError>;

/// The answer to one round.
pub(super) enum Round {
    /// The client must answer a question.
    Asks(Box<InputRequiredResult>),
    /// The call with this id has an answer.
    Ends(InvocationId, Outcome),
}

/// One call and its sender.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) registry: &'a Arc<Registry>,
    pub(super) entry: &'a Entry,
    pub(super) caller: &'a Caller,
    /// The arguments as received.
    pub(super) arguments: &'a JsonObject,
}

impl Asked<'_> {
    /// The first round: the question about the call that waits.
    pub(super) async fn ask(self, way: Way, id: InvocationId, outcome: Outcome) -> Round {
        if !matches!(&outcome, Ok(answer) if answer.waiting) {
            return Round::Ends(id, outcome);
        }
        let row = self.registry.shared().ledger.find_approval(id).await;
        let question = row.ok().flatten().and_then(|row| self.question(way, &row));
        match question {
            Some(question) => Round::Asks(Box::new(question)),
            None => Round::Ends(id, outcome),
        }
    }

    /// A later round: the client's answer.
    ///
    /// # Errors
    /// The state does not belong to this request. Nothing was decided.
    pub(super) async fn answer(
        self,
        way: Option<Way>,
        state: &str,
        answers: Option<&InputResponses>,
        again: &Invocation,
    ) -> Result<Round, ErrorData> {
        let shared = self.registry.shared();
        let id = self
            .scope()
            .open(&shared.digest_key, state, shared.clock.now())
            .map_err(invalid_state)?;
        let Ok(row) = shared.ledger.find_approval(id).await else {
            let error = CallError::LedgerUnavailable {
                reason: "the waiting call cannot be read".into(),
                started: false,
                has_row: true,
            };
            return Ok(Round::Ends(id, Err(error)));
        };
        let row = row
            .filter(|row| row.caller == self.caller.name)
            .ok_or_else(|| invalid_state("the call of requestState is no longer known"))?;
        let is_named = row.approvers().any(|name| *name == *self.caller.name);
        let may_decide = is_named && way == Some(Way::Form);
        if row.state != ApprovalState::Waiting || !may_decide {
            return Ok(Round::Ends(id, self.wait_for_end(id, again).await));
        }
        let answer = answers.and_then(|answers| FormAnswer::read(answers.get(QUESTION)?));
        let (verdict, note) = match answer {
            Some(FormAnswer::Decided(verdict, note)) => (verdict, note),
            Some(FormAnswer::Closed) => {
                return Ok(Round::Ends(id, Ok(self.waiting_answer(id, again))));
            }
            None => {
                let question = self.question(Way::Form, &row);
                let question = question.ok_or_else(|| invalid_state("answer with the form"))?;
                return Ok(Round::Asks(Box::new(question)));
            }
        };
        let by = self.caller.name.clone();
        let decision = Decision { verdict, by, note };
        let outcome = match self.registry.decide_and_run(id, decision).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) | Err(DecideError::Decided(_)) => self.wait_for_end(id, again).await,
            Err(DecideError::NotFound | DecideError::Elsewhere(_)) => {
                Ok(self.waiting_answer(id, again))
            }
            Err(DecideError::Invalid(error)) => Err(error),
            Err(DecideError::Ledger(error)) => Err(CallError::ledger_unavailable(&error)),
        };
        Ok(Round::Ends(id, outcome))
    }

    pub(super) fn scope(&self) -> StateScope<'_> {
        StateScope {
            caller: &self.caller.name,
            tool: self.entry.definition.name.as_str(),
            arguments: self.arguments,
        }
    }

    fn question(&self, way: Way, row: &ApprovalRow) -> Option<InputRequiredResult> {
        let question = InputRequest::Elicitation(way.question(self.registry, row)?);
        let key = &self.registry.shared().digest_key;
        let state = self.scope().seal(key, row.invocation, row.expires_at);
        Some(asking_result(row.invocation, QUESTION, question, state))
    }

    /// Waits until another person has decided and the call has ended, at most as long as a new
    /// call waits.
    async fn wait_for_end(&self, id: InvocationId, again: &Invocation) -> Outcome {
        let policy = self.entry.policy.approval.as_ref();
        let until = Instant::now() + policy.map(|policy| policy.wait).unwrap_or_default();
        let shared = self.registry.shared();
        loop {
            if let Some(outcome) = self.recorded_outcome(id).await {
                return match outcome {
                    Ok(answer) => Ok(Answer {
                        tool_use_id: again.correlation.tool_use_id.clone(),
                        ..answer
                    }),
                    failed => failed,
                };
            }
            if Instant::now() >= until || shared.in_flight_calls.is_closed() {
                return Ok(self.waiting_answer(id, again));
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// The outcome of a call that has ended, from the ledger. `None`: the call has not ended, or
    /// the ledger keeps no result of it.
    pub(super) async fn recorded_outcome(&self, id: InvocationId) -> Option<Outcome> {
        let shared = self.registry.shared();
        let found = find_call(shared, id).await.ok().flatten()?;
        let open = [State::Waiting, State::Reserved, State::Running];
        if open.contains(&found.row.state) || found.row.caller != self.caller.name {
            return None;
        }
        match found.row.decode_end(found.origin_result) {
            Ok(End::Answered { result, meta }) => Some(Ok(Answer {
                tool_use_id: None,
                ..found.row.to_answer(result, meta)
            })),
            Ok(End::Failed(failure)) => Some(Err(CallError::StoredFailure {
                failure: Box::new(failure),
                invocation: id,
                replayed: false,
            })),
            Ok(End::Open | End::DigestOnly(_)) => None,
            Err(_) => Some(Err(CallError::Internal)),
        }
    }

    fn waiting_answer(&self, id: InvocationId, again: &Invocation) -> Answer {
        Answer {
            invocation: id,
            result: Arc::new(waiting_result(self.entry.definition.name.as_str(), id)),
            ..again.waiting_answer()
        }
    }
}

/// The result that asks the client for an answer, and has the state that belongs to it.
pub(super) fn asking_result(
    call: InvocationId,
    name: &str,
    question: InputRequest,
    state: String,
) -> InputRequiredResult {
    let questions = InputRequests::from([(name.to_owned(), question)]);
    let mut result = InputRequiredResult::new(Some(questions), Some(state));
    let mut meta = MetaObject::new();
    meta.insert(SERVER_INFO.into(), server_info());
    meta.insert("toolcrib/invocationId".into(), call.to_string().into());
    meta.insert("toolcrib/state".into(), "waiting".into());
    result.meta = Some(meta);
    result
}

/// The refusal of a request whose state or answer cannot be used.
pub(super) fn invalid_state(reason: impl Display) -> ErrorData {
    let data = json!({"kind": "invalid_request"});
    ErrorData::invalid_params(reason.to_string(), Some(data))
}
