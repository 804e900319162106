//! Leads progress messages from a running tool to its listening client.
//!
//! A sender never waits for the listener. A slow listener misses the oldest events, and the next progress event has
//! their number. Without a listener there is no channel, so progress costs nothing.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};

use super::definition::ToolName;
use super::invocation::{Invocation, InvocationId};

/// Maximum number of events that wait for a slow listener.
const WAITING: usize = 64;
/// Maximum length of a text inside a tool's data, in bytes. With 64 events of at most 16 KiB, a listener holds at most
/// 1 MiB.
const LONGEST_TEXT: usize = 4 << 10;
/// Maximum size of the data of one progress event, in bytes of JSON.
const LARGEST: usize = 16 << 10;

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
    /// Number of events that this stream has left out before this one, plus one if this event's data was too large.
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
        let (sender, events) = tokio::sync::broadcast::channel(WAITING);
        (Self(sender), Listener { events, missed: 0 })
    }

    /// Whether the listener still exists.
    pub fn is_heard(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Sends an event that is not progress of a tool. Its size is not bounded and secrets are not removed, so it is for
    /// the service's own data only.
    pub fn tell(&self, name: &'static str, data: &impl Serialize) {
        if self.is_heard()
            && let Ok(data) = to_raw_value(data)
        {
            self.send(Event::Named(name, data.into()));
        }
    }

    fn send(&self, event: Event) {
        // An error means that the listener is gone, so there is nothing to do.
        let _ = self.0.send(event);
    }
}

impl Listener {
    /// The next event; `None` when all sinks are dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.events.recv().await {
                Ok(event) => return Some(self.heard(event)),
                Err(RecvError::Lagged(missed)) => self.missed += missed,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The next event, if one is waiting.
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            match self.events.try_recv() {
                Ok(event) => return Some(self.heard(event)),
                Err(TryRecvError::Lagged(missed)) => self.missed += missed,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    fn heard(&mut self, mut event: Event) -> Event {
        if let Event::Progress(progress) = &mut event {
            progress.missed += std::mem::take(&mut self.missed);
        }
        event
    }
}

/// Removes secrets from progress data.
pub type Clean = Box<dyn Fn(&mut Value) + Send + Sync>;

/// The sink of one call, as its tool sees it.
#[derive(Clone)]
pub struct Reporter(Arc<Inner>);

struct Inner {
    sink: ProgressSink,
    invocation_id: InvocationId,
    tool_use_id: Option<Arc<str>>,
    tool: ToolName,
    clean: Clean,
}

impl Reporter {
    /// Reports to the call's sink, after `clean` has removed secrets. `None` if the call has no sink.
    pub fn of(invocation: &Invocation, clean: impl FnOnce() -> Clean) -> Option<Self> {
        let sink = invocation.progress.clone()?;
        Some(Self(Arc::new(Inner {
            sink,
            invocation_id: invocation.id,
            tool_use_id: invocation.tool_use_id.clone(),
            tool: invocation.tool.clone(),
            clean: clean(),
        })))
    }

    pub(super) fn is_heard(&self) -> bool {
        self.0.sink.is_heard()
    }

    /// Sends an event. `missed` is the number of events that the tool itself has left out before.
    pub(super) fn report(&self, mut data: Value, mut missed: u64) {
        let Inner { sink, invocation_id, tool_use_id, tool, clean } = &*self.0;
        // The order matters: cutting first could leave half a secret, which is no longer found.
        clean(&mut data);
        shorten(&mut data);
        let data = to_raw_value(&data).unwrap_or_default();
        let data = if data.get().len() <= LARGEST {
            data
        } else {
            missed += 1;
            Box::default()
        };
        sink.send(Event::Progress(Progress {
            invocation_id: *invocation_id,
            tool_use_id: tool_use_id.clone(),
            tool: tool.clone(),
            data: data.into(),
            missed,
        }));
    }
}

/// Cuts long texts.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => super::redact::shorten(text, LONGEST_TEXT),
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(object) => object.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::json::JsonObject;
    use super::super::{Caller, ToolName};
    use super::*;

    fn reporter() -> (Reporter, Listener) {
        let (sink, listener) = ProgressSink::channel();
        let tool = ToolName::parse("t").unwrap();
        let caller = Arc::new(Caller::anonymous());
        let mut invocation = Invocation::new(tool, JsonObject::new(), caller, jiff::Timestamp::UNIX_EPOCH);
        invocation.progress = Some(sink);
        (Reporter::of(&invocation, || Box::new(|_| {})).unwrap(), listener)
    }

    fn next(listener: &mut Listener) -> Value {
        match listener.try_next().unwrap() {
            Event::Progress(progress) => json!(progress),
            Event::Named(name, data) => json!({name: data}),
        }
    }

    #[test]
    fn a_slow_listener_misses_the_oldest_and_is_told_how_many() {
        let (reporter, mut listener) = reporter();
        for n in 0..WAITING + 10 {
            reporter.report(json!(n), 0);
        }
        let first = next(&mut listener);
        assert_eq!((&first["data"], &first["missed"]), (&json!(10), &json!(10)));
        let second = next(&mut listener);
        assert_eq!((&second["data"], second.get("missed")), (&json!(11), None));
        for _ in 2..WAITING {
            next(&mut listener);
        }
        assert!(listener.try_next().is_none());
        reporter.report(json!("later"), 3);
        assert_eq!(next(&mut listener)["missed"], 3, "what the tool left out itself");
    }

    #[test]
    fn what_is_missed_is_said_with_the_next_progress_whatever_comes_between() {
        let (reporter, mut listener) = reporter();
        (0..WAITING).for_each(|n| reporter.report(json!(n), 0));
        (0..WAITING).for_each(|n| reporter.0.sink.tell("call_result", &n));
        reporter.report(json!("last"), 0);
        assert_eq!(next(&mut listener), json!({"call_result": 1}));
        (2..WAITING).for_each(|n| assert_eq!(next(&mut listener), json!({"call_result": n})));
        assert_eq!(next(&mut listener)["missed"], WAITING + 1);
    }

    #[test]
    fn much_data_is_cut_or_left_out() {
        let (reporter, mut listener) = reporter();
        reporter.report(json!({"text": ["é".repeat(LONGEST_TEXT)], "n": 1}), 0);
        let cut = next(&mut listener);
        let text = cut["data"]["text"][0].as_str().unwrap();
        assert!(text.ends_with(&format!("é[… {LONGEST_TEXT} bytes left out …]")), "{text}");
        assert_eq!((&cut["data"]["n"], cut.get("missed")), (&json!(1), None));
        reporter.report(json!(vec![1; LARGEST]), 0);
        let left_out = next(&mut listener);
        assert_eq!((&left_out["data"], &left_out["missed"]), (&Value::Null, &json!(1)));
    }

    #[tokio::test]
    async fn who_has_gone_is_told_nothing() {
        let (reporter, listener) = reporter();
        assert!(reporter.is_heard());
        drop(listener);
        assert!(!reporter.is_heard());
        reporter.report(json!(1), 0);
        let (sink, mut listener) = ProgressSink::channel();
        drop(sink);
        assert!(listener.next().await.is_none());
    }
}
