//! One source of the running service: its state, and what readers see of it. Reading it never waits
//! for the source.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use super::active_listing::ActiveListing;
use super::states::{Attempt, Event, Fault, Lifecycle};
use super::tools::QuarantinedTool;
use crate::kinds::sandbox::SandboxReport;
use crate::manifest::ListedFinding;
use crate::sources::{Operations, SourceKind};

/// The shortest `retry_after` for a call of a tool whose source is not up yet.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whether a source's tools can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SourceState {
    /// The source has not been listed yet.
    Starting,
    /// The tools can be called.
    Up,
    /// The source could not be listed, or lost its names.
    Failed,
    /// The source was listed, but its workers or its connection are down.
    Down,
}

impl SourceState {
    /// The name of the state in responses.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A source of tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct SourceView {
    /// Name of the source.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// The kind of the source.
    pub kind: SourceKind,
    /// `starting`: not listed yet. `up`: its tools can be called. `failed`: it could not be listed,
    /// or lost its names. `down`: listed, but the process or server that runs its tools is not
    /// available now.
    #[schema(value_type = String)]
    pub state: SourceState,
    /// Tools that are served.
    pub tools: usize,
    /// Processes that are idle or busy.
    pub workers: usize,
    /// Processes that were replaced.
    pub replaced: u64,
    /// What the source does now, such as a start.
    #[schema(required)]
    pub doing: Option<String>,
    /// Why the source is not up. If it is up: what failed since it was listed, and which tools are
    /// still served.
    #[schema(required)]
    pub fault: Option<String>,
    /// Time of the fault.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub fault_at: Option<Timestamp>,
    /// Warnings about the tools of the source: tools that were left out, policies without effect.
    pub warnings: Vec<String>,
    /// Quarantined tools: their definitions differ from their pins. Their calls are refused as
    /// `definition_changed`.
    #[serde(rename = "stopped")]
    pub quarantined: Vec<QuarantinedTool>,
    /// What misleads models in the definitions of its tools: the warnings first, at most a hundred
    /// findings.
    pub findings: Vec<ListedFinding>,
    /// The operations of an OpenAPI document; null for other sources.
    #[schema(required, value_type = Option<Operations>)]
    pub operations: Option<Arc<Operations>>,
    /// The sandbox of its processes; null if it starts none, or has not started one yet.
    #[schema(required)]
    pub sandbox: Option<SandboxReport>,
}

/// A source of the running service. Its tasks, its readers and its unavailable tools share it. All
/// methods take a short lock.
pub(crate) struct LiveSource {
    pub(super) name: Arc<str>,
    kind: SourceKind,
    /// The source was added after the start, when the service was ready already. So no probe waits
    /// for it.
    added_late: bool,
    lifecycle: Mutex<Lifecycle>,
    /// The time of the source's own fault, as a clock time. It is kept so that the fault has the
    /// same time in each answer.
    fault_time: Mutex<Option<(Instant, Timestamp)>>,
}

/// What a change has added to the warnings of a source, so that each is logged once.
#[derive(Default)]
pub(super) struct Warnings {
    pub(super) texts: Vec<String>,
    pub(super) quarantined: Vec<QuarantinedTool>,
}

impl LiveSource {
    pub(super) fn new(name: &str, kind: SourceKind, added_late: bool) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            kind,
            added_late,
            lifecycle: Mutex::default(),
            fault_time: Mutex::default(),
        })
    }

    /// Reads the state.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Lifecycle) -> T) -> T {
        read(&self.lifecycle.lock())
    }

    /// Changes the state. Returns the warnings that are new.
    pub(super) fn apply(&self, event: Event) -> Warnings {
        let mut lifecycle = self.lifecycle.lock();
        let before = Warnings::of(&lifecycle);
        lifecycle.apply(event);
        Warnings::of(&lifecycle).without(&before)
    }

    /// Records a start, which begins at once or after `delay`. Returns the number of the start.
    pub(super) fn begin_start(&self, delay: Option<Duration>) -> u64 {
        let mut lifecycle = self.lifecycle.lock();
        lifecycle.apply(Event::StartBegun(delay));
        lifecycle.latest_start
    }

    /// The current status.
    pub(super) fn view(&self, now: Timestamp) -> SourceView {
        let lifecycle = self.lifecycle.lock();
        let served = lifecycle.served();
        let status = served.map(|served| served.active.source.status());
        let state = match &status {
            Some(status) if status.is_up => SourceState::Up,
            Some(_) => SourceState::Down,
            None if lifecycle.is_settled() => SourceState::Failed,
            None => SourceState::Starting,
        };
        let status = status.unwrap_or_default();
        let (fault, fault_at) = match lifecycle.fault() {
            Some(fault) => {
                let active = served.map(|served| &*served.active);
                (Some(describe_fault(fault, active)), Some(fault.at))
            }
            None => (
                status.fault,
                status.fault_at.map(|at| self.wall_clock_time(at, now)),
            ),
        };
        let doing = match &lifecycle.attempt {
            Attempt::Running(activity) => Some(activity.clone()),
            Attempt::Ended | Attempt::Waiting(_) | Attempt::Blocked => None,
        };
        let Warnings { texts, quarantined } = Warnings::of(&lifecycle);
        SourceView {
            name: self.name.clone(),
            kind: self.kind,
            state,
            tools: served.map_or(0, |served| {
                served
                    .active
                    .tools
                    .len()
                    .saturating_sub(served.rejected.len())
            }),
            workers: status.workers,
            replaced: lifecycle.replaced + status.replaced,
            doing,
            fault,
            fault_at,
            warnings: texts,
            quarantined,
            findings: served.map_or_else(Vec::new, |served| served.active.findings.shown.clone()),
            operations: status.operations,
            sandbox: status.sandbox,
        }
    }

    /// Why a tool of this source cannot be called, and when to call again. The text hides the fault
    /// itself: callers and models must not see paths and contents of files. The log and `/sources`
    /// have the fault, for the operator.
    pub(super) fn unavailable_reason(&self) -> (String, Option<Duration>) {
        let lifecycle = self.lifecycle.lock();
        let name = &self.name;
        let wait = match &lifecycle.attempt {
            Attempt::Waiting(until) => until.saturating_duration_since(Instant::now()),
            Attempt::Ended | Attempt::Running(_) | Attempt::Blocked => Duration::ZERO,
        };
        let why = match (lifecycle.fault(), self.kind) {
            (Some(_), SourceKind::Mcp) => {
                format!(
                    "the MCP server `{name}` could not be listed; the log and GET /sources say why"
                )
            }
            (None, SourceKind::Mcp) => format!("the MCP server `{name}` is still being listed"),
            (Some(_), _) => {
                format!("source `{name}` could not be loaded; the log and GET /sources say why")
            }
            (None, _) => format!("source `{name}` is still loading"),
        };
        (why, Some(wait.max(MIN_RETRY_AFTER)))
    }

    /// Whether it was listed or failed at least once.
    pub(in crate::sources::live) fn is_settled(&self) -> bool {
        self.lifecycle.lock().is_settled()
    }

    /// Whether the service waits for this source before it is ready.
    pub(super) fn is_awaited(&self) -> bool {
        !self.added_late && !self.is_settled()
    }

    fn wall_clock_time(&self, moment: Instant, now: Timestamp) -> Timestamp {
        let mut fault_time = self.fault_time.lock();
        match *fault_time {
            Some((known, at)) if known == moment => at,
            _ => {
                let ago = jiff::SignedDuration::try_from(moment.elapsed()).unwrap_or_default();
                let at = now.checked_sub(ago).unwrap_or(now);
                *fault_time = Some((moment, at));
                at
            }
        }
    }
}

impl Warnings {
    fn of(lifecycle: &Lifecycle) -> Self {
        let Some(served) = lifecycle.served() else {
            return Self::default();
        };
        let rejected = served.rejected.iter().map(|rejected| &rejected.reason);
        Self {
            texts: served
                .active
                .warnings
                .iter()
                .chain(rejected)
                .cloned()
                .collect(),
            quarantined: served.active.quarantined.clone(),
        }
    }

    fn without(mut self, before: &Self) -> Self {
        self.texts.retain(|text| !before.texts.contains(text));
        self.quarantined
            .retain(|tool| !before.quarantined.contains(tool));
        self
    }
}

/// The fault, and what is served meanwhile.
fn describe_fault(fault: &Fault, active: Option<&ActiveListing>) -> String {
    let mut text = fault.why.clone();
    if let Some(active) = active {
        text.push_str("; the previous tools stay in service");
        if fault.is_unverified && active.declared.rules.pins.is_some() {
            text.push_str(", pinned tools only while their definitions match the pins");
        }
    }
    text
}
