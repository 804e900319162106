//! Asks the caller of a call the questions of its function, while the function runs.

use std::future::Future;
use std::pin::pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::protocol::{self, WorkerQuestion};
use crate::call::ToolContext;

/// Questions of one call that may wait for their turn.
const MAX_WAITING: usize = 64;

/// The channel for the questions of one call, from the worker's messages to the call.
pub(super) fn question_channel() -> (Sender<WorkerQuestion>, Receiver<WorkerQuestion>) {
    mpsc::channel(MAX_WAITING)
}

/// Waits for the end of the call with this id in its worker, and answers its questions meanwhile.
pub(super) async fn answer_until<T>(
    end: impl Future<Output = T>,
    (id, mut asked): (u64, Receiver<WorkerQuestion>),
    context: &ToolContext,
    requests: &Sender<Vec<u8>>,
) -> T {
    let ask = async |asked: WorkerQuestion| {
        let (schema, name) = (asked.schema, asked.name.as_deref());
        let answer = context.ask(&asked.message, schema, name).await;
        protocol::answer_message(id, asked.question, &answer)
    };
    let (mut end, mut answers) = (pin!(end), FuturesUnordered::new());
    loop {
        tokio::select! {
            biased;
            end = &mut end => return end,
            Some(question) = asked.recv() => answers.push(ask(question)),
            Some(line) = answers.next() => {
                // If the worker has ended, the call learns that from its end.
                let _ = requests.send(line).await;
            }
        }
    }
}
