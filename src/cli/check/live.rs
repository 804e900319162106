//! `check --live`: starts the sources as `toolcrib tools` does, and reports those that fail.

use std::path::Path;

use super::super::Failure;
use super::super::tools::log_progress;
use crate::app::{self, DeclaredTools, SourceFindings};
use crate::environment::Environment;
use crate::manifest::Finding;

/// What listing the sources has shown.
#[derive(Default)]
pub(super) struct LiveOutcome {
    /// All tools, those of the sources included.
    pub(super) tools: usize,
    /// Sources and tools that cannot be used, each with the reason.
    pub(super) faults: Vec<String>,
    /// Warnings about other sources, such as tools that are left out or quarantined.
    pub(super) warnings: Vec<String>,
    /// What misleads models in the definitions of the listed tools.
    pub(super) findings: Vec<SourceFindings>,
}

impl LiveOutcome {
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
) -> Result<LiveOutcome, Failure> {
    let listed = async {
        let declared = app::load_declared(path, environment, log_progress).await?;
        let DeclaredTools {
            tools,
            faults,
            warnings,
            findings,
            ..
        } = declared;
        Ok(LiveOutcome {
            tools: tools.len(),
            faults,
            warnings,
            findings,
        })
    };
    tokio::select! {
        listed = listed => listed,
        stopped = app::wait_for_stop() => {
            stopped?;
            Err(Failure::Failed("toolcrib: stopped".into()))
        }
    }
}
