//! Tracks the requests whose answers have not been written.

use std::collections::HashMap;
use std::sync::Arc;

use rmcp::model::{
    CancelledNotification, ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId,
};
use tokio::sync::watch;

/// Most unanswered requests. Beyond it, nothing more is read from a client that does not read its
/// answers.
const MAX_PENDING: usize = 1024;
/// Most subscriptions among them. A subscription does not end by itself, so subscriptions must not
/// use up the room of other requests.
const MAX_SUBSCRIPTIONS: usize = 64;

/// The requests without an answer. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Pending(Arc<watch::Sender<HashMap<RequestId, AnswerTime>>>);

/// When a request ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerTime {
    /// When its work is done.
    WhenDone,
    /// When its client cancels it.
    WhenCancelled,
}

impl Pending {
    /// Waits until there is room for one more.
    pub(super) async fn wait_for_room(&self) {
        let _ = self
            .0
            .subscribe()
            .wait_for(|pending| pending.len() < MAX_PENDING)
            .await;
    }

    /// Waits until all requests that end by themselves have been answered.
    pub(super) async fn wait_until_answered(&self) {
        let _ = self
            .0
            .subscribe()
            .wait_for(|pending| !pending.values().any(|ends| *ends == AnswerTime::WhenDone))
            .await;
    }

    /// Whether a request with this id has not been answered.
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        self.0.borrow().contains_key(id)
    }

    /// Records a message from the client.
    ///
    /// # Errors
    /// Why the message is a request that must be refused.
    pub(super) fn record(&self, message: &ClientJsonRpcMessage) -> Result<(), &'static str> {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let ends = match request.request {
                    ClientRequest::SubscriptionsListenRequest(_) => AnswerTime::WhenCancelled,
                    _ => AnswerTime::WhenDone,
                };
                let mut refused = None;
                self.0.send_if_modified(|pending| {
                    let subscriptions = || pending.values().filter(|ends| **ends == AnswerTime::WhenCancelled).count();
                    if pending.contains_key(&request.id) {
                        refused =
                            Some("a request with this id has not been answered yet: give each request its own id");
                    } else if ends == AnswerTime::WhenCancelled && subscriptions() >= MAX_SUBSCRIPTIONS {
                        refused = Some("64 subscriptions are open: cancel one first");
                    } else {
                        pending.insert(request.id.clone(), ends);
                    }
                    refused.is_none()
                });
                refused.map_or(Ok(()), Err)
            }
            ClientJsonRpcMessage::Notification(notification) => {
                // rmcp does not answer a cancelled request.
                if let ClientNotification::CancelledNotification(CancelledNotification {
                    params,
                    ..
                }) = &notification.notification
                    && let Some(id) = &params.request_id
                {
                    self.remove(id);
                }
                Ok(())
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => Ok(()),
        }
    }

    /// Forgets all requests, because rmcp has ended and will not answer them.
    pub(super) fn clear(&self) {
        self.0.send_modify(HashMap::clear);
    }

    /// Forgets a request: its answer was written, or never will be.
    pub(super) fn remove(&self, id: &RequestId) {
        self.0.send_modify(|pending| {
            pending.remove(id);
        });
    }
}
