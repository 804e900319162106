//! What is known of one source, for whoever asks; nobody waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Serving;
use crate::call::Kind;
use crate::tools::Source;

/// Told to whoever calls a tool of a source that is still loading.
const LOADING_WAIT: Duration = Duration::from_secs(1);

/// Whether a source's tools can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceState {
    /// It was not listed yet.
    Starting,
    /// They can.
    Up,
    /// It could not be listed, and is tried again.
    Failed,
    /// It was listed, and what runs its tools is down.
    Down,
}

impl SourceState {
    /// The word used in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Failed => "failed",
            Self::Down => "down",
        }
    }
}

/// How a source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceView {
    /// Its name.
    pub name: Arc<str>,
    /// How its tools run.
    pub kind: Kind,
    /// Whether they can be called.
    pub state: SourceState,
    /// How many are served.
    pub tools: usize,
    /// Processes that are ready or at work.
    pub workers: usize,
    /// Processes that were replaced since the service has the source.
    pub replaced: u64,
    /// What it is busy with.
    pub doing: Option<String>,
    /// Why it is not up; or, of one that is, what went wrong since it was listed and what is served on.
    pub fault: Option<String>,
    /// When that was.
    pub fault_at: Option<Timestamp>,
    /// What is odd about what is served: tools that could not be taken over, policies without effect.
    pub warnings: Vec<String>,
    /// Tools that are not what was pinned.
    pub stopped: Vec<Stopped>,
}

/// A tool that is not what it was when its server was pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Its name.
    pub tool: String,
    /// What is another.
    pub why: String,
}

/// See the module.
pub(crate) struct Board {
    pub(super) name: Arc<str>,
    kind: Kind,
    /// It came after the start, so the service was ready without it.
    late: bool,
    facts: Mutex<Facts>,
}

#[derive(Default)]
struct Facts {
    serving: Option<Arc<dyn Source>>,
    tools: usize,
    warnings: Vec<String>,
    stopped: Vec<Stopped>,
    /// Its tools are called only while they are what was approved.
    is_pinned: bool,
    /// Why tools of it have no place.
    left_out: Vec<String>,
    doing: Option<String>,
    fault: Option<(String, Timestamp)>,
    /// A moment that the source has told, by the clock, so that it reads the same each time.
    moment: Option<(Instant, Timestamp)>,
    next_try: Option<Instant>,
    /// It was listed once or failed once.
    is_settled: bool,
    /// Replaced processes of those that served before.
    replaced: u64,
    /// Starts that were begun, and the latest of them that came to an end, good or bad.
    begun: u64,
    ended: u64,
}

impl Board {
    pub(super) fn new(name: &str, kind: Kind, late: bool) -> Arc<Self> {
        Arc::new(Self { name: name.into(), kind, late, facts: Mutex::default() })
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is now.
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

    /// Why a tool of it that is known by name only cannot be called, and when to ask again. Callers and models need not
    /// know what files there are and what stands in them: the fault itself is for the operator.
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

    /// Whether it was listed once or failed once.
    pub(in crate::live) fn is_settled(&self) -> bool {
        self.facts().is_settled
    }

    /// Whether the service is not ready without it.
    pub(super) fn is_awaited(&self) -> bool {
        !self.late && !self.is_settled()
    }

    /// A start begins, at once or after so long; its number.
    pub(super) fn begin(&self, wait: Option<Duration>) -> u64 {
        let mut facts = self.facts();
        facts.begun += 1;
        facts.doing = wait.is_none().then(|| "starting".into());
        facts.next_try = wait.map(|wait| Instant::now() + wait);
        facts.begun
    }

    /// The start of that number is busy with something, if it is the latest.
    pub(super) fn is_doing(&self, start: u64, what: &str) {
        let mut facts = self.facts();
        if facts.begun == start {
            facts.doing = Some(what.to_owned());
            facts.next_try = None;
        }
    }

    /// The start of that number came to an end; `again`: it is tried again after so long.
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

    /// It was asked what its tools are now and gave no good answer.
    pub(super) fn failed_again(&self, fault: (String, Timestamp)) {
        let mut facts = self.facts();
        facts.fail(fault);
        let is_pinned = facts.is_pinned;
        if let Some((why, _)) = facts.fault.as_mut().filter(|_| is_pinned) {
            why.push_str(", what is pinned of it only while its server says the same");
        }
    }

    /// It was asked what its tools are now, and they are what they were.
    pub(super) fn is_as_it_was(&self) {
        self.facts().fault = None;
    }

    /// Whether that start, or a later one in its place, came to an end.
    pub(super) fn has_ended(&self, start: u64) -> bool {
        self.facts().ended >= start
    }

    /// This is served from now on; `fault` says why it is not what was wanted. What is new of what is odd about it, so
    /// that nothing is told twice.
    pub(super) fn serve(&self, serving: &Serving, fault: Option<(String, Timestamp)>) -> (Vec<String>, Vec<Stopped>) {
        let Serving { declared, source, tools, warnings, stopped, .. } = serving;
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

    /// These tools of it have no place; those that had one before.
    pub(super) fn leave_out(&self, why: Vec<String>) -> Vec<String> {
        let before = std::mem::replace(&mut self.facts().left_out, why.clone());
        why.into_iter().filter(|why| !before.contains(why)).collect()
    }

    /// Nothing of it is served.
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
