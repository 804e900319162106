//! What is known of one source, for whoever asks; nobody waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

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
    /// Why it is not up; or, of one that is, what went wrong last and what is served on.
    pub fault: Option<String>,
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
    doing: Option<String>,
    fault: Option<String>,
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
    pub(super) fn view(&self) -> SourceView {
        let facts = self.facts();
        let status = facts.serving.as_ref().map(|source| source.status());
        let state = match &status {
            Some(status) if status.up => SourceState::Up,
            Some(_) => SourceState::Down,
            None if facts.is_settled => SourceState::Failed,
            None => SourceState::Starting,
        };
        let status = status.unwrap_or_default();
        SourceView {
            name: self.name.clone(),
            kind: self.kind,
            state,
            tools: facts.tools,
            workers: status.workers,
            replaced: facts.replaced + status.replaced,
            doing: facts.doing.clone(),
            fault: facts.fault.clone().or(status.fault),
        }
    }

    /// Why a tool of it that is known by name only cannot be called, and when to ask again. Callers and models need not
    /// know what files there are and what stands in them: the fault itself is for the operator.
    pub(super) fn why(&self) -> (String, Option<Duration>) {
        let facts = self.facts();
        let name = &self.name;
        let wait = facts.next_try.map(|at| at.saturating_duration_since(Instant::now()));
        let why = match &facts.fault {
            Some(_) => format!("source `{name}` could not be loaded; the log and GET /sources say why"),
            None => format!("source `{name}` is still loading"),
        };
        (why, Some(wait.unwrap_or_default().max(LOADING_WAIT)))
    }

    /// Whether it was listed once or failed once.
    pub(super) fn is_settled(&self) -> bool {
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
    pub(super) fn end(&self, start: u64, fault: Option<String>, again: Option<Duration>) {
        let mut facts = self.facts();
        if facts.begun != start {
            return;
        }
        (facts.ended, facts.is_settled, facts.doing) = (start, true, None);
        facts.next_try = again.map(|wait| Instant::now() + wait);
        if let Some(fault) = fault {
            let serves_on = if facts.serving.is_some() { "; the one before is served on" } else { "" };
            facts.fault = Some(format!("{fault}{serves_on}"));
        }
    }

    /// Whether that start, or a later one in its place, came to an end.
    pub(super) fn has_ended(&self, start: u64) -> bool {
        self.facts().ended >= start
    }

    /// This source serves so many tools from now on; `fault` says why it is not what was wanted.
    pub(super) fn serve(&self, source: &Arc<dyn Source>, tools: usize, fault: Option<String>) {
        let mut facts = self.facts();
        if let Some(before) = facts.serving.take().filter(|before| !Arc::ptr_eq(before, source)) {
            facts.replaced += before.status().replaced;
        }
        (facts.serving, facts.tools) = (Some(source.clone()), tools);
        facts.fault = fault.map(|fault| format!("{fault}; the one before is served on"));
    }

    /// Nothing of it is served.
    pub(super) fn serve_nothing(&self, fault: String) {
        let mut facts = self.facts();
        if let Some(before) = facts.serving.take() {
            facts.replaced += before.status().replaced;
        }
        (facts.tools, facts.is_settled, facts.fault) = (0, true, Some(fault));
    }
}
