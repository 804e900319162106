//! The status of one source, for probes, `/sources` and stand-ins. Reading it never waits for the source.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::ActiveListing;
use crate::call::Kind;
use crate::tools::Source;

/// The shortest `retry_after` for a call of a tool whose source is not up yet.
const LOADING_WAIT: Duration = Duration::from_secs(1);

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
    /// Kind of its tools.
    pub kind: Kind,
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
    /// Why the source is not up. If it is up: the failure since it was listed, and what is served meanwhile.
    pub fault: Option<String>,
    /// Time of `fault`.
    pub fault_at: Option<Timestamp>,
    /// Oddities of what is served, such as tools that were left out, or policies without effect.
    pub warnings: Vec<String>,
    /// Quarantined tools: they differ from their pins.
    pub stopped: Vec<Stopped>,
}

/// A quarantined tool: it differs from its pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Name under which it is served.
    pub tool: String,
    /// What differs.
    pub why: String,
}

/// The status of one source. All methods take a short lock.
pub(crate) struct SourceStatusBoard {
    pub(super) name: Arc<str>,
    kind: Kind,
    /// The source was added after the start, when the service was ready already. So no probe waits for it.
    late: bool,
    facts: Mutex<Facts>,
}

#[derive(Default)]
struct Facts {
    serving: Option<Arc<dyn Source>>,
    tools: usize,
    warnings: Vec<String>,
    stopped: Vec<Stopped>,
    /// Its tools have pins, so a call needs the approved definition.
    is_pinned: bool,
    /// Why some of its tools did not get their names.
    left_out: Vec<String>,
    doing: Option<String>,
    fault: Option<(String, Timestamp)>,
    /// The time of the source's own fault, as a clock time. It is kept so that the fault has the same time in each
    /// answer.
    moment: Option<(Instant, Timestamp)>,
    next_try: Option<Instant>,
    /// It was listed or failed at least once.
    is_settled: bool,
    /// Replaced processes of the instances that served before.
    replaced: u64,
    /// The number of the latest start, and of the latest start that has ended, well or not. A report of a replaced
    /// start may come late. Its number shows that it must not overwrite the state of the newer start.
    begun: u64,
    ended: u64,
}

impl SourceStatusBoard {
    pub(super) fn new(name: &str, kind: Kind, late: bool) -> Arc<Self> {
        Arc::new(Self { name: name.into(), kind, late, facts: Mutex::default() })
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current status.
    pub(super) fn view(&self, now: Timestamp) -> SourceView {
        let mut facts = self.facts();
        let status = facts.serving.as_ref().map(|source| source.status());
        let state = match &status {
            Some(status) if status.up => SourceState::Up,
            Some(_) => SourceState::Down,
            None if facts.is_settled => SourceState::Failed,
            None => SourceState::Starting,
        };
        let status = status.unwrap_or_default();
        let (fault, fault_at) = match facts.fault.clone() {
            Some((why, at)) => (Some(why), Some(at)),
            None => (status.fault, status.fault_at.map(|at| facts.on_the_clock(at, now))),
        };
        SourceView {
            name: self.name.clone(),
            kind: self.kind,
            state,
            tools: facts.tools.saturating_sub(facts.left_out.len()),
            workers: status.workers,
            replaced: facts.replaced + status.replaced,
            doing: facts.doing.clone(),
            fault,
            fault_at,
            warnings: facts.warnings.iter().chain(&facts.left_out).cloned().collect(),
            stopped: facts.stopped.clone(),
        }
    }

    /// Why a tool of this source cannot be called, and when to call again. The text hides the fault itself: callers and
    /// models must not see paths and contents of files. The log and `/sources` have the fault, for the operator.
    pub(super) fn why(&self) -> (String, Option<Duration>) {
        let facts = self.facts();
        let name = &self.name;
        let wait = facts.next_try.map(|at| at.saturating_duration_since(Instant::now()));
        let why = match (&facts.fault, self.kind) {
            (Some(_), Kind::Mcp) => {
                format!("the MCP server `{name}` could not be listed; the log and GET /sources say why")
            }
            (None, Kind::Mcp) => format!("the MCP server `{name}` is still being listed"),
            (Some(_), _) => format!("source `{name}` could not be loaded; the log and GET /sources say why"),
            (None, _) => format!("source `{name}` is still loading"),
        };
        (why, Some(wait.unwrap_or_default().max(LOADING_WAIT)))
    }

    /// Whether it was listed or failed at least once.
    pub(in crate::live) fn is_settled(&self) -> bool {
        self.facts().is_settled
    }

    /// Whether the service waits for this source before it is ready.
    pub(super) fn is_awaited(&self) -> bool {
        !self.late && !self.is_settled()
    }

    /// Notes a start, which begins at once or after `wait`. Returns the number of the start.
    pub(super) fn begin(&self, wait: Option<Duration>) -> u64 {
        let mut facts = self.facts();
        facts.begun += 1;
        facts.doing = wait.is_none().then(|| "starting".into());
        facts.next_try = wait.map(|wait| Instant::now() + wait);
        facts.begun
    }

    /// Notes what this start is doing. Ignored if a later start has begun.
    pub(super) fn is_doing(&self, start: u64, what: &str) {
        let mut facts = self.facts();
        if facts.begun == start {
            facts.doing = Some(what.to_owned());
            facts.next_try = None;
        }
    }

    /// Notes the end of this start. `again` is the time until the next attempt. Ignored if a later start has begun.
    pub(super) fn end(&self, start: u64, fault: Option<(String, Timestamp)>, again: Option<Duration>) {
        let mut facts = self.facts();
        if facts.begun != start {
            return;
        }
        (facts.ended, facts.is_settled, facts.doing) = (start, true, None);
        facts.next_try = again.map(|wait| Instant::now() + wait);
        if let Some(fault) = fault {
            facts.fail(fault);
        }
    }

    /// Notes that the served source could not be listed again.
    pub(super) fn failed_again(&self, fault: (String, Timestamp)) {
        let mut facts = self.facts();
        facts.fail(fault);
        let is_pinned = facts.is_pinned;
        if let Some((why, _)) = facts.fault.as_mut().filter(|_| is_pinned) {
            why.push_str(", what is pinned of it only while its server says the same");
        }
    }

    /// Notes that the served source was listed again, and its tools are unchanged.
    pub(super) fn is_as_it_was(&self) {
        self.facts().fault = None;
    }

    /// Whether this start, or a later one that replaced it, has ended.
    pub(super) fn has_ended(&self, start: u64) -> bool {
        self.facts().ended >= start
    }

    /// Notes what is served from now on; `fault` says why the current declaration is not. Returns the new warnings and
    /// the newly quarantined tools, so that each is logged once.
    pub(super) fn serve(
        &self,
        serving: &ActiveListing,
        fault: Option<(String, Timestamp)>,
    ) -> (Vec<String>, Vec<Stopped>) {
        let ActiveListing { declared, source, tools, warnings, stopped, .. } = serving;
        let mut facts = self.facts();
        facts.is_pinned = declared.rules.pins.is_some();
        if let Some(before) = facts.serving.take().filter(|before| !Arc::ptr_eq(before, source)) {
            facts.replaced += before.status().replaced;
        }
        (facts.serving, facts.tools, facts.fault) = (Some(source.clone()), tools.len(), None);
        if let Some(fault) = fault {
            facts.fail(fault);
        }
        let before = std::mem::replace(&mut facts.warnings, warnings.clone());
        let were_stopped = std::mem::replace(&mut facts.stopped, stopped.clone());
        let odd = warnings.iter().filter(|warning| !before.contains(warning)).cloned().collect();
        (odd, stopped.iter().filter(|one| !were_stopped.contains(one)).cloned().collect())
    }

    /// Notes why tools were left out. Returns the reasons that are new.
    pub(super) fn leave_out(&self, why: Vec<String>) -> Vec<String> {
        let before = std::mem::replace(&mut self.facts().left_out, why.clone());
        why.into_iter().filter(|why| !before.contains(why)).collect()
    }

    /// Notes that nothing of the source is served.
    pub(super) fn serve_nothing(&self, fault: (String, Timestamp)) {
        let mut facts = self.facts();
        if let Some(before) = facts.serving.take() {
            facts.replaced += before.status().replaced;
        }
        (facts.warnings, facts.stopped) = (Vec::new(), Vec::new());
        (facts.tools, facts.is_settled, facts.fault) = (0, true, Some(fault));
    }
}

impl Facts {
    fn on_the_clock(&mut self, moment: Instant, now: Timestamp) -> Timestamp {
        match self.moment {
            Some((known, at)) if known == moment => at,
            _ => {
                let ago = jiff::SignedDuration::try_from(moment.elapsed()).unwrap_or_default();
                let at = now.checked_sub(ago).unwrap_or(now);
                self.moment = Some((moment, at));
                at
            }
        }
    }

    fn fail(&mut self, (why, at): (String, Timestamp)) {
        let serves_on = if self.serving.is_some() { "; the one before is served on" } else { "" };
        self.fault = Some((format!("{why}{serves_on}"), at));
    }
}
