//! The state of a source, and the one function that changes it.
//!
//! | phase | what is served | `state` in `GET /sources` |
//! | --- | --- | --- |
//! | Starting | unavailable tools; no attempt to list the source has ended | `starting` |
//! | Active | the tools of a listing | `up`, or `down` if the source itself is not up |
//! | Outdated | the tools of an earlier listing, or under earlier rules | the same as Active |
//! | Failed | unavailable tools; the source could not be listed, or lost its names | `failed` |
//! | Removed | nothing; the source is not declared any more | absent |
//!
//! The transitions, with the next phase in each cell. In an empty cell, the event cannot
//! happen or is ignored.
//!
//! | event | Starting | Active | Outdated | Failed | Removed |
//! | --- | --- | --- | --- | --- | --- |
//! | StartBegun | Starting | Active | Outdated | Failed | |
//! | Progress | Starting | Active | Outdated | Failed | |
//! | StartFailed | Failed | Outdated | Outdated | Failed | |
//! | StartServed | Starting | Active | Outdated | Failed | |
//! | Placed, with another listing | Active | Active | Active | Active | |
//! | Placed, with a fault | Outdated | Outdated | Outdated | Outdated | |
//! | Placed again, while the latest start or relisting has not succeeded | | Active | Outdated | | |
//! | Placed again, after both have succeeded | | Active | Active | | |
//! | Displaced | Failed | Failed | Failed | Failed | |
//! | RelistingBegun | | Active | Outdated | | |
//! | RelistingFailed | | Outdated | Outdated | | |
//! | Relisted | | Active | Active | | |
//! | Removed | Removed | Removed | Removed | Removed | |
//!
//! A start and the listing of a served source run beside each other, so a report can be late. A
//! report about a start is ignored if a later start has begun. A report about a served source is
//! ignored if another source is served.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::active_listing::ActiveListing;
use crate::call::ToolName;
use crate::catalog::registry::RejectedTool;
use crate::sources::Source;

/// A listing that is served.
pub(super) struct ServedListing {
    pub(super) active: Arc<ActiveListing>,
    /// Tools of the listing that did not get their names.
    pub(super) rejected: Vec<RejectedTool>,
    /// Whether the source is being listed again, or waits for the next such attempt.
    is_relisting: bool,
}

/// Why the source is not as declared.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// The reason, for the operator.
    pub(super) why: String,
    pub(super) at: Timestamp,
    /// Whether the served source could not be listed again. It may have changed since.
    pub(super) is_unverified: bool,
}

/// What the latest start does.
#[derive(Debug, Default)]
pub(super) enum Attempt {
    /// It has ended: its listing is served. Or there was no start yet.
    #[default]
    Ended,
    /// It runs, and this is its current activity.
    Running(String),
    /// It has failed, and is repeated at this time.
    Waiting(Instant),
    /// It has failed, and a repetition would fail again. It waits for a change.
    Blocked,
}

/// What happens to a source.
pub(super) enum Event {
    /// A start has begun. Its first attempt follows after this delay.
    StartBegun(Option<Duration>),
    /// A start reports its activity.
    Progress { start: u64, activity: String },
    /// An attempt of a start has failed. `None`: no attempt follows without a change.
    StartFailed {
        start: u64,
        fault: Fault,
        next_attempt: Option<Duration>,
    },
    /// The listing of a start is served.
    StartServed(u64),
    /// The listing is in the catalog, without the rejected tools. `fault` tells why no listing that
    /// is wanted more is there.
    Placed {
        active: Arc<ActiveListing>,
        rejected: Vec<RejectedTool>,
        fault: Option<Fault>,
    },
    /// No listing can be in the catalog, because others have the names.
    Displaced(Fault),
    /// The served source is being listed again.
    RelistingBegun(Arc<dyn Source>),
    /// The served source could not be listed again. A further attempt follows.
    RelistingFailed(Arc<dyn Source>, Fault),
    /// The served source was listed again, and the result is served.
    Relisted(Arc<dyn Source>),
    /// The source is not declared any more.
    Removed,
}

/// The state of one source. Only [`apply`](Self::apply) changes it.
#[derive(Default)]
pub(super) struct Lifecycle {
    // These three are the phase: see the first table of the module.
    served: Option<ServedListing>,
    fault: Option<Fault>,
    is_removed: bool,
    pub(super) attempt: Attempt,
    /// The number of the latest start, and of the latest start that has ended, well or not.
    pub(super) latest_start: u64,
    pub(super) latest_ended: u64,
    /// Names in the last listing that was served, without the prefix.
    pub(super) listed_names: Vec<String>,
    /// Replaced processes of the instances that served before.
    pub(super) replaced: u64,
}

impl Lifecycle {
    /// Changes the state, as the table of the module says.
    pub(super) fn apply(&mut self, event: Event) {
        if self.is_removed || self.is_late(&event) {
            return;
        }
        match event {
            Event::StartBegun(delay) => {
                self.latest_start += 1;
                self.attempt = match delay {
                    None => Attempt::Running("starting".into()),
                    Some(delay) => Attempt::Waiting(Instant::now() + delay),
                };
            }
            Event::Progress { activity, .. } => self.attempt = Attempt::Running(activity),
            Event::StartFailed {
                start,
                fault,
                next_attempt,
            } => {
                self.latest_ended = start;
                self.attempt = match next_attempt {
                    None => Attempt::Blocked,
                    Some(wait) => Attempt::Waiting(Instant::now() + wait),
                };
                self.fault = Some(fault);
            }
            Event::StartServed(start) => {
                (self.latest_ended, self.attempt) = (start, Attempt::Ended);
            }
            Event::Placed {
                active,
                rejected,
                fault,
            } => {
                self.listed_names = active.listed_names();
                let before = self.served.take();
                if let Some(before) = &before
                    && !before.has_source(&active.source)
                {
                    self.replaced += before.replaced_processes();
                }
                let before = before.filter(|before| before.has_source(&active.source));
                let is_relisting = before.as_ref().is_some_and(|before| before.is_relisting);
                // The fault of the same listing stays until what failed has succeeded.
                let is_same = before.is_some_and(|before| Arc::ptr_eq(&before.active, &active));
                let keeps_fault = is_same && (self.has_unfinished_start() || is_relisting);
                self.fault = fault.or(self.fault.take().filter(|_| keeps_fault));
                self.served = Some(ServedListing {
                    active,
                    rejected,
                    is_relisting,
                });
            }
            Event::Displaced(fault) => {
                let before = self.served.take();
                self.replaced += before.map_or(0, |before| before.replaced_processes());
                self.fault = Some(fault);
            }
            Event::RelistingBegun(_) => self.set_relisting(true),
            Event::RelistingFailed(_, fault) => self.fault = Some(fault),
            Event::Relisted(_) => {
                self.set_relisting(false);
                self.fault = None;
            }
            Event::Removed => {
                (self.served, self.fault, self.is_removed) = (None, None, true);
            }
        }
    }

    fn set_relisting(&mut self, is_relisting: bool) {
        if let Some(served) = &mut self.served {
            served.is_relisting = is_relisting;
        }
    }

    /// Whether the event is about a start or a source that was replaced meanwhile.
    fn is_late(&self, event: &Event) -> bool {
        match event {
            Event::Progress { start, .. }
            | Event::StartFailed { start, .. }
            | Event::StartServed(start) => *start != self.latest_start,
            Event::RelistingBegun(source)
            | Event::RelistingFailed(source, _)
            | Event::Relisted(source) => !self
                .served()
                .is_some_and(|served| served.has_source(source)),
            Event::StartBegun(_) | Event::Placed { .. } | Event::Displaced(_) | Event::Removed => {
                false
            }
        }
    }

    /// Whether the latest start has not succeeded: it runs, or waits for its next attempt or for a
    /// change.
    pub(super) fn has_unfinished_start(&self) -> bool {
        !matches!(self.attempt, Attempt::Ended)
    }

    /// What is served.
    pub(super) fn served(&self) -> Option<&ServedListing> {
        self.served.as_ref()
    }

    /// Why the source is not as declared.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The listing that is served.
    pub(super) fn active(&self) -> Option<Arc<ActiveListing>> {
        self.served().map(|served| served.active.clone())
    }

    /// Whether it was listed or failed at least once.
    pub(super) fn is_settled(&self) -> bool {
        self.is_removed || self.served.is_some() || self.fault.is_some()
    }
}

impl ServedListing {
    /// Names of its tools that can be called.
    pub(super) fn callable_names(&self) -> impl Iterator<Item = &ToolName> {
        let is_rejected =
            |name: &ToolName| self.rejected.iter().any(|rejected| rejected.tool == *name);
        let tools = self.active.tools.iter();
        tools
            .filter(move |tool| !tool.quarantined && !is_rejected(&tool.definition.name))
            .flat_map(|tool| std::iter::once(&tool.definition.name).chain(&tool.definition.aliases))
    }

    fn has_source(&self, source: &Arc<dyn Source>) -> bool {
        Arc::ptr_eq(&self.active.source, source)
    }

    fn replaced_processes(&self) -> u64 {
        self.active.source.status().replaced
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use async_trait::async_trait;

    use super::*;
    use crate::manifest::DeclaredSource;
    use crate::sources::live::file_snapshot::FileSnapshot;
    use crate::sources::{
        ProgramSource, SourceFault, SourceListing, SourceSettings, SourceStatus, StatusFn,
    };

    /// A source that has replaced one process.
    struct OldSource;

    #[async_trait]
    impl Source for OldSource {
        async fn list(&self, _: &StatusFn) -> Result<SourceListing, SourceFault> {
            Ok(SourceListing::default())
        }

        fn status(&self) -> SourceStatus {
            SourceStatus {
                replaced: 1,
                ..SourceStatus::default()
            }
        }
    }

    fn new_source() -> Arc<dyn Source> {
        Arc::new(OldSource)
    }

    fn listing_of(source: Arc<dyn Source>) -> Arc<ActiveListing> {
        let settings = SourceSettings::Program {
            name: "s".into(),
            source: ProgramSource(source.clone()),
        };
        let declared = Arc::new(DeclaredSource::from_program(settings));
        let (files, listing) = (FileSnapshot::default(), Arc::default());
        let active = ActiveListing::new(&declared, &files, source, listing, &[]);
        Arc::new(active.unwrap_or_else(|unusable| panic!("{}", unusable.why)))
    }

    fn new_fault() -> Fault {
        Fault {
            why: "why".into(),
            at: Timestamp::UNIX_EPOCH,
            is_unverified: false,
        }
    }

    fn placed(active: Arc<ActiveListing>, fault: Option<Fault>) -> Event {
        Event::Placed {
            active,
            rejected: Vec::new(),
            fault,
        }
    }

    /// A source in this phase, whose first start has begun.
    fn in_phase(name: &str) -> Lifecycle {
        let served = || ServedListing {
            active: listing_of(new_source()),
            rejected: Vec::new(),
            is_relisting: false,
        };
        let (served, fault) = match name {
            "Starting" | "Removed" => (None, None),
            "Active" => (Some(served()), None),
            "Outdated" => (Some(served()), Some(new_fault())),
            "Failed" => (None, Some(new_fault())),
            other => panic!("{other} is no phase"),
        };
        Lifecycle {
            served,
            fault,
            is_removed: name == "Removed",
            latest_start: 1,
            ..Lifecycle::default()
        }
    }

    fn phase_name(lifecycle: &Lifecycle) -> &'static str {
        match (lifecycle.served(), lifecycle.fault()) {
            (None, None) if lifecycle.is_removed => "Removed",
            (None, None) => "Starting",
            (Some(_), None) => "Active",
            (Some(_), Some(_)) => "Outdated",
            (None, Some(_)) => "Failed",
        }
    }

    fn event_name(event: &Event) -> &'static str {
        match event {
            Event::StartBegun(_) => "StartBegun",
            Event::Progress { .. } => "Progress",
            Event::StartFailed { .. } => "StartFailed",
            Event::StartServed(_) => "StartServed",
            Event::Placed { .. } => "Placed",
            Event::Displaced(_) => "Displaced",
            Event::RelistingBegun(_) => "RelistingBegun",
            Event::RelistingFailed(..) => "RelistingFailed",
            Event::Relisted(_) => "Relisted",
            Event::Removed => "Removed",
        }
    }

    /// The event of this row for a source in this state. `None` if it cannot happen.
    fn event_of_row(row: &str, lifecycle: &mut Lifecycle) -> Option<Event> {
        let active = lifecycle.served().map(|served| served.active.clone());
        let source = active
            .as_ref()
            .map_or_else(new_source, |active| active.source.clone());
        Some(match row {
            "StartBegun" => Event::StartBegun(None),
            "Progress" => Event::Progress {
                start: 1,
                activity: "installing".into(),
            },
            "StartFailed" => Event::StartFailed {
                start: 1,
                fault: new_fault(),
                next_attempt: None,
            },
            "StartServed" => Event::StartServed(1),
            "Placed, with another listing" => placed(listing_of(source), None),
            "Placed, with a fault" => placed(
                active.unwrap_or_else(|| listing_of(source)),
                Some(new_fault()),
            ),
            "Placed again, while the latest start or relisting has not succeeded" => {
                lifecycle.attempt = Attempt::Blocked;
                placed(active?, None)
            }
            "Placed again, after both have succeeded" => placed(active?, None),
            "Displaced" => Event::Displaced(new_fault()),
            "RelistingBegun" => Event::RelistingBegun(source),
            "RelistingFailed" => Event::RelistingFailed(source, new_fault()),
            "Relisted" => Event::Relisted(source),
            "Removed" => Event::Removed,
            other => panic!("{other} is no event"),
        })
    }

    /// The rows of the table of transitions, as written.
    fn table_rows() -> Vec<&'static str> {
        let table = include_str!("states.rs").lines();
        let table = table.skip_while(|line| !line.starts_with("//! | event |"));
        let rows = table.map_while(|line| line.strip_prefix("//! |"));
        rows.collect()
    }

    fn cells(row: &'static str) -> Vec<&'static str> {
        let row = row.strip_suffix('|').unwrap();
        row.split('|').map(str::trim).collect()
    }

    #[test]
    fn transitions_are_those_of_the_table() {
        let rows = table_rows();
        let phases = cells(rows[0]);
        let mut events = BTreeSet::new();
        for row in &rows[2..] {
            let cells = cells(row);
            assert_eq!(cells.len(), phases.len(), "{row}");
            for (phase, next) in phases.iter().zip(&cells).skip(1) {
                let mut lifecycle = in_phase(phase);
                let event = event_of_row(cells[0], &mut lifecycle);
                if let Some(event) = event {
                    assert!(cells[0].starts_with(event_name(&event)), "{row}");
                    events.insert(event_name(&event));
                    lifecycle.apply(event);
                }
                let next = if next.is_empty() { phase } else { next };
                assert_eq!(phase_name(&lifecycle), *next, "{phase}: {row}");
            }
        }
        assert_eq!((phases.len(), events.len()), (6, 10));
    }

    #[test]
    fn design_page_has_the_same_table() {
        let page = include_str!("../../../../docs/dev/design-sources.md");
        for row in table_rows() {
            assert!(page.contains(&format!("\n|{row}\n")), "{row}");
        }
    }

    #[test]
    fn late_reports_are_ignored() {
        let mut lifecycle = in_phase("Active");
        lifecycle.apply(Event::StartBegun(None));
        let late = |lifecycle: &mut Lifecycle| {
            lifecycle.apply(Event::StartServed(1));
            lifecycle.apply(Event::StartFailed {
                start: 1,
                fault: new_fault(),
                next_attempt: None,
            });
            lifecycle.apply(Event::RelistingFailed(new_source(), new_fault()));
        };
        late(&mut lifecycle);
        assert_eq!(phase_name(&lifecycle), "Active");
        assert!(lifecycle.has_unfinished_start() && lifecycle.latest_ended == 0);
        lifecycle.apply(Event::StartServed(2));
        late(&mut lifecycle);
        assert!(!lifecycle.has_unfinished_start() && lifecycle.latest_ended == 2);
    }

    #[test]
    fn fault_stays_until_start_succeeds() {
        for attempt in [
            Attempt::Running("starting".into()),
            Attempt::Waiting(Instant::now()),
            Attempt::Blocked,
        ] {
            let mut lifecycle = in_phase("Outdated");
            lifecycle.attempt = attempt;
            assert!(lifecycle.has_unfinished_start());
            let active = lifecycle.active().unwrap();
            lifecycle.apply(placed(active.clone(), None));
            assert_eq!(
                phase_name(&lifecycle),
                "Outdated",
                "{:?}",
                lifecycle.attempt
            );
            lifecycle.apply(Event::StartServed(1));
            assert!(!lifecycle.has_unfinished_start());
            lifecycle.apply(placed(active, None));
            assert_eq!(phase_name(&lifecycle), "Active");
        }
    }

    #[test]
    fn fault_stays_until_relisting_succeeds() {
        let mut lifecycle = in_phase("Outdated");
        let active = lifecycle.active().unwrap();
        lifecycle.apply(Event::RelistingBegun(active.source.clone()));
        lifecycle.apply(placed(active.clone(), None));
        assert_eq!(phase_name(&lifecycle), "Outdated");
        assert!(!lifecycle.has_unfinished_start());
        lifecycle.apply(Event::Relisted(active.source.clone()));
        assert_eq!(phase_name(&lifecycle), "Active");
    }

    #[test]
    fn replaced_processes_are_counted_once() {
        let mut lifecycle = in_phase("Active");
        let active = lifecycle.served().unwrap().active.clone();
        lifecycle.apply(placed(listing_of(active.source.clone()), None));
        assert_eq!(lifecycle.replaced, 0, "the same source");
        lifecycle.apply(placed(listing_of(new_source()), None));
        assert_eq!(lifecycle.replaced, 1);
        lifecycle.apply(Event::Displaced(new_fault()));
        lifecycle.apply(Event::Displaced(new_fault()));
        assert_eq!(lifecycle.replaced, 2);
    }
}
