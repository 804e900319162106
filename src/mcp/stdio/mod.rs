//! MCP on standard input and output: one message a line, one client, who started the program and so is the operator.
//!
//! `lines` reads with a bound, `transport` is what rmcp asks for messages and hands answers to, and `pending` knows which
//! requests have not been answered: a client may not have more of them than it has room for, and the end waits for them.

mod lines;
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
use self::transport::Lines;
use crate::running::Running;

/// For answers to be written once their calls have ended.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Standard input and output as MCP's transport wants them.
pub fn streams() -> (impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static) {
    rmcp::transport::io::stdio_pipes()
}

/// What bounds it.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest message, in bytes.
    pub max_message: usize,
    /// How long running calls may go on once it is to end.
    pub drain: Duration,
}

/// Answers until the input ends, nobody reads the output, or `stop` ends. All that was asked until the input ended is begun and
/// answered; told to stop, no call begins any more. Running ones end, or are cancelled when `drain` is over or `hurry` ends, and
/// their answers are written.
pub async fn serve<R, W>(
    handler: impl ServerHandler,
    (read, write): (R, W),
    running: &Running,
    limits: Limits,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
) where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (pending, left, done) = (Pending::default(), CancellationToken::new(), CancellationToken::new());
    let transport = Lines::new(read, write, limits.max_message, pending.clone(), left.clone());
    let answering = async {
        let why = match rmcp::service::serve_server_with_ct(handler, transport, done.clone()).await {
            Ok(service) => service.waiting().await.err().map(|error| error.to_string()),
            Err(ServerInitializeError::Cancelled) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = why {
            tracing::error!(error, "the connection on standard input and output has ended");
        }
        pending.give_up();
        left.cancel();
    };
    let ending = async {
        let mut stop = pin!(stop);
        let asked = async {
            left.cancelled().await;
            tracing::info!("the client has left");
            let began = Instant::now();
            let _ = timeout(limits.drain, pending.answered()).await;
            began.elapsed()
        };
        let drained = tokio::select! {
            () = &mut stop => Duration::ZERO,
            drained = asked => drained,
        };
        running.end(Duration::ZERO, limits.drain.saturating_sub(drained), hurry).await;
        let _ = timeout(LAST_ANSWERS, pending.answered()).await;
        done.cancel();
    };
    tokio::join!(answering, ending);
}
