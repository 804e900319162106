//! `check --live`: starts the sources as `toolcrib tools` does, and reports those that fail.

use std::path::Path;

use super::super::Failure;
use super::super::failure::unless_stopped;
use super::super::tools::log_progress;
use crate::app::{self, DeclaredTools};
use crate::environment::Environment;
use crate::manifest::Finding;

/// What `check` asks of the listed tools.
impl DeclaredTools {
    /// Without the warnings about documents that the check has found in the files.
    pub(super) fn without_repetitions(mut self, findings: &[Finding]) -> Self {
        let texts: Vec<String> = findings
            .iter()
            .filter_map(|finding| {
                let name = finding
                    .path
                    .strip_prefix("openapi.")?
                    .strip_suffix(".document")?;
                Some(format!("source `{name}`: warning: {}", finding.message))
            })
            .collect();
        self.warnings.retain(|warning| !texts.contains(warning));
        self
    }

    /// The number of all warnings.
    pub(super) fn count_warnings(&self) -> usize {
        self.warnings.len()
            + self
                .findings
                .iter()
                .map(|found| found.warnings)
                .sum::<usize>()
    }
}

/// Starts the sources of a manifest, lists their tools, and stops them.
pub(super) async fn list_sources(
    path: &Path,
    environment: &Environment,
) -> Result<DeclaredTools, Failure> {
    let listed = app::load_declared(path, environment, log_progress);
    Ok(unless_stopped(listed, "toolcrib: stopped").await??)
}
