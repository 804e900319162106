//! Explains why a program could not be started.

use std::io::{Error, ErrorKind};
use std::path::Path;

use super::CommandRunner;
use crate::call::ToolError;
use crate::tools::Values;

impl CommandRunner {
    /// The failure of an attempt whose program did not start. If the values are too long together, the fault names
    /// the caller's context or the model's argument.
    pub(super) fn start_error(&self, error: &Error, values: Values<'_>) -> ToolError {
        let too_long = error.kind() == ErrorKind::ArgumentListTooLong;
        match too_long.then(|| self.room.refused(&self.argv, &self.variables, values)) {
            Some(faults) if !faults.is_empty() => faults.into(),
            _ => start_error(&self.program, &self.workdir, error),
        }
    }
}

/// The failure of an attempt, and whether a further attempt may start the program.
fn start_error(program: &str, workdir: &Path, error: &Error) -> ToolError {
    let reason = match error.kind() {
        ErrorKind::NotFound if !workdir.is_dir() => "its working folder is not there".to_owned(),
        _ => error.to_string(),
    };
    let message = format!("cannot start {program}: {reason}");
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory | ErrorKind::ExecutableFileBusy => ToolError::upstream(message),
        _ => ToolError::upstream_final(message),
    }
    .before_anything()
}
