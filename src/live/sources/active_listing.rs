//! A listing that is served.

use std::sync::Arc;

use super::listing::UsableListing;
use super::status_tracker::QuarantinedTool;
use super::tools::{self, SelectedTools, UnusableListing};
use crate::live::file_snapshot::FileSnapshot;
use crate::manifest::{DeclaredSource, ListedFindings, lint_listed_tools};
use crate::tools::{Source, Tool};

/// A listed source with the tools that were made of the listing.
#[derive(Clone)]
pub(super) struct ActiveListing {
    pub(super) declared: Arc<DeclaredSource>,
    pub(super) files: FileSnapshot,
    pub(super) source: Arc<dyn Source>,
    pub(super) listing: Arc<UsableListing>,
    pub(super) tools: Vec<Tool>,
    /// Warnings about the listing and the tools, for the operator.
    pub(super) warnings: Vec<String>,
    pub(super) quarantined: Vec<QuarantinedTool>,
    /// What misleads models in the definitions, for the author of the tools.
    pub(super) findings: ListedFindings,
}

impl ActiveListing {
    /// Makes tools of a listing. `before` names tools that the source had earlier.
    pub(super) fn new(
        declared: &Arc<DeclaredSource>,
        files: &FileSnapshot,
        source: Arc<dyn Source>,
        listing: Arc<UsableListing>,
        before: &[String],
    ) -> Result<Self, UnusableListing> {
        let SelectedTools {
            tools,
            warnings: tool_warnings,
            quarantined,
        } = tools::select_tools(declared, &listing, files, before)?;
        let warnings = listing
            .warnings
            .iter()
            .cloned()
            .chain(tool_warnings)
            .collect();
        // The definition of a quarantined tool is not shown, so it is not examined either.
        let findings = lint_listed_tools(tools.iter().filter(|tool| !tool.quarantined));
        let (declared, files) = (declared.clone(), files.clone());
        Ok(Self {
            declared,
            files,
            source,
            listing,
            tools,
            warnings,
            quarantined,
            findings,
        })
    }

    /// Whether it was started with the same settings and the same files.
    pub(super) fn was_started_with(&self, declared: &DeclaredSource, files: &FileSnapshot) -> bool {
        self.declared.settings == declared.settings && self.files.has_same_content(files)
    }
}
