//! The open questions of running tools, and the calls that go on after their request was answered
//! with a question.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::call::{
    Answer, CallError, InvocationId, OpenQuestion, Question, QuestionAnswer, QuestionListener,
    Violation,
};
use crate::schema::Schema;

type Outcome = Result<Answer, CallError>;

/// The calls of this process that ask. Clones share them.
#[derive(Clone, Default)]
pub struct Questions(Arc<Mutex<HashMap<InvocationId, Asking>>>);

/// A call that asks, or has asked and still runs.
struct Asking {
    caller: Arc<str>,
    /// Taken when it is answered.
    open: Option<OpenQuestion>,
    stage: watch::Sender<Stage>,
}

/// How far a call is that asks.
#[derive(Debug, Clone)]
pub enum Stage {
    /// The tool runs.
    Runs,
    /// The question with this number, from 1, waits for its answer.
    Asks(u32, Question),
    /// The call has ended.
    Ended(Arc<Outcome>),
}

/// Why an answer was not taken.
#[derive(Debug)]
pub enum AnswerError {
    /// The caller has no such call here that asks this question.
    NotAsking,
    /// The content does not match the schema of the question.
    Invalid(Vec<Violation>),
}

/// A call with its questions.
pub struct AskingCall<F> {
    /// The call's id.
    pub id: InvocationId,
    /// The name of its caller.
    pub caller: Arc<str>,
    /// The questions of its tools.
    pub listener: QuestionListener,
    /// The call.
    pub call: F,
}

impl Questions {
    /// Runs a call to its end. Its questions can be answered meanwhile. `announce` learns of each
    /// question.
    pub async fn run<F: Future<Output = Outcome> + Unpin>(
        &self,
        call: AskingCall<F>,
        announce: impl Fn(&Question),
    ) -> Outcome {
        let stage = watch::Sender::new(Stage::Runs);
        self.drive(call, None, &stage, announce).await
    }

    /// Lets a call go on that has asked its first question. The call ends by itself, whatever
    /// happens to its request.
    pub fn detach<F: Future<Output = Outcome> + Unpin + Send + 'static>(
        &self,
        call: AskingCall<F>,
        first: OpenQuestion,
    ) {
        let stage = watch::Sender::new(Stage::Runs);
        // Open before this returns, so that no answer comes too early.
        let closed = self.open((call.id, &call.caller), first, 1, &stage);
        let questions = self.clone();
        tokio::spawn(async move {
            let ended = questions.drive(call, Some(closed), &stage, |_| {}).await;
            stage.send_replace(Stage::Ended(Arc::new(ended)));
        });
    }

    async fn drive<F: Future<Output = Outcome> + Unpin>(
        &self,
        call: AskingCall<F>,
        first: Option<CancellationToken>,
        stage: &watch::Sender<Stage>,
        announce: impl Fn(&Question),
    ) -> Outcome {
        let AskingCall {
            id,
            caller,
            mut listener,
            mut call,
        } = call;
        let _entry = RemoveOnDrop(self, id);
        let (mut number, mut closed) = (u32::from(first.is_some()), first);
        loop {
            let asked = match closed.take() {
                Some(closed) => closed,
                None => {
                    let open = tokio::select! {
                        biased;
                        outcome = &mut call => return outcome,
                        Some(open) = listener.next() => open,
                    };
                    number += 1;
                    let question = open.question.clone();
                    let closed = self.open((id, &caller), open, number, stage);
                    announce(&question);
                    closed
                }
            };
            tokio::select! {
                biased;
                outcome = &mut call => return outcome,
                () = asked.cancelled() => {}
            }
            stage.send_replace(Stage::Runs);
        }
    }

    /// Enters a question. The returned token is cancelled when the tool does not wait any more.
    fn open(
        &self,
        (id, caller): (InvocationId, &Arc<str>),
        open: OpenQuestion,
        number: u32,
        stage: &watch::Sender<Stage>,
    ) -> CancellationToken {
        let (question, closed) = (open.question.clone(), open.closed.clone());
        let asking = Asking {
            caller: caller.clone(),
            open: Some(open),
            stage: stage.clone(),
        };
        self.0.lock().insert(id, asking);
        stage.send_replace(Stage::Asks(number, question));
        closed
    }

    /// The open question of a call.
    pub fn open_question(&self, id: InvocationId) -> Option<Question> {
        let calls = self.0.lock();
        let open = calls.get(&id)?.open.as_ref()?;
        Some(open.question.clone())
    }

    /// The stages of a caller's call that goes on by [`Questions::detach`].
    pub fn stages(&self, id: InvocationId, caller: &str) -> Option<watch::Receiver<Stage>> {
        let calls = self.0.lock();
        let asking = calls.get(&id).filter(|asking| *asking.caller == *caller)?;
        Some(asking.stage.subscribe())
    }

    /// Answers the open question of a caller's call, if it has this name.
    ///
    /// # Errors
    /// [`AnswerError`]. The question stays open then.
    pub fn answer(
        &self,
        id: InvocationId,
        caller: &str,
        name: Option<&str>,
        answer: QuestionAnswer,
    ) -> Result<(), AnswerError> {
        let mut calls = self.0.lock();
        let asking = calls
            .get_mut(&id)
            .filter(|asking| *asking.caller == *caller)
            .ok_or(AnswerError::NotAsking)?;
        let is_named = |open: &&OpenQuestion| name.is_none_or(|name| *name == *open.question.name);
        let open = asking.open.as_ref().filter(is_named);
        let open = open.ok_or(AnswerError::NotAsking)?;
        check_answer(&open.question, &answer).map_err(AnswerError::Invalid)?;
        match asking.open.take().is_some_and(|open| open.answer(answer)) {
            true => Ok(()),
            false => Err(AnswerError::NotAsking),
        }
    }
}

/// Checks the content of an answer against the schema of its question.
///
/// # Errors
/// The violations.
pub fn check_answer(question: &Question, answer: &QuestionAnswer) -> Result<(), Vec<Violation>> {
    let QuestionAnswer::Accept { content } = answer else {
        return Ok(());
    };
    let violation = |message: String| {
        vec![Violation {
            pointer: String::new(),
            keyword: "schema".into(),
            message,
            schema_pointer: String::new(),
        }]
    };
    let schema = Schema::compile(Arc::new(question.schema.clone()));
    let schema =
        schema.map_err(|fault| violation(format!("the tool's form is faulty: {fault}")))?;
    match schema.violations(&Value::Object(content.clone())) {
        violations if violations.is_empty() => Ok(()),
        violations => Err(violations),
    }
}

struct RemoveOnDrop<'a>(&'a Questions, InvocationId);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}
