//! A model's message whose results are held until all its calls have ended (`waiting: hold`).
//!
//! A provider takes one result for each call. So the results of a message with a waiting call are
//! kept with that call, and `resume` answers them all together.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolcrib_dialect::{Message, RawArguments};

use super::ended_call::EndedCall;
use crate::call::InvocationId;
use crate::catalog::registry::Registry;
use crate::ledger::{self, ApprovalMark};

/// What is stored with each waiting call of a held message.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stored {
    /// The first waiting call has the message.
    Message(HeldMessage),
    /// Another waiting call names the first one.
    PartOf(InvocationId),
}

/// A message and the results that are there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HeldMessage {
    /// The message without arguments: they are not needed again, and may be secret.
    pub(super) message: Message,
    /// A reminder of how to write calls.
    pub(super) reminder: Option<String>,
    /// One for each call, in order.
    pub(super) calls: Vec<HeldCall>,
}

/// One call of a held message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HeldCall {
    /// The call waits for a person.
    Waiting(InvocationId),
    /// The call had ended when the message was held.
    Ended(Box<EndedCall>),
}

impl HeldMessage {
    /// A message with its calls.
    pub(super) fn new(message: &Message, reminder: Option<String>, calls: Vec<HeldCall>) -> Self {
        let mut message = message.clone();
        for call in message.calls.iter_mut().flatten() {
            call.arguments = RawArguments::Missing;
        }
        Self {
            message,
            reminder,
            calls,
        }
    }

    /// The calls that waited when the message was held.
    pub(super) fn waiting(&self) -> impl Iterator<Item = InvocationId> {
        self.calls.iter().filter_map(|call| match call {
            HeldCall::Waiting(id) => Some(*id),
            HeldCall::Ended(_) => None,
        })
    }

    /// Stores the message with its waiting calls. `is_memory_only`: a result must not be stored, so
    /// this process holds the message in memory.
    pub(super) async fn store(
        self,
        registry: &Registry,
        is_memory_only: bool,
    ) -> Result<(), ledger::Error> {
        let ids: Vec<InvocationId> = self.waiting().collect();
        let Some(first) = ids.first().copied() else {
            return Ok(());
        };
        let shared = registry.shared();
        let mut stored = Stored::Message(self);
        for id in ids {
            // Serialization cannot fail: all keys are texts.
            let text: Arc<str> = serde_json::to_string(&stored).unwrap_or_default().into();
            if is_memory_only {
                shared.waiting_calls.hold(id, text);
            } else {
                let mark = ApprovalMark::Message(text);
                shared.ledger.mark_approval(id, mark).await?;
            }
            stored = Stored::PartOf(first);
        }
        Ok(())
    }

    /// The held message of a call; `None` if there is none.
    pub(super) async fn find(
        registry: &Registry,
        id: InvocationId,
    ) -> Result<Option<Self>, ledger::Error> {
        let mut id = id;
        loop {
            let shared = registry.shared();
            let text = match shared.waiting_calls.held(id) {
                Some(text) => Some(text),
                None => shared.ledger.approval_message(id).await?,
            };
            // A newer version may have written another form.
            match text.and_then(|text| serde_json::from_str(&text).ok()) {
                None => return Ok(None),
                Some(Stored::Message(message)) => return Ok(Some(message)),
                Some(Stored::PartOf(first)) if first == id => return Ok(None),
                Some(Stored::PartOf(first)) => id = first,
            }
        }
    }
}
