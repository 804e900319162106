//! Runs work that may block on tokio's pool of blocking threads.

/// Runs `work` on a blocking thread. `None` when the runtime is stopping. A panic of `work`
/// continues in the caller.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}
