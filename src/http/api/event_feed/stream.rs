//! The events of one subscriber. The work is done while the client reads, so a client that stops
//! reading costs nothing but its place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::resume::Resumed;
use crate::call::{Caller, InvocationId};
use crate::catalog::Catalog;
use crate::catalog::registry::Registry;
use crate::http::api::wire::InvocationView;
use crate::http::events::{HEARTBEAT, to_json_text};
use crate::ledger::Row;
use crate::sources::live::{LiveTools, SourceView};
use crate::text::changes::Changes;
use crate::tracking::events::{Cursor, Received, ServiceEvent, Subscription};

/// How often the state of the sources is compared with that of before.
const SOURCES_INTERVAL: Duration = Duration::from_secs(1);

/// The stream of one subscriber.
pub(super) struct EventStream {
    caller: Arc<Caller>,
    subscription: Subscription,
    /// The position of the last event.
    cursor: Cursor,
    /// What is sent before anything new. It is bounded, because nothing new is taken meanwhile.
    waiting: VecDeque<Waiting>,
    registry: Arc<Registry>,
    tool_changes: watch::Receiver<()>,
    tools: KnownTools,
    /// Sources are the operator's matter.
    sources: Option<KnownSources>,
    source_ticks: Interval,
    last_sent: Instant,
}

enum Waiting {
    /// The end of a call, with the position at which the client had begun.
    Resent(Arc<Row>, Cursor),
    /// From now on, this is the position.
    Position(Cursor),
    Ready(&'static str, String),
}

/// A call in an event.
#[derive(Serialize)]
struct CallEvent {
    #[serde(flatten)]
    call: InvocationView,
    /// The earlier call whose answer was repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed_from: Option<InvocationId>,
}

impl EventStream {
    /// A stream that begins at `begin`, the position of the subscription.
    pub(super) fn new(
        caller: Arc<Caller>,
        subscription: Subscription,
        begin: Cursor,
        registry: &Arc<Registry>,
        live: Arc<LiveTools>,
    ) -> Self {
        let tool_changes = registry.watch_changes();
        let tools = KnownTools::new(&registry.catalog(), &caller);
        let sources = caller.admin.then(|| KnownSources::new(live));
        let mut source_ticks = interval(SOURCES_INTERVAL);
        source_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            caller,
            subscription,
            cursor: begin,
            waiting: [Waiting::Position(begin)].into(),
            registry: registry.clone(),
            tool_changes,
            tools,
            sources,
            source_ticks,
            last_sent: Instant::now(),
        }
    }

    /// Sends these calls first. Until all are sent, the position stays that of `cursor`.
    pub(super) fn resend(&mut self, cursor: Cursor, resumed: Resumed) {
        let Resumed { rows, gap } = resumed;
        for row in rows.into_iter().rev() {
            self.waiting.push_front(Waiting::Resent(row, cursor));
        }
        if let Some(since) = gap {
            let missed = missed("resume_limit", None, since);
            self.waiting.push_front(Waiting::Ready("missed", missed));
            self.waiting.push_front(Waiting::Position(cursor));
        }
    }

    /// The next event.
    pub(super) async fn next(&mut self) -> sse::Event {
        let event = loop {
            if let Some(event) = self.next_waiting() {
                break event;
            }
            tokio::select! {
                received = self.subscription.next() => {
                    if let Some(event) = self.take_event(received) {
                        break event;
                    }
                }
                Ok(()) = self.tool_changes.changed() => self.compare_tools(),
                _ = self.source_ticks.tick(), if self.sources.is_some() => self.compare_sources(),
                () = sleep_until(self.last_sent + HEARTBEAT) => break self.heartbeat(),
            }
        };
        self.last_sent = Instant::now();
        event
    }

    fn next_waiting(&mut self) -> Option<sse::Event> {
        Some(match self.waiting.pop_front()? {
            Waiting::Resent(row, cursor) => {
                self.cursor = cursor;
                self.event("invocation.ended", call_json(&row, None))
            }
            Waiting::Position(cursor) => {
                self.cursor = cursor;
                self.comment("position")
            }
            Waiting::Ready(name, data) => self.event(name, data),
        })
    }

    fn take_event(&mut self, received: Received) -> Option<sse::Event> {
        let published = match received {
            Received::Event(published) => published,
            Received::Missed(events) => {
                // The number is that of the events of all callers.
                let events = self.caller.admin.then_some(events);
                let missed = missed("slow_reader", events, self.cursor.ended_since);
                return Some(self.event("missed", missed));
            }
            Received::Nothing => return None,
        };
        self.cursor = published.cursor;
        let event = published.event;
        if !event.is_visible_to(&self.caller) {
            return None;
        }
        let data = match &event {
            ServiceEvent::Started(row) => call_json(row, None),
            ServiceEvent::Ended { row, replayed_from } => call_json(row, *replayed_from),
            ServiceEvent::Progress { progress, .. } => json_text(progress),
            ServiceEvent::Approval(notice) => json_text(&**notice),
            ServiceEvent::Gap { since } => missed("replicas", None, *since),
        };
        Some(self.event(event.name(), data))
    }

    /// A comment with the current position, so that a client that is silent for long need not read
    /// the ledger from its last event on.
    fn heartbeat(&mut self) -> sse::Event {
        // The position is that of this stream only if no event waits after it was read.
        let cursor = self.subscription.cursor();
        let received = self.subscription.try_next();
        if matches!(received, Received::Nothing) {
            self.cursor = cursor;
        }
        self.take_event(received)
            .unwrap_or_else(|| self.comment("heartbeat"))
    }

    fn compare_tools(&mut self) {
        let catalog = self.registry.catalog();
        if let Some(changes) = self.tools.update(&catalog, &self.caller) {
            self.push("tools.changed", json_text(&changes));
        }
    }

    fn compare_sources(&mut self) {
        let changes = self.sources.as_mut().map(KnownSources::update);
        for change in changes.into_iter().flatten() {
            let data = match change {
                SourceChange::Now(source) => json_text(&source),
                SourceChange::Removed(name) => {
                    json_text(&json!({"name": name, "state": "removed"}))
                }
            };
            self.push("source.changed", data);
        }
    }

    fn push(&mut self, name: &'static str, data: String) {
        self.waiting.push_back(Waiting::Ready(name, data));
    }

    fn event(&self, name: &'static str, data: String) -> sse::Event {
        sse::Event::default()
            .id(self.cursor.to_string())
            .event(name)
            .data(data)
    }

    fn comment(&self, text: &'static str) -> sse::Event {
        sse::Event::default()
            .comment(text)
            .id(self.cursor.to_string())
    }
}

fn call_json(row: &Row, replayed_from: Option<InvocationId>) -> String {
    let call = InvocationView::from(row);
    json_text(&CallEvent {
        call,
        replayed_from,
    })
}

/// The data of `missed`: why, how many events are missing, if that is known, and since when ends of
/// calls may be missing.
fn missed(reason: &str, events: Option<u64>, since: Timestamp) -> String {
    json_text(&json!({"reason": reason, "events": events, "since": since}))
}

fn json_text(value: &impl Serialize) -> String {
    to_json_text(value).get().to_owned()
}

/// What decides whether a tool has changed: the hash of its definition, and whether it is enabled.
type ToolState = (String, bool);

/// The tools that a subscriber knows.
struct KnownTools(BTreeMap<String, ToolState>);

impl KnownTools {
    fn new(catalog: &Catalog, caller: &Caller) -> Self {
        let tools = catalog.tools_for(caller).into_iter().map(|entry| {
            let state = (entry.definition_hash.clone(), entry.is_enabled());
            (entry.definition.name.to_string(), state)
        });
        Self(tools.collect())
    }

    /// How the tools of the caller differ from those of before; `None` if they do not. It is the data of
    /// `tools.changed`.
    fn update(&mut self, catalog: &Catalog, caller: &Caller) -> Option<Changes> {
        let before = std::mem::replace(self, Self::new(catalog, caller));
        let changes = Changes::between(before.named(), self.named(), |one, other| one == other);
        (!changes.is_empty()).then_some(changes)
    }

    fn named(&self) -> impl Iterator<Item = (&str, &ToolState)> {
        self.0.iter().map(|(name, state)| (name.as_str(), state))
    }
}

/// The sources that a subscriber knows.
struct KnownSources {
    live: Arc<LiveTools>,
    known: Vec<SourceView>,
}

/// How a source has changed.
enum SourceChange {
    /// The source is new, or has another state.
    Now(Box<SourceView>),
    /// There is no such source any more.
    Removed(Arc<str>),
}

impl KnownSources {
    fn new(live: Arc<LiveTools>) -> Self {
        let known = live.sources();
        Self { live, known }
    }

    /// The sources that differ from those of before.
    fn update(&mut self) -> Vec<SourceChange> {
        let now = self.live.sources();
        let before = std::mem::take(&mut self.known);
        let names: BTreeSet<&Arc<str>> = now.iter().map(|source| &source.name).collect();
        let gone = before.iter().filter(|old| !names.contains(&old.name));
        let gone = gone.map(|old| SourceChange::Removed(old.name.clone()));
        let changed = now.iter().filter(|source| !before.contains(source));
        let changed = changed.map(|source| SourceChange::Now(Box::new(source.clone())));
        let changes = gone.chain(changed).collect();
        self.known = now;
        changes
    }
}
