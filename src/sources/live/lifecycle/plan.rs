//! What a source could serve in the next catalog: listings, and unavailable tools in place of them.

use std::sync::Arc;

use super::active_listing::ActiveListing;
use super::entry::{SourceEntry, Sources};
use super::live_source::LiveSource;
use super::states::Lifecycle;
use super::tools::{apply_source_rules, stand_in};
use crate::call::{Idempotency, Policy, RetryPolicy, ToolName};
use crate::catalog::registry::{SourceTools, UnlistedSource};
use crate::kinds::{Tool, UnavailableTool};
use crate::manifest::DeclaredSource;
use crate::sources::live::file_snapshot::FileSnapshot;

/// The plan for one source. The registry decides which candidate is served.
pub(super) struct SourcePlan {
    pub(super) declared: Arc<DeclaredSource>,
    pub(super) files: FileSnapshot,
    pub(super) source: Arc<LiveSource>,
    /// What could be served, the most wanted first.
    pub(super) candidates: Vec<Arc<ActiveListing>>,
    /// Why the most wanted state is not among the candidates.
    pub(super) fault: Option<String>,
}

impl SourcePlan {
    /// The plan for a source under this declaration. `before` is its entry, if it exists already.
    fn new(
        before: Option<&SourceEntry>,
        declared: Arc<DeclaredSource>,
        files: FileSnapshot,
        added_late: bool,
    ) -> Self {
        let source = match before {
            Some(entry) => entry.source.clone(),
            None => LiveSource::new(declared.name(), declared.settings.source_kind(), added_late),
        };
        let (mut candidates, mut fault) = (Vec::new(), None);
        if let Some(active) = source.read(Lifecycle::active) {
            // Only the rules for the tools have changed. So the source continues, and its listing
            // is read under the new rules.
            let rules_of =
                |source: &DeclaredSource| (source.rules.clone(), source.written_settings.clone());
            if active.was_started_with(&declared, &files)
                && rules_of(&active.declared) != rules_of(&declared)
            {
                match ActiveListing::new(
                    &declared,
                    &files,
                    active.source.clone(),
                    active.listing.clone(),
                    &source.read(|lifecycle| lifecycle.listed_names.clone()),
                ) {
                    Ok(active) => candidates.push(Arc::new(active)),
                    Err(unusable) => fault = Some(unusable.why),
                }
            }
            candidates.push(active);
        }
        Self {
            declared,
            files,
            source,
            candidates,
            fault,
        }
    }

    /// The plans for sources whose declarations have not changed.
    pub(super) fn for_unchanged(sources: &Sources) -> Vec<Self> {
        let plan = |entry: &SourceEntry| {
            Self::new(
                Some(entry),
                entry.declared.clone(),
                entry.files.clone(),
                false,
            )
        };
        sources.0.iter().map(plan).collect()
    }

    /// The plans for these declarations. `added_late`: the service has started already.
    pub(super) fn for_declared(
        sources: &Sources,
        declared: Vec<(Arc<DeclaredSource>, FileSnapshot)>,
        added_late: bool,
    ) -> Vec<Self> {
        let plan = |(declared, files): (Arc<DeclaredSource>, FileSnapshot)| {
            let mut entries = sources.0.iter();
            let before = entries.find(|entry| &*entry.source.name == declared.name());
            Self::new(before, declared, files, added_late)
        };
        declared.into_iter().map(plan).collect()
    }

    /// Puts a new listing before the other candidates.
    pub(super) fn prefer(&mut self, fresh: Arc<ActiveListing>) {
        self.candidates.insert(0, fresh);
        self.fault = None;
    }

    pub(super) fn to_source_tools(&self) -> SourceTools {
        let choices = self.candidates.iter().map(|active| active.tools.clone());
        SourceTools {
            source: self.source.name.clone(),
            prefix: self.declared.rules.prefix.clone(),
            choices: choices.collect(),
            fallback: unavailable_tools(&self.declared, &self.source),
            all_or_nothing: !self.declared.settings.may_lose_tools(),
            current_names: self.source.read(|lifecycle| {
                let served = lifecycle.served().into_iter();
                served
                    .flat_map(|served| served.callable_names().cloned())
                    .collect()
            }),
            assigned_names: assigned_names(&self.declared).collect(),
            unlisted: unlisted_answer(&self.declared, &self.source),
        }
    }
}

/// Names that the operator gave to its tools: in the manifest, or by approval.
fn assigned_names(declared: &DeclaredSource) -> impl Iterator<Item = ToolName> {
    let rules = &declared.rules;
    let names = rules
        .known_tools()
        .filter_map(|own| ToolName::parse(&format!("{}{own}", rules.prefix)).ok());
    let aliases = rules.tools.values().flat_map(|rules| &rules.aliases);
    names.chain(aliases.cloned())
}

/// Entries for the tools whose names are known, while the source has no runner for them.
fn unavailable_tools(declared: &DeclaredSource, source: &Arc<LiveSource>) -> Vec<Tool> {
    let rules = &declared.rules;
    let listed = source.read(|lifecycle| lifecycle.listed_names.clone());
    let more = listed
        .iter()
        .map(String::as_str)
        .filter(|name| !rules.known_tools().any(|known| known == *name));
    let unavailable = |own: &str| {
        let reader = source.clone();
        let name = format!("{}{own}", rules.prefix);
        let runner = UnavailableTool::new(move || reader.unavailable_reason());
        let description = format!(
            "A tool of source `{}`, which is not available.",
            source.name
        );
        let mut tool = stand_in(declared, own, name, description, runner);
        if let Some(tool_rules) = rules.tools.get(own) {
            tool.definition.tags.clone_from(&tool_rules.tags);
            tool.definition.aliases.clone_from(&tool_rules.aliases);
        }
        apply_source_rules(&mut tool, declared, own, None);
        // An unavailable tool runs nothing, so nothing needs a retry or a cache. Without
        // idempotency, a key that is used now stays free for the real tool.
        tool.policy = Policy {
            retry: RetryPolicy::default(),
            cache: None,
            repeatable: true,
            idempotency: Idempotency::Off,
            ..tool.policy
        };
        tool
    };
    rules.known_tools().chain(more).map(unavailable).collect()
}

/// The answer for other names with this source's prefix, while it has no runner. `None` without a
/// prefix, because then any name could be meant.
fn unlisted_answer(declared: &DeclaredSource, source: &Arc<LiveSource>) -> Option<UnlistedSource> {
    let (prefix, source) = (declared.rules.prefix.clone(), source.clone());
    (!prefix.is_empty()).then(|| UnlistedSource {
        prefix,
        reason: Arc::new(move || source.unavailable_reason()),
    })
}
