//! Asks the client of a call the questions of its tool, by a form.
//!
//! Until 2025-11-25 a question is a request of the server (`elicitation/create`) while the call is
//! open. Since 2026-07-28 the call is answered with the question, and goes on without a request.
//! The client repeats the call with the answer, and gets the next question or the result.

use std::convert::Infallible;
use std::future::pending;

use jiff::{SignedDuration, Timestamp};
use rmcp::ErrorData;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    InputRequest, InputRequiredResult, InputResponses, ServerRequest,
};
use rmcp::{Peer, RoleServer};
use serde_json::Value;
use tokio::sync::watch;

use super::approval_rounds::{Asked, Round, asking_result, invalid_state};
use crate::call::{CallError, InvocationId, Question, QuestionAnswer, QuestionListener};
use crate::schema::check_answer;
use crate::tracking::questions::Stage;

/// How long a state is accepted. A question is open at most as long as its tool may run.
const STATE_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// The form of a question; `None` if the protocol has no such form.
fn form(question: &Question) -> Option<ElicitRequest> {
    let requested_schema = serde_json::from_value(question.schema.clone());
    let requested_schema = requested_schema
        .inspect_err(|error| tracing::warn!(tool = %question.tool, %error, "MCP has no such form"))
        .ok()?;
    Some(ElicitRequest::new(
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question.message.clone(),
            requested_schema,
        },
    ))
}

/// Reads the answer to a form. `None`: it is no answer.
fn read_answer(answer: &Value) -> Option<QuestionAnswer> {
    let answer: ElicitResult = serde_json::from_value(answer.clone()).ok()?;
    Some(convert_answer(answer))
}

fn convert_answer(answer: ElicitResult) -> QuestionAnswer {
    match (answer.action, answer.content) {
        (ElicitationAction::Accept, Some(Value::Object(content))) => {
            QuestionAnswer::Accept { content }
        }
        (ElicitationAction::Accept, _) => QuestionAnswer::Accept {
            content: Default::default(),
        },
        (ElicitationAction::Decline, _) => QuestionAnswer::Decline,
        _ => QuestionAnswer::Cancel,
    }
}

/// Asks the client of a session each question of a call. An answer that does not match its form
/// counts as no answer.
pub(super) async fn ask_in_session(
    mut listener: QuestionListener,
    peer: &Peer<RoleServer>,
) -> Infallible {
    while let Some(open) = listener.next().await {
        let closed = open.closed.clone();
        let Some(form) = form(&open.question) else {
            continue;
        };
        let answer = tokio::select! {
            biased;
            () = closed.cancelled() => continue,
            answer = peer.send_request(ServerRequest::ElicitRequest(form)) => answer,
        };
        let answer = match answer {
            Ok(ClientResult::ElicitResult(answer)) => convert_answer(answer),
            // The client cannot answer, so the tool learns that its caller cannot be asked.
            _ => continue,
        };
        let is_valid = check_answer(&open.question, &answer).is_ok();
        open.answer(if is_valid {
            answer
        } else {
            QuestionAnswer::Cancel
        });
    }
    pending().await
}

/// The valid answer to this question among those that a request brought.
pub(super) fn brought_answer(
    question: &Question,
    answers: Option<&InputResponses>,
) -> Option<QuestionAnswer> {
    let answer = read_answer(answers?.get(&*question.name)?)?;
    check_answer(question, &answer).is_ok().then_some(answer)
}

impl Asked<'_> {
    /// The answer of a request with a question of its call, which goes on.
    pub(super) fn question_result(
        self,
        id: InvocationId,
        number: u32,
        question: &Question,
    ) -> Option<InputRequiredResult> {
        let shared = self.registry.shared();
        let now = shared.clock.now();
        let expires = now.checked_add(STATE_LIFETIME).unwrap_or(Timestamp::MAX);
        let state = self
            .scope()
            .seal_question(&shared.digest_key, (id, number), expires);
        let form = InputRequest::Elicitation(form(question)?);
        Some(asking_result(id, &question.name, form, state))
    }

    /// A later round of a call that asks: takes the client's answer, and waits for the next
    /// question or the end.
    ///
    /// # Errors
    /// The state does not belong to this request, or its call is not known any more.
    pub(super) async fn answer_question(
        self,
        state: &str,
        answers: Option<&InputResponses>,
    ) -> Result<Round, ErrorData> {
        let shared = self.registry.shared();
        let (id, number) = self
            .scope()
            .open_question(&shared.digest_key, state, shared.clock.now())
            .map_err(invalid_state)?;
        let caller = &*self.caller.name;
        let Some(mut stages) = shared.questions.stages(id, caller) else {
            return match self.recorded_outcome(id).await {
                Some(outcome) => Ok(Round::Ends(id, outcome)),
                None => Err(invalid_state(
                    "the call of requestState has ended or runs on another replica: call the tool \
                     again",
                )),
            };
        };
        let stage = stages.borrow().clone();
        if let Stage::Asks(open, question) = stage
            && open == number
        {
            let answer = brought_answer(&question, answers);
            if let Some(answer) = answer {
                // Another request may have answered meanwhile. Then its answer counts.
                shared.questions.answer(id, caller, number, answer);
            } else {
                let asked = self.question_result(id, number, &question);
                let asked = asked.ok_or_else(|| invalid_state("answer with the form"))?;
                return Ok(Round::Asks(Box::new(asked)));
            }
        }
        Ok(self.next_round(id, number, &mut stages).await)
    }

    async fn next_round(
        self,
        id: InvocationId,
        answered: u32,
        stages: &mut watch::Receiver<Stage>,
    ) -> Round {
        let is_next = |stage: &Stage| match stage {
            Stage::Runs => false,
            Stage::Asks(number, _) => *number > answered,
            Stage::Ended(_) => true,
        };
        let stage = stages.wait_for(is_next).await.map(|stage| stage.clone());
        match stage {
            Ok(Stage::Asks(number, question)) => {
                match self.question_result(id, number, &question) {
                    Some(asked) => Round::Asks(Box::new(asked)),
                    None => Round::Ends(id, Err(CallError::Internal)),
                }
            }
            Ok(Stage::Ended(outcome)) => Round::Ends(id, (*outcome).clone()),
            Ok(Stage::Runs) | Err(_) => Round::Ends(id, Err(CallError::Internal)),
        }
    }
}
