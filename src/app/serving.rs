//! Runs a service: it answers until a signal stops it, drains, and closes.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::signals::Signals;
use super::{App, Error};
use crate::ledger::{self, Ledger};
use crate::startup_banner::Start;
use crate::{http, manifest, mcp};

/// The maximum time that the start waits for sources before the service is announced without them.
const SOURCES_TIME: Duration = Duration::from_secs(5);
/// After the ledger has failed permanently: the time to kill running tools and to send the last answers.
const FAILED_TIME: Duration = Duration::from_millis(700);

/// The background work of a running service.
struct Beside {
    /// The signals to stop.
    stop: Signals,
    /// Ends at the second signal.
    hurry: AbortOnDropHandle<()>,
    /// Tasks that end when the service stops.
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl App {
    /// Listens, and serves until SIGTERM or SIGINT. Then it drains, ends the sources and closes the ledger. A second
    /// signal shortens that.
    ///
    /// It prints `listening on http://ADDR` to standard output when every source was listed, or after five seconds.
    /// SIGHUP, or a change of the manifest's files, reloads the manifest.
    ///
    /// # Errors
    /// The address cannot be listened on, or would be open to others without callers. [`ledger::Error::Stopped`]: the
    /// disk failed, so its content is unknown. Running calls were cancelled, and the process should end.
    pub async fn serve(mut self) -> Result<(), Error> {
        let listen = &self.listen;
        let failed = |source| Error::Listen { listen: listen.clone(), source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.listens_at(address);
        let alone = self.registry().catalog().callers().is_empty();
        let open = alone && !manifest::is_loopback(&address);
        if open && !self.settings.allow_open {
            return Err(Error::Open(address));
        }
        let Beside { mut stop, hurry, tasks } = self.beside()?;
        let (person, app) = (self.person.take(), &self);
        // A client that reads the line and calls at once should find its tools.
        let announced = async move {
            let _ = timeout(SOURCES_TIME, app.sources_listed()).await;
            Start::new(address, app.registry(), &app.sources(), &app.settings, app.demo).say(person);
            if open {
                tracing::warn!(%address, "open to other machines without any key");
            }
            std::future::pending::<()>().await;
        };
        let shared = self.registry().shared();
        let ledger = &*shared.ledger;
        let (stopped, hurried) = (or_failed(ledger, stop.next()), or_failed(ledger, hurry.map(drop)));
        let (running, ending) = (shared.running.clone(), self.ending.clone());
        let served = http::serve(listener, self.router(), running, &self.settings, stopped, hurried, ending);
        // `served` ends when the service has drained. `announced` never ends: it is here only to run meanwhile. After a
        // permanent failure of the ledger, calls could wait for it forever, so the time to drain is bounded.
        tokio::select! {
            () = served => {}
            () = announced => {}
            () = ledger.failed().then(|_| tokio::time::sleep(FAILED_TIME)) => {}
        }
        self.end(tasks).await
    }

    /// Serves one MCP client on standard input and output, and listens on no port. It ends at the end of standard
    /// input, SIGTERM or SIGINT. Then it drains, ends the sources and closes the ledger.
    ///
    /// The client started the process, so it is the operator. Its requests are read when every source was listed, or
    /// after five seconds. Otherwise it might take an incomplete list of tools for the complete list. Nothing else
    /// may be written to standard output meanwhile.
    ///
    /// # Errors
    /// As [`App::serve`], except the errors of an address.
    pub async fn serve_stdio(self) -> Result<(), Error> {
        let Beside { mut stop, hurry, tasks } = self.beside()?;
        let shared = self.registry().shared().clone();
        let ledger = &*shared.ledger;
        let mut stopped = pin!(or_failed(ledger, stop.next()));
        let is_heard = tokio::select! {
            _ = timeout(SOURCES_TIME, self.sources_listed()) => true,
            () = &mut stopped => false,
        };
        if is_heard {
            tracing::info!(tools = self.registry().catalog().len(), "serving MCP on standard input and output");
            let (handler, streams) = (mcp::Handler::new(self.registry().clone()), mcp::stdio::streams());
            let limits = mcp::stdio::Limits { max_message: self.settings.max_body, drain: self.settings.drain };
            let hurried = or_failed(ledger, hurry.map(drop));
            tokio::select! {
                () = mcp::stdio::serve(handler, streams, &shared.running, limits, stopped, hurried) => {}
                () = ledger.failed().then(|_| tokio::time::sleep(FAILED_TIME)) => {}
            }
        }
        self.end(tasks).await
    }

    /// Starts the background work of the service.
    fn beside(&self) -> Result<Beside, Error> {
        let (stop, mut signals) = (Signals::new()?, Signals::new()?);
        // Counting starts here: two signals that arrive before a receiver polls count as one.
        let hurry = AbortOnDropHandle::new(tokio::spawn(async move { signals.second().await }));
        let hangups = signal(SignalKind::hangup()).map_err(Error::Signals)?;
        let shared = self.registry().shared();
        let (ledger, clock, commits) = (&shared.ledger, &shared.clock, shared.metrics.commits());
        let tasks = vec![
            AbortOnDropHandle::new(tokio::spawn(self.live.clone().watch(hangups))),
            AbortOnDropHandle::new(tokio::spawn(ledger::verify(ledger.clone(), commits.clone()))),
            AbortOnDropHandle::new(tokio::spawn(ledger::mind_the_clock(clock.clone(), commits))),
        ];
        if let Some(keep) = self.retention {
            // Ends when the ledger is closed.
            tokio::spawn(ledger::retain(ledger.clone(), clock.clone(), keep));
        }
        Ok(Beside { stop, hurry, tasks })
    }

    /// Ends the sources and closes the ledger, after all calls have ended.
    async fn end(self, tasks: Vec<AbortOnDropHandle<()>>) -> Result<(), Error> {
        drop(tasks);
        self.live.stop_sources().await;
        let shared = self.registry().shared();
        shared.ledger.close().await;
        shared.call_log.flush().await;
        if let Some(error) = shared.ledger.failed().now_or_never() {
            return Err(error.into());
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Waits for `told` or for a permanent failure of the ledger. Such a failure ends the service like a signal, and
/// shortens the end.
async fn or_failed(ledger: &dyn Ledger, told: impl Future<Output = ()>) {
    tokio::select! {
        () = told => {}
        _ = ledger.failed() => {}
    }
}
