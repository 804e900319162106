//! Tracks the requests whose answers have not been written.

use std::collections::HashMap;
use std::sync::Arc;

use rmcp::model::{CancelledNotification, ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId};
use tokio::sync::watch;

/// Most unanswered requests. Beyond it, nothing more is read from a client that does not read its answers.
const MOST: usize = 1024;
/// Most subscriptions among them. A subscription does not end by itself, so subscriptions must not use up the room of
/// other requests.
const MOST_SUBSCRIPTIONS: usize = 64;

/// The requests without an answer. Clones share them.
#[derive(Clone)]
pub(super) struct Pending(Arc<watch::Sender<HashMap<RequestId, AnswerTime>>>);

/// When a request ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerTime {
    /// When its work is done.
    ByItself,
    /// When its client cancels it.
    WhenTold,
}

impl Default for Pending {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(HashMap::new())))
    }
}

impl Pending {
    /// Waits until there is room for one more.
    pub(super) async fn room(&self) {
        let _ = self.0.subscribe().wait_for(|pending| pending.len() < MOST).await;
    }

    /// Waits until all requests that end by themselves have been answered.
    pub(super) async fn answered(&self) {
        let _ =
            self.0.subscribe().wait_for(|pending| !pending.values().any(|ends| *ends == AnswerTime::ByItself)).await;
    }

    /// Whether a request with this id has not been answered.
    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.0.borrow().contains_key(id)
    }

    /// Records a message from the client.
    ///
    /// # Errors
    /// Why the message is a request that must be refused.
    pub(super) fn came(&self, message: &ClientJsonRpcMessage) -> Result<(), &'static str> {
        match message {
            ClientJsonRpcMessage::Request(asked) => {
                let ends = match asked.request {
                    ClientRequest::SubscriptionsListenRequest(_) => AnswerTime::WhenTold,
                    _ => AnswerTime::ByItself,
                };
                let mut refused = None;
                self.0.send_if_modified(|pending| {
                    let subscriptions = || pending.values().filter(|ends| **ends == AnswerTime::WhenTold).count();
                    if pending.contains_key(&asked.id) {
                        refused = Some("a request with this id has not been answered yet: each has an id of its own");
                    } else if ends == AnswerTime::WhenTold && subscriptions() >= MOST_SUBSCRIPTIONS {
                        refused = Some("64 subscriptions are open: cancel one first");
                    } else {
                        pending.insert(asked.id.clone(), ends);
                    }
                    refused.is_none()
                });
                refused.map_or(Ok(()), Err)
            }
            ClientJsonRpcMessage::Notification(said) => {
                // rmcp does not answer a cancelled request.
                if let ClientNotification::CancelledNotification(CancelledNotification { params, .. }) =
                    &said.notification
                    && let Some(id) = &params.request_id
                {
                    self.gone(id);
                }
                Ok(())
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => Ok(()),
        }
    }

    /// Forgets all requests, because rmcp has ended and will not answer them.
    pub(super) fn give_up(&self) {
        self.0.send_modify(HashMap::clear);
    }

    /// Forgets a request: its answer was written, or never will be.
    pub(super) fn gone(&self, id: &RequestId) {
        self.0.send_modify(|pending| {
            pending.remove(id);
        });
    }
}
