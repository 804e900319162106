//! The open questions of running tools, and the calls that go on after their request was answered
//! with a question.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::call::{
    Answer, CallError, InvocationId, OpenQuestion, Question, QuestionAnswer, QuestionListener,
};

type Outcome = Result<Answer, CallError>;

/// The calls of this process that ask. Clones share them.
#[derive(Clone, Default)]
pub struct Questions(Arc<Mutex<HashMap<InvocationId, Asking>>>);

/// A call that asks, or has asked and still runs.
struct Asking {
    caller: Arc<str>,
    number: u32,
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
        let task = async move {
            let ended = questions.drive(call, Some(closed), &stage, |_| {}).await;
            stage.send_replace(Stage::Ended(Arc::new(ended)));
        };
        tokio::spawn(task.boxed());
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
            number,
            open: Some(open),
            stage: stage.clone(),
        };
        self.0.lock().insert(id, asking);
        stage.send_replace(Stage::Asks(number, question));
        closed
    }

    /// The open question of a call, with its number.
    pub fn open_question(&self, id: InvocationId) -> Option<(u32, Question)> {
        let calls = self.0.lock();
        let asking = calls.get(&id)?;
        let open = asking.open.as_ref()?;
        Some((asking.number, open.question.clone()))
    }

    /// The stages of a caller's call that goes on by [`Questions::detach`].
    pub fn stages(&self, id: InvocationId, caller: &str) -> Option<watch::Receiver<Stage>> {
        let calls = self.0.lock();
        let asking = calls.get(&id).filter(|asking| *asking.caller == *caller)?;
        Some(asking.stage.subscribe())
    }

    /// Answers the question with this number of a caller's call, by an answer that matches its
    /// schema. False: this question is not open here.
    pub fn answer(
        &self,
        id: InvocationId,
        caller: &str,
        number: u32,
        answer: QuestionAnswer,
    ) -> bool {
        let open = {
            let mut calls = self.0.lock();
            let asking = calls.get_mut(&id);
            let is_open =
                |asking: &&mut Asking| *asking.caller == *caller && asking.number == number;
            asking.filter(is_open).and_then(|asking| asking.open.take())
        };
        open.is_some_and(|open| open.answer(answer))
    }
}

struct RemoveOnDrop<'a>(&'a Questions, InvocationId);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}
