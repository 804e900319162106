//! `check --live`: starts the sources as `toolcrib tools` does, and reports those that fail.

use std::path::Path;

use super::super::Failure;
use super::super::tools::log_progress;
use crate::app::{self, DeclaredTools};
use crate::environment::Environment;
use crate::manifest::Finding;

/// What listing the sources has shown.
#[derive(Default)]
pub(super) struct LiveOutcome {
    /// All tools, those of the sources included.
    pub(super) tools: usize,
    /// Sources and tools that cannot be used, each with the reason.
    pub(super) faults: Vec<String>,
    /// Findings about the definitions of listed tools.
    pub(super) findings: Vec<Finding>,
}

/// Starts the sources of a manifest, lists their tools, and stops them.
pub(super) async fn list_sources(path: &Path, environment: &Environment) -> Result<LiveOutcome, Failure> {
    let listed = async {
        let DeclaredTools { tools, faults, .. } = app::load_declared(path, environment, log_progress).await?;
        Ok(LiveOutcome { tools: tools.len(), faults, findings: Vec::new() })
    };
    tokio::select! {
        listed = listed => listed,
        stopped = app::wait_for_stop() => {
            stopped?;
            Err(Failure::Failed("toolcrib: stopped".into()))
        }
    }
}
