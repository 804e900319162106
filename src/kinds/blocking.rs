//! Runs the parts of a tool's work that may block.

use crate::call::ToolError;
use crate::runtime::blocking;

/// Runs `work` on a blocking thread. A panic continues in the caller, and the attempt layer catches
/// it like any panic of a tool.
pub(super) async fn run_on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = blocking::run_blocking(work).await;
    done.unwrap_or_else(|| Err(ToolError::unavailable("the service is stopping")))
}
