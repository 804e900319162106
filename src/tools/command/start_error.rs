//! Why a program could not be started.

use std::io::{Error, ErrorKind};
use std::path::Path;

use crate::call::ToolError;

/// The failure of a try, and whether another try may start the program.
pub(super) fn start_error(program: &str, workdir: &Path, error: &Error) -> ToolError {
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
