//! A tool's work that may block.

use crate::blocking;
use crate::call::ToolError;

/// Runs `work` on a thread for such. A panic is caught where all of a tool's are, in the attempt layer.
pub(super) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = blocking::on_a_thread(work).await;
    done.unwrap_or_else(|| Err(ToolError::unavailable("the service is stopping")))
}
