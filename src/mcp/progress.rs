//! Forwards a tool's progress to the client, as `notifications/progress`.
//!
//! This never slows the tool down, because the call runs in a task of its own. If a client reads
//! slowly, the oldest events are dropped. The next notification has their number
//! (`toolcrib/missed`).

use rmcp::model::{MetaObject, NotificationMetaObject, ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::call::{Event, Listener, Progress};

/// Forwards the progress of one call to one client.
pub(super) struct ProgressForwarder {
    listener: Listener,
    peer: Peer<RoleServer>,
    /// `None`: the client has not requested progress.
    token: Option<ProgressToken>,
    numbers: ProgressNumbers,
    /// Tripped when the call begins to wait for approval.
    waits: CancellationToken,
}

/// The progress numbers of one call. They must always increase (MCP, Progress).
#[derive(Default)]
struct ProgressNumbers {
    last: Option<f64>,
    /// The tool has sent numbers of its own, so they are used and not a count.
    has_tool_numbers: bool,
}

impl ProgressForwarder {
    pub(super) fn new(
        listener: Listener,
        peer: Peer<RoleServer>,
        token: Option<ProgressToken>,
        waits: CancellationToken,
    ) -> Self {
        Self {
            listener,
            peer,
            token,
            numbers: ProgressNumbers::default(),
            waits,
        }
    }

    /// Forwards events until `ended`, including those that were sent before `ended`.
    pub(super) async fn forward_until(&mut self, ended: &CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                event = self.listener.next() => event,
                () = ended.cancelled() => return,
            };
            let Some(event) = event else { return };
            if !self.forward(event).await {
                return;
            }
        }
    }

    async fn forward(&mut self, event: Event) -> bool {
        let (progress, token) = match (event, &self.token) {
            (Event::Progress(progress), Some(token)) => (progress, token),
            (Event::Named("waiting", _), _) => {
                self.waits.cancel();
                return true;
            }
            _ => return true,
        };
        let notification = self.numbers.notification(token, &progress);
        self.peer.notify_progress(notification).await.is_ok()
    }
}

impl ProgressNumbers {
    fn notification(
        &mut self,
        token: &ProgressToken,
        progress: &Progress,
    ) -> ProgressNotificationParam {
        let data: Value = serde_json::from_str(progress.data.get()).unwrap_or_default();
        let number = |name: &str| data.get(name).and_then(Value::as_f64);
        let mut notification =
            ProgressNotificationParam::new(token.clone(), self.next_number(number("progress")));
        notification.total = number("total");
        notification.message = match (&data, data.get("message")) {
            (_, Some(Value::String(message))) => Some(message.clone()),
            (Value::String(text), _) => Some(text.clone()),
            (Value::Null, _) => None,
            // An object with nothing but the numbers needs no message.
            (Value::Object(fields), None) if number("progress").is_some() && fields.len() <= 2 => {
                None
            }
            (other, _) => Some(other.to_string()),
        };
        if progress.missed > 0 {
            let mut meta = MetaObject::new();
            meta.insert("toolcrib/missed".into(), json!(progress.missed));
            notification.meta = Some(NotificationMetaObject(meta));
        }
        notification
    }

    /// The next number: the tool's own, raised just above the last number if it is not greater;
    /// else a count.
    fn next_number(&mut self, of_tool: Option<f64>) -> f64 {
        self.has_tool_numbers |= of_tool.is_some();
        let next = match (self.last, of_tool) {
            (None, number) => number.unwrap_or(1.0),
            (Some(last), Some(number)) if number > last => number,
            (Some(last), None) if !self.has_tool_numbers => last + 1.0,
            (Some(last), _) => last.next_up(),
        };
        self.last = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_numbers_always_increase() {
        let mut steps = ProgressNumbers::default();
        assert_eq!(
            [None, None, None].map(|number| steps.next_number(number)),
            [1.0, 2.0, 3.0]
        );
        let mut steps = ProgressNumbers::default();
        let sent = [
            Some(0.0),
            Some(50.0),
            Some(50.0),
            None,
            Some(100.0),
            Some(2.0),
        ]
        .map(|number| steps.next_number(number));
        assert!(sent.windows(2).all(|pair| pair[0] < pair[1]), "{sent:?}");
        assert_eq!((sent[0], sent[1], sent[4]), (0.0, 50.0, 100.0));
    }
}
