//! Work that may block, on a thread of the pool that is there for it.

/// Runs `work` on such a thread; `None` when the service is stopping. A panic goes on as the panic it was.
pub(crate) async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}
