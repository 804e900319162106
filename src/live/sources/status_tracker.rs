//! The status of one source, for probes, `/sources` and unavailable tools. Reading it never waits
//! for the source.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::ActiveListing;
use crate::manifest::ListedFinding;
use crate::tools::{Operations, Source, SourceKind};

/// The shortest `retry_after` for a call of a tool whose source is not up yet.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whether a source's tools can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceState {
    /// The source has not been listed yet.
    Starting,
    /// The tools can be called.
    Up,
    /// The source could not be listed. A further attempt follows.
    Failed,
    /// The source was listed, but its workers or its connection are down.
    Down,
}

impl SourceState {
    /// The name of the state in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Failed => "failed",
            Self::Down => "down",
        }
    }
}

/// The status of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceView {
    /// Name of the source.
    pub name: Arc<str>,
    /// Kind of the source.
    pub kind: SourceKind,
    /// Whether its tools can be called.
    pub state: SourceState,
    /// Number of tools that are served.
    pub tools: usize,
    /// Number of processes that are ready or at work.
    pub workers: usize,
    /// Number of processes that were replaced since the service has the source.
    pub replaced: u64,
    /// The current activity, such as `starting`.
    pub doing: Option<String>,
    /// Why the source is not up. If it is up: the failure since it was listed, and what is served
    /// meanwhile.
    pub fault: Option<String>,
    /// Time of `fault`.
    pub fault_at: Option<Timestamp>,
    /// Warnings about what is served, such as rejected tools, or policies without effect.
    pub warnings: Vec<String>,
    /// Quarantined tools: they differ from their pins.
    pub quarantined: Vec<QuarantinedTool>,
    /// What misleads models in the definitions of its tools, at most a hundred findings.
    pub findings: Vec<ListedFinding>,
    /// The operations of an OpenAPI document.
    pub operations: Option<Arc<Operations>>,
}

/// A quarantined tool: it differs from its pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedTool {
    /// Name under which it is served.
    pub tool: String,
    /// What differs.
    pub reason: String,
}

/// The status of one source. All methods take a short lock.
pub(crate) struct StatusTracker {
    pub(super) name: Arc<str>,
    kind: SourceKind,
    /// The source was added after the start, when the service was ready already. So no probe waits
    /// for it.
    added_late: bool,
    data: Mutex<StatusData>,
}

#[derive(Default)]
struct StatusData {
    active_source: Option<Arc<dyn Source>>,
    tools: usize,
    warnings: Vec<String>,
    quarantined: Vec<QuarantinedTool>,
    findings: Vec<ListedFinding>,
    /// Its tools have pins, so a call needs the approved definition.
    is_pinned: bool,
    /// Why some of its tools did not get their names.
    rejected: Vec<String>,
    doing: Option<String>,
    fault: Option<(String, Timestamp)>,
    /// The time of the source's own fault, as a clock time. It is kept so that the fault has the
    /// same time in each answer.
    fault_time: Option<(Instant, Timestamp)>,
    next_attempt: Option<Instant>,
    /// It was listed or failed at least once.
    is_settled: bool,
    /// Replaced processes of the instances that served before.
    replaced: u64,
    /// The number of the latest start, and of the latest start that has ended, well or not. A
    /// report of a replaced start may come late. Its number shows that it must not overwrite the
    /// state of the newer start.
    latest_start: u64,
    latest_ended: u64,
}

impl StatusTracker {
    pub(super) fn new(name: &str, kind: SourceKind, added_late: bool) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            kind,
            added_late,
            data: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, StatusData> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current status.
    pub(super) fn view(&self, now: Timestamp) -> SourceView {
        let mut data = self.lock();
        let status = data.active_source.as_ref().map(|source| source.status());
        let state = match &status {
            Some(status) if status.is_up => SourceState::Up,
            Some(_) => SourceState::Down,
            None if data.is_settled => SourceState::Failed,
            None => SourceState::Starting,
        };
        let status = status.unwrap_or_default();
        let (fault, fault_at) = match data.fault.clone() {
            Some((why, at)) => (Some(why), Some(at)),
            None => (
                status.fault,
                status.fault_at.map(|at| data.wall_clock_time(at, now)),
            ),
        };
        SourceView {
            name: self.name.clone(),
            kind: self.kind,
            state,
            tools: data.tools.saturating_sub(data.rejected.len()),
            workers: status.workers,
            replaced: data.replaced + status.replaced,
            doing: data.doing.clone(),
            fault,
            fault_at,
            warnings: data
                .warnings
                .iter()
                .chain(&data.rejected)
                .cloned()
                .collect(),
            quarantined: data.quarantined.clone(),
            findings: data.findings.clone(),
            operations: status.operations,
        }
    }

    /// Why a tool of this source cannot be called, and when to call again. The text hides the fault
    /// itself: callers and models must not see paths and contents of files. The log and `/sources`
    /// have the fault, for the operator.
    pub(super) fn unavailable_reason(&self) -> (String, Option<Duration>) {
        let data = self.lock();
        let name = &self.name;
        let wait = data
            .next_attempt
            .map(|at| at.saturating_duration_since(Instant::now()));
        let why = match (&data.fault, self.kind) {
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
        (why, Some(wait.unwrap_or_default().max(MIN_RETRY_AFTER)))
    }

    /// Whether it was listed or failed at least once.
    pub(in crate::live) fn is_settled(&self) -> bool {
        self.lock().is_settled
    }

    /// Whether the service waits for this source before it is ready.
    pub(super) fn is_awaited(&self) -> bool {
        !self.added_late && !self.is_settled()
    }

    /// Records a start, which begins at once or after `wait`. Returns the number of the start.
    pub(super) fn record_start(&self, wait: Option<Duration>) -> u64 {
        let mut data = self.lock();
        data.latest_start += 1;
        data.doing = wait.is_none().then(|| "starting".into());
        data.next_attempt = wait.map(|wait| Instant::now() + wait);
        data.latest_start
    }

    /// Records what this start is doing. Ignored if a later start has begun.
    pub(super) fn record_activity(&self, start: u64, what: &str) {
        let mut data = self.lock();
        if data.latest_start == start {
            data.doing = Some(what.to_owned());
            data.next_attempt = None;
        }
    }

    /// Records the end of this start. `next_wait` is the time until the next attempt. Ignored if a
    /// later start has begun.
    pub(super) fn record_end(
        &self,
        start: u64,
        fault: Option<(String, Timestamp)>,
        next_wait: Option<Duration>,
    ) {
        let mut data = self.lock();
        if data.latest_start != start {
            return;
        }
        (data.latest_ended, data.is_settled, data.doing) = (start, true, None);
        data.next_attempt = next_wait.map(|wait| Instant::now() + wait);
        if let Some(fault) = fault {
            data.set_fault(fault);
        }
    }

    /// Records that the served source could not be listed again.
    pub(super) fn record_relist_failure(&self, fault: (String, Timestamp)) {
        let mut data = self.lock();
        data.set_fault(fault);
        let is_pinned = data.is_pinned;
        if let Some((why, _)) = data.fault.as_mut().filter(|_| is_pinned) {
            why.push_str(", pinned tools only while their definitions match the pins");
        }
    }

    /// Records that the served source was listed again, and its tools are unchanged.
    pub(super) fn clear_fault(&self) {
        self.lock().fault = None;
    }

    /// Whether this start, or a later one that replaced it, has ended.
    pub(super) fn has_ended(&self, start: u64) -> bool {
        self.lock().latest_ended >= start
    }

    /// Records what is served from now on; `fault` says why the current declaration is not. Returns
    /// the new warnings and the newly quarantined tools, so that each is logged once.
    pub(super) fn record_served(
        &self,
        active: &ActiveListing,
        fault: Option<(String, Timestamp)>,
    ) -> (Vec<String>, Vec<QuarantinedTool>) {
        let ActiveListing {
            declared,
            source,
            tools,
            warnings,
            quarantined,
            findings,
            ..
        } = active;
        let mut data = self.lock();
        data.is_pinned = declared.rules.pins.is_some();
        if let Some(before) = data
            .active_source
            .take()
            .filter(|before| !Arc::ptr_eq(before, source))
        {
            data.replaced += before.status().replaced;
        }
        (data.active_source, data.tools, data.fault) = (Some(source.clone()), tools.len(), None);
        if let Some(fault) = fault {
            data.set_fault(fault);
        }
        data.findings.clone_from(&findings.shown);
        let before = std::mem::replace(&mut data.warnings, warnings.clone());
        let previous_quarantined = std::mem::replace(&mut data.quarantined, quarantined.clone());
        let new_warnings = warnings
            .iter()
            .filter(|warning| !before.contains(warning))
            .cloned()
            .collect();
        (
            new_warnings,
            quarantined
                .iter()
                .filter(|tool| !previous_quarantined.contains(tool))
                .cloned()
                .collect(),
        )
    }

    /// Records why tools were rejected. Returns the reasons that are new.
    pub(super) fn record_rejected(&self, why: Vec<String>) -> Vec<String> {
        let before = std::mem::replace(&mut self.lock().rejected, why.clone());
        why.into_iter()
            .filter(|why| !before.contains(why))
            .collect()
    }

    /// Records that nothing of the source is served.
    pub(super) fn record_nothing_served(&self, fault: (String, Timestamp)) {
        let mut data = self.lock();
        if let Some(before) = data.active_source.take() {
            data.replaced += before.status().replaced;
        }
        (data.warnings, data.quarantined, data.findings) = (Vec::new(), Vec::new(), Vec::new());
        (data.tools, data.is_settled, data.fault) = (0, true, Some(fault));
    }
}

impl StatusData {
    fn wall_clock_time(&mut self, moment: Instant, now: Timestamp) -> Timestamp {
        match self.fault_time {
            Some((known, at)) if known == moment => at,
            _ => {
                let ago = jiff::SignedDuration::try_from(moment.elapsed()).unwrap_or_default();
                let at = now.checked_sub(ago).unwrap_or(now);
                self.fault_time = Some((moment, at));
                at
            }
        }
    }

    fn set_fault(&mut self, (why, at): (String, Timestamp)) {
        let suffix = if self.active_source.is_some() {
            "; the previous tools stay in service"
        } else {
            ""
        };
        self.fault = Some((format!("{why}{suffix}"), at));
    }
}
