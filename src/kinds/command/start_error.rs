//! Explains why a program could not be started.

use std::io::{Error, ErrorKind};
use std::path::Path;

use super::runner::CommandRunner;
use crate::call::ToolError;
use crate::kinds::Values;

impl CommandRunner {
    /// The failure of an attempt whose program did not start. If the values are too long together,
    /// the fault names the caller's context or the model's argument.
    pub(super) fn explain_start_error(&self, error: &Error, values: Values<'_>) -> ToolError {
        let too_long = error.kind() == ErrorKind::ArgumentListTooLong;
        match too_long.then(|| {
            self.size_limit
                .faults_after_refused_start(&self.argv, &self.variables, values)
        }) {
            Some(faults) if !faults.is_empty() => faults.into(),
            _ => start_failure(&self.program, &self.workdir, error),
        }
    }
}

/// The failure of an attempt, and whether a further attempt may start the program.
fn start_failure(program: &str, workdir: &Path, error: &Error) -> ToolError {
    let reason = match error.kind() {
        ErrorKind::NotFound if !workdir.is_dir() => "its working folder does not exist".to_owned(),
        _ => error.to_string(),
    };
    let message = format!("cannot start {program}: {reason}");
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory | ErrorKind::ExecutableFileBusy => {
            ToolError::upstream(message)
        }
        _ => ToolError::upstream_permanent(message),
    }
    .not_delivered()
}
