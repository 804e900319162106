//! Leads progress messages from a running tool to its listening client.
//!
//! A sender never waits for the listener. A slow listener misses the oldest events, and the next
//! progress event has their number. Without a listener there is no channel, so progress costs
//! nothing.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};

use super::definition::ToolName;
use super::invocation_id::InvocationId;

/// Maximum number of events that wait for a slow listener.
const CHANNEL_CAPACITY: usize = 64;
/// Maximum length of a text inside a tool's data, in bytes. With 64 events of at most 16 KiB, a
/// listener holds at most 1 MiB.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Maximum size of the data of one progress event, in bytes of JSON.
const MAX_DATA_BYTES: usize = 16 << 10;

/// One progress event of a tool.
#[derive(Debug, Clone, Serialize)]
pub struct Progress {
    /// The call that reports.
    pub invocation_id: InvocationId,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// The tool that runs.
    pub tool: ToolName,
    /// The tool's data; null if it was too large.
    pub data: Arc<RawValue>,
    /// Number of events that this stream has left out before this one, plus one if this event's
    /// data was too large.
    #[serde(skip_serializing_if = "is_zero")]
    pub missed: u64,
}

fn is_zero(missed: &u64) -> bool {
    *missed == 0
}

/// One event for the listener.
#[derive(Debug, Clone)]
pub enum Event {
    /// Progress of a tool.
    Progress(Progress),
    /// Any other event, under its own name.
    Named(&'static str, Arc<RawValue>),
}

/// The sending side. Several calls may share one sink. Clones lead to the same listener.
#[derive(Debug, Clone)]
pub struct ProgressSink(Sender<Event>);

/// The receiving side. When it is dropped, senders send nothing more.
#[derive(Debug)]
pub struct Listener {
    events: Receiver<Event>,
    missed: u64,
}

impl ProgressSink {
    /// Makes a sink and its listener.
    pub fn channel() -> (Self, Listener) {
        let (sender, events) = tokio::sync::broadcast::channel(CHANNEL_CAPACITY);
        (Self(sender), Listener { events, missed: 0 })
    }

    /// Whether the listener still exists.
    pub fn has_listener(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Sends an event that is not progress of a tool. Its size is not bounded and secrets are not
    /// removed, so it is for the service's own data only.
    pub fn send_event(&self, name: &'static str, data: &impl Serialize) {
        if self.has_listener()
            && let Ok(data) = to_raw_value(data)
        {
            self.send(Event::Named(name, data.into()));
        }
    }

    /// Sends an event.
    pub(super) fn send(&self, event: Event) {
        // An error means that the listener is gone, so there is nothing to do.
        let _ = self.0.send(event);
    }
}

impl Listener {
    /// The next event; `None` when all sinks are dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.events.recv().await {
                Ok(event) => return Some(self.add_missed(event)),
                Err(RecvError::Lagged(missed)) => self.missed += missed,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The next event, if one is waiting.
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            match self.events.try_recv() {
                Ok(event) => return Some(self.add_missed(event)),
                Err(TryRecvError::Lagged(missed)) => self.missed += missed,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    fn add_missed(&mut self, mut event: Event) -> Event {
        if let Event::Progress(progress) = &mut event {
            progress.missed += std::mem::take(&mut self.missed);
        }
        event
    }
}

/// Learns of the progress of all calls.
pub trait ProgressObserver: Send + Sync {
    /// Whether it wants to know of progress now.
    fn is_listening(&self) -> bool;

    /// Takes the progress of a call of this caller. It must not wait.
    fn observe_progress(&self, caller: &Arc<str>, progress: Progress);
}

impl Progress {
    /// An event with this data, which holds no secrets any more. Long texts are cut, and data that
    /// is still too large is left out.
    pub(super) fn new(
        (invocation_id, tool): (InvocationId, ToolName),
        tool_use_id: Option<Arc<str>>,
        mut data: Value,
        mut missed: u64,
    ) -> Self {
        shorten_texts(&mut data);
        let data = to_raw_value(&data).unwrap_or_default();
        let data = if data.get().len() <= MAX_DATA_BYTES {
            data
        } else {
            missed += 1;
            Box::default()
        };
        Self {
            invocation_id,
            tool_use_id,
            tool,
            data: data.into(),
            missed,
        }
    }
}

/// Cuts long texts.
fn shorten_texts(value: &mut Value) {
    match value {
        Value::String(text) => super::redact::shorten_text(text, MAX_TEXT_BYTES),
        Value::Array(items) => items.iter_mut().for_each(shorten_texts),
        Value::Object(object) => object.values_mut().for_each(shorten_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(sink: &ProgressSink, data: Value, missed: u64) {
        let call = (InvocationId::new(), ToolName::parse("t").unwrap());
        sink.send(Event::Progress(Progress::new(call, None, data, missed)));
    }

    fn next(listener: &mut Listener) -> Value {
        match listener.try_next().unwrap() {
            Event::Progress(progress) => json!(progress),
            Event::Named(name, data) => json!({name: data}),
        }
    }

    #[test]
    fn slow_listener_learns_the_missed_count() {
        let (sink, mut listener) = ProgressSink::channel();
        for n in 0..CHANNEL_CAPACITY + 10 {
            report(&sink, json!(n), 0);
        }
        let first = next(&mut listener);
        assert_eq!((&first["data"], &first["missed"]), (&json!(10), &json!(10)));
        let second = next(&mut listener);
        assert_eq!((&second["data"], second.get("missed")), (&json!(11), None));
        for _ in 2..CHANNEL_CAPACITY {
            next(&mut listener);
        }
        assert!(listener.try_next().is_none());
        report(&sink, json!("later"), 3);
        assert_eq!(
            next(&mut listener)["missed"],
            3,
            "what the tool left out itself"
        );
    }

    #[test]
    fn missed_count_waits_for_progress_events() {
        let (sink, mut listener) = ProgressSink::channel();
        (0..CHANNEL_CAPACITY).for_each(|n| report(&sink, json!(n), 0));
        (0..CHANNEL_CAPACITY).for_each(|n| sink.send_event("call_result", &n));
        report(&sink, json!("last"), 0);
        assert_eq!(next(&mut listener), json!({"call_result": 1}));
        (2..CHANNEL_CAPACITY)
            .for_each(|n| assert_eq!(next(&mut listener), json!({"call_result": n})));
        assert_eq!(next(&mut listener)["missed"], CHANNEL_CAPACITY + 1);
    }

    #[test]
    fn large_progress_data_is_cut_or_dropped() {
        let (sink, mut listener) = ProgressSink::channel();
        report(
            &sink,
            json!({"text": ["é".repeat(MAX_TEXT_BYTES)], "n": 1}),
            0,
        );
        let cut = next(&mut listener);
        let text = cut["data"]["text"][0].as_str().unwrap();
        assert!(
            text.ends_with(&format!("é[… {MAX_TEXT_BYTES} bytes left out …]")),
            "{text}"
        );
        assert_eq!((&cut["data"]["n"], cut.get("missed")), (&json!(1), None));
        report(&sink, json!(vec![1; MAX_DATA_BYTES]), 0);
        let left_out = next(&mut listener);
        assert_eq!(
            (&left_out["data"], &left_out["missed"]),
            (&Value::Null, &json!(1))
        );
    }

    #[tokio::test]
    async fn dropped_listener_gets_no_events() {
        let (sink, listener) = ProgressSink::channel();
        assert!(sink.has_listener());
        drop(listener);
        assert!(!sink.has_listener());
        report(&sink, json!(1), 0);
        let (sink, mut listener) = ProgressSink::channel();
        drop(sink);
        assert!(listener.next().await.is_none());
    }
}
