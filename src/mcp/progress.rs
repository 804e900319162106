//! Forwards a tool's progress to the client, as `notifications/progress`.
//!
//! This never slows the tool down, because the call runs in a task of its own. If a client reads slowly, the oldest
//! events are dropped. The next notification has their number (`toolcrib/missed`).

use rmcp::model::{MetaObject, NotificationMetaObject, ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::call::{Event, Listener, Progress};

/// Forwards the progress of one call to one client.
pub(super) struct ProgressForwarder {
    listener: Listener,
    peer: Peer<RoleServer>,
    token: ProgressToken,
    steps: Steps,
}

/// The progress numbers of one call. They must always increase (MCP, Progress).
#[derive(Default)]
struct Steps {
    last: Option<f64>,
    /// The tool has sent numbers of its own, so they are used and not a count.
    of_tool: bool,
}

impl ProgressForwarder {
    pub(super) fn new(listener: Listener, peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        Self { listener, peer, token, steps: Steps::default() }
    }

    /// Forwards events until `ended`, including those that were sent before `ended`.
    pub(super) async fn tell(&mut self, ended: &CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                event = self.listener.next() => event,
                () = ended.cancelled() => return,
            };
            let Some(event) = event else { return };
            if !self.say(event).await {
                return;
            }
        }
    }

    async fn say(&mut self, event: Event) -> bool {
        let Event::Progress(progress) = event else { return true };
        let said = self.steps.said(&self.token, &progress);
        self.peer.notify_progress(said).await.is_ok()
    }
}

impl Steps {
    fn said(&mut self, token: &ProgressToken, progress: &Progress) -> ProgressNotificationParam {
        let data: Value = serde_json::from_str(progress.data.get()).unwrap_or_default();
        let number = |name: &str| data.get(name).and_then(Value::as_f64);
        let mut said = ProgressNotificationParam::new(token.clone(), self.next(number("progress")));
        said.total = number("total");
        said.message = match (&data, data.get("message")) {
            (_, Some(Value::String(message))) => Some(message.clone()),
            (Value::String(text), _) => Some(text.clone()),
            (Value::Null, _) => None,
            // An object with nothing but the numbers needs no message.
            (Value::Object(fields), None) if number("progress").is_some() && fields.len() <= 2 => None,
            (other, _) => Some(other.to_string()),
        };
        if progress.missed > 0 {
            let mut meta = MetaObject::new();
            meta.insert("toolcrib/missed".into(), json!(progress.missed));
            said.meta = Some(NotificationMetaObject(meta));
        }
        said
    }

    /// The next number: the tool's own, raised just above the last number if it is not greater; else a count.
    fn next(&mut self, of_tool: Option<f64>) -> f64 {
        self.of_tool |= of_tool.is_some();
        let next = match (self.last, of_tool) {
            (None, number) => number.unwrap_or(1.0),
            (Some(last), Some(number)) if number > last => number,
            (Some(last), None) if !self.of_tool => last + 1.0,
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
    fn numbers_only_grow() {
        let mut steps = Steps::default();
        assert_eq!([None, None, None].map(|number| steps.next(number)), [1.0, 2.0, 3.0]);
        let mut steps = Steps::default();
        let told = [Some(0.0), Some(50.0), Some(50.0), None, Some(100.0), Some(2.0)].map(|number| steps.next(number));
        assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
        assert_eq!((told[0], told[1], told[4]), (0.0, 50.0, 100.0));
    }
}
