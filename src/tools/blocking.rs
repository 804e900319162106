//! Work that may block, on a thread of the pool that is there for it.

use crate::call::ToolError;

/// Runs `work` on such a thread. A panic goes on as the panic it was: the attempt layer catches all of them in one place.
pub(super) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ToolError::Unavailable("the service is stopping".into())),
        },
    }
}
