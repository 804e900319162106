//! What becomes of the running calls when the service is told to stop.

use std::future::Future;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::http::settings::ServerSettings;
use crate::running::Running;

/// For cancelled calls to stop what they run and write their rows.
const CANCEL_TIME: Duration = Duration::from_secs(3);

/// Lets the running calls end, and ends them when their time is over.
pub(super) async fn end_calls(running: &Running, settings: &ServerSettings, hurry: impl Future<Output = ()>) {
    let wait = async {
        if !settings.linger.is_zero() {
            tracing::info!(calls = running.len(), "stopping: not ready any more, still serving");
            sleep(settings.linger).await;
        }
        running.close();
        tracing::info!(calls = running.len(), "stopping: no new calls, waiting for running ones");
        if timeout(settings.drain, running.drained()).await.is_err() {
            tracing::warn!(calls = running.len(), "the drain time is over: running calls are cancelled");
        }
    };
    tokio::select! {
        () = wait => {}
        () = hurry => {
            running.close();
            tracing::warn!(calls = running.len(), "told to hurry: running calls are cancelled");
        }
    }
    running.cancel_all();
    if timeout(CANCEL_TIME, running.drained()).await.is_err() {
        tracing::error!(calls = running.len(), "calls did not stop in time; the next start finds them `unknown`");
    }
}
