//! Requests whose answers have not been written.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rmcp::model::{CancelledNotification, ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId};
use tokio::sync::watch;

/// Most of them. A client that asks on without reading answers is read no further.
const MOST: usize = 1024;

/// See the module. Clones share it.
#[derive(Clone)]
pub(super) struct Pending(Arc<watch::Sender<HashMap<RequestId, Ends>>>);

/// When a request is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// When it has been dealt with.
    ByItself,
    /// When its client wants no more of it.
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

    /// Waits until all have been answered that ever will be by themselves.
    pub(super) async fn answered(&self) {
        let _ = self.0.subscribe().wait_for(|pending| !pending.values().any(|ends| *ends == Ends::ByItself)).await;
    }

    /// A message came. `false`: it is a request with the id of one that has not been answered.
    pub(super) fn came(&self, message: &ClientJsonRpcMessage) -> bool {
        match message {
            ClientJsonRpcMessage::Request(asked) => {
                let ends = match asked.request {
                    ClientRequest::SubscriptionsListenRequest(_) => Ends::WhenTold,
                    _ => Ends::ByItself,
                };
                self.0.send_if_modified(|pending| match pending.entry(asked.id.clone()) {
                    Entry::Occupied(_) => false,
                    Entry::Vacant(place) => {
                        place.insert(ends);
                        true
                    }
                })
            }
            ClientJsonRpcMessage::Notification(said) => {
                // Such a request is not answered any more.
                if let ClientNotification::CancelledNotification(CancelledNotification { params, .. }) =
                    &said.notification
                    && let Some(id) = &params.request_id
                {
                    self.gone(id);
                }
                true
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => true,
        }
    }

    /// Nobody is there any more who would answer.
    pub(super) fn give_up(&self) {
        self.0.send_modify(HashMap::clear);
    }

    /// A request's answer was written, or never will be.
    pub(super) fn gone(&self, id: &RequestId) {
        self.0.send_modify(|pending| {
            pending.remove(id);
        });
    }
}
