//! Bounds how long a call waits for the ledger, which may be behind a network.

use std::future::Future;

use tokio::time::{Instant, timeout_at};

use crate::ledger::Error;

/// Waits for the ledger until the deadline of the call.
pub(super) async fn wait_until<T, E: From<Error>>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let Some(deadline) = deadline else {
        return work.await;
    };
    timeout_at(deadline, work).await.unwrap_or_else(|_| {
        let reason = "the database did not answer within the time of the call";
        Err(Error::Failed(reason.into()).into())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_ends_at_the_deadline() {
        let began = Instant::now();
        let deadline = Some(began + Duration::from_secs(3));
        let never = std::future::pending::<Result<(), Error>>();
        assert!(wait_until(deadline, never).await.is_err());
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        let found = wait_until(deadline, async { Ok::<_, Error>(1) }).await;
        assert_eq!(
            found.unwrap(),
            1,
            "a ready answer counts at the deadline too"
        );
    }
}
