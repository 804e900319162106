//! `check --live`: starts the sources as `toolcrib tools` does, and reports those that fail.

use std::collections::HashSet;
use std::path::Path;

use toolcrib_process::sandbox::Level;

use super::super::Failure;
use super::super::failure::unless_stopped;
use super::super::tools::log_progress;
use crate::app::{self, DeclaredTools};
use crate::environment::Environment;
use crate::kinds::Tool;
use crate::kinds::sandbox::EntrySandbox;
use crate::manifest::{Finding, Location, Rule, Severity};

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

/// Files of the service that this machine cannot hide from programs. One finding for each reason, since tools
/// share it.
pub(super) fn find_exposed(tools: &[Tool], manifest: &Path) -> Vec<Finding> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for tool in tools {
        let prepared = tool.runner.sandbox().and_then(EntrySandbox::prepare);
        let Some(prepared) = prepared.filter(|sandbox| sandbox.level() == Level::Landlock) else {
            continue;
        };
        let missing = prepared.not_enforced().iter();
        let reasons = missing
            .filter(|missing| missing.part == "files" && seen.insert(missing.reason.clone()));
        found.extend(reasons.map(|missing| Finding {
            severity: Severity::Hint,
            ..Finding::warning(
                Location::start_of(manifest),
                "",
                format!(
                    "the sandbox of `{}` has the level landlock, which cannot hide all files of the service: {}",
                    tool.name(),
                    missing.reason
                ),
            )
            .with_rule(Rule::ExposedFile)
        }));
    }
    found
}
