//! MCP on standard input and output: one message per line.
//!
//! There is one client. It started the program, so it is the operator.
//!
//! - `transport`: reads lines up to a bound, gives rmcp messages and takes its answers
//! - `pending`: the requests without an answer. Their number is bounded, and the end waits for
//!   them.

mod pending;
mod transport;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use rmcp::ServerHandler;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::pending::Pending;
use self::transport::StdioTransport;
use crate::tracking::in_flight::InFlightCalls;

/// How long to wait until the last answers are written, after their calls have ended.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Standard input and output, as a transport for [`serve`].
pub fn stdio_streams() -> (
    impl AsyncRead + Send + Unpin + 'static,
    impl AsyncWrite + Send + Unpin + 'static,
) {
    rmcp::transport::io::stdio_pipes()
}

/// The bounds of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest message, in bytes.
    pub max_message: usize,
    /// How long running calls may continue after the end of the input or of `stop`.
    pub drain: Duration,
}

/// Answers requests until the input ends, the output is closed, or `stop` returns.
///
/// - After the end of the input, all requests that came before it are started and answered.
/// - After `stop`, no call starts.
/// - In both cases, running calls get `drain` to finish, less if `hurry` returns. Then they are
///   cancelled. All answers are written.
pub async fn serve<R, W>(
    handler: impl ServerHandler,
    (read, write): (R, W),
    running: &InFlightCalls,
    limits: Limits,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
) where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (pending, disconnected, done) = (
        Pending::default(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let transport = StdioTransport::new(
        read,
        write,
        limits.max_message,
        pending.clone(),
        disconnected.clone(),
    );
    let serving = async {
        let failure =
            match rmcp::service::serve_server_with_ct(handler, transport, done.clone()).await {
                Ok(service) => service.waiting().await.err().map(|error| error.to_string()),
                Err(ServerInitializeError::Cancelled) => None,
                Err(error) => Some(error.to_string()),
            };
        if let Some(error) = failure {
            tracing::error!(
                error,
                "the connection on standard input and output has ended"
            );
        }
        pending.clear();
        disconnected.cancel();
    };
    let stopping = async {
        let mut stop = pin!(stop);
        let input_ended = async {
            disconnected.cancelled().await;
            tracing::info!("the client has disconnected");
            let started = Instant::now();
            let _ = timeout(limits.drain, pending.wait_until_answered()).await;
            started.elapsed()
        };
        let drained = tokio::select! {
            () = &mut stop => Duration::ZERO,
            drained = input_ended => drained,
        };
        running
            .shut_down(Duration::ZERO, limits.drain.saturating_sub(drained), hurry)
            .await;
        let _ = timeout(ANSWER_TIME, pending.wait_until_answered()).await;
        done.cancel();
    };
    tokio::join!(serving, stopping);
}
