//! Runs a service: it answers until a signal stops it, drains, and closes.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::signals::StopSignals;
use super::{App, Error, replica_news, running_calls};
use crate::app::startup_banner::StartupBanner;
use crate::approval::webhooks::send_approval_webhooks;
use crate::call::Caller;
use crate::call::Selection;
use crate::ledger::{self, Ledger};
use crate::{http, manifest, mcp};

/// The maximum time that the start waits for sources before the service is announced without them.
const SOURCES_TIMEOUT: Duration = Duration::from_secs(5);
/// After the ledger has failed permanently: the time to kill running tools and to send the last
/// answers.
const LEDGER_FAILURE_DRAIN: Duration = Duration::from_millis(700);

/// The background work of a running service.
struct BackgroundWork {
    /// The signals to stop.
    stop_signals: StopSignals,
    /// Ends at the second signal.
    second_signal: AbortOnDropHandle<()>,
    /// Tasks that end when the service stops.
    tasks: JoinSet<()>,
}

impl App {
    /// Listens, and serves until SIGTERM or SIGINT. Then it drains, ends the sources and closes the
    /// ledger. A second signal shortens that.
    ///
    /// It prints `listening on http://ADDR` to standard output when every source was listed, or
    /// after five seconds. SIGHUP, or a change of the manifest's files, reloads the manifest.
    ///
    /// # Errors
    /// The address cannot be listened on, or would be open to others without callers.
    /// [`ledger::Error::Stopped`]: the disk failed, so its content is unknown. Running calls were
    /// cancelled, and the process should end.
    pub async fn serve(mut self) -> Result<(), Error> {
        let listen = &self.listen;
        let failed = |source| Error::Listen {
            listen: listen.clone(),
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.listens_at(address);
        let has_no_callers = self.registry().catalog().callers().is_empty();
        let is_unprotected = has_no_callers && !manifest::is_loopback(&address);
        if is_unprotected && !self.settings.allow_open {
            return Err(Error::Unprotected(address));
        }
        let BackgroundWork {
            mut stop_signals,
            second_signal,
            tasks,
        } = self.start_background_work()?;
        let (banner_output, app) = (self.banner_output.take(), &self);
        // A client that reads the line and calls at once should find its tools.
        let announce = async move {
            let _ = timeout(SOURCES_TIMEOUT, app.wait_for_sources()).await;
            StartupBanner::new(
                address,
                app.registry(),
                &app.sources(),
                &app.settings,
                app.demo,
            )
            .print(banner_output);
            if is_unprotected {
                tracing::warn!(%address, "open to other machines without any key");
            }
            std::future::pending::<()>().await;
        };
        let shared = self.registry().shared();
        let ledger = &*shared.ledger;
        let (stopped, shortened) = (
            or_ledger_failure(ledger, stop_signals.next()),
            or_ledger_failure(ledger, second_signal.map(drop)),
        );
        let (in_flight_calls, close_streams) =
            (shared.in_flight_calls.clone(), self.close_streams.clone());
        let served = http::serve(
            listener,
            self.router(),
            in_flight_calls,
            &self.settings,
            stopped,
            shortened,
            close_streams,
        );
        // `served` ends when the service has drained. `announce` never ends: it is here only to run
        // meanwhile. After a permanent failure of the ledger, calls could wait for it forever, so
        // the time to drain is bounded.
        tokio::select! {
            () = served => {}
            () = announce => {}
            () = ledger.wait_for_failure().then(|_| tokio::time::sleep(LEDGER_FAILURE_DRAIN)) => {}
        }
        self.shut_down(tasks).await
    }

    /// Serves one MCP client on standard input and output, and listens on no port. It ends at the
    /// end of standard input, SIGTERM or SIGINT. Then it drains, ends the sources and closes the
    /// ledger.
    ///
    /// The client started the process, so it is the operator. Its requests are read when every
    /// source was listed, or after five seconds. Otherwise it might take an incomplete list of
    /// tools for the complete list. Nothing else may be written to standard output meanwhile. The
    /// client has the tools of the selection.
    ///
    /// # Errors
    /// As [`App::serve`], except the errors of an address. There is no such toolset.
    pub async fn serve_stdio(self, selection: Selection) -> Result<(), Error> {
        let (catalog, operator) = (self.registry().catalog(), Caller::anonymous());
        catalog
            .check_selection(&operator, &selection)
            .map_err(Error::Toolset)?;
        drop(catalog);
        let BackgroundWork {
            mut stop_signals,
            second_signal,
            tasks,
        } = self.start_background_work()?;
        let shared = self.registry().shared().clone();
        let ledger = &*shared.ledger;
        let mut stopped = pin!(or_ledger_failure(ledger, stop_signals.next()));
        let is_listed = tokio::select! {
            _ = timeout(SOURCES_TIMEOUT, self.wait_for_sources()) => true,
            () = &mut stopped => false,
        };
        if is_listed {
            tracing::info!(
                tools = self.registry().catalog().len(),
                "serving MCP on standard input and output"
            );
            let (handler, streams) = (
                mcp::Handler::for_operator(self.registry().clone(), selection),
                mcp::stdio::stdio_streams(),
            );
            let limits = mcp::stdio::Limits {
                max_message: self.settings.max_body,
                drain: self.settings.drain,
            };
            let shortened = or_ledger_failure(ledger, second_signal.map(drop));
            tokio::select! {
                () = mcp::stdio::serve(handler, streams, &shared.in_flight_calls, limits, stopped, shortened) => {}
                () = ledger.wait_for_failure().then(|_| tokio::time::sleep(LEDGER_FAILURE_DRAIN)) => {}
            }
        }
        self.shut_down(tasks).await
    }

    /// Starts the background work of the service.
    fn start_background_work(&self) -> Result<BackgroundWork, Error> {
        let (stop_signals, mut signals) = (StopSignals::new()?, StopSignals::new()?);
        // Counting starts here: two signals that arrive before a receiver polls count as one.
        let second_signal =
            AbortOnDropHandle::new(tokio::spawn(async move { signals.wait_for_two().await }));
        let hangups = signal(SignalKind::hangup()).map_err(Error::Signals)?;
        let shared = self.registry().shared();
        let (ledger, clock, commits) = (
            &shared.ledger,
            &shared.clock,
            shared.metrics.commit_metrics(),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(self.live.clone().watch_for_changes(hangups).boxed());
        tasks.spawn(ledger::verify_counters(ledger.clone(), commits.clone()).boxed());
        tasks.spawn(ledger::watch_clock(clock.clone(), commits).boxed());
        tasks.spawn(self.registry().clone().sweep_approvals().boxed());
        if let Some(notices) = shared.approval_notices.clone() {
            tasks.spawn(send_approval_webhooks(self.registry().clone(), notices).boxed());
        }
        if let Some(changes) = ledger.watch_shared_changes() {
            tasks.spawn(replica_news::follow_changes(self.live.clone(), changes).boxed());
            tasks.spawn(running_calls::show(shared.clone()).boxed());
        }
        if let Some((news, answered)) = shared.runs.news().zip(ledger.watch_answered()) {
            tasks.spawn(replica_news::tell_answers(ledger.clone(), news.clone()).boxed());
            tasks.spawn(replica_news::follow_answers(shared.runs.clone(), answered).boxed());
        }
        let (ledger, clock) = (ledger.clone(), clock.clone());
        tasks.spawn(
            ledger::count_ended_hours(ledger.clone(), clock.clone(), self.retention).boxed(),
        );
        if let Some(retention) = self.retention {
            // Ends when the ledger is closed.
            tokio::spawn(ledger::run_retention(ledger, clock, retention).boxed());
        }
        Ok(BackgroundWork {
            stop_signals,
            second_signal,
            tasks,
        })
    }

    /// Ends the sources and closes the ledger, after all calls have ended.
    async fn shut_down(self, tasks: JoinSet<()>) -> Result<(), Error> {
        drop(tasks);
        self.close_parts().await;
        let shared = self.registry().shared();
        if let Some(error) = shared.ledger.wait_for_failure().now_or_never() {
            return Err(error.into());
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Waits for `signal` or for a permanent failure of the ledger. Such a failure ends the service
/// like a signal, and shortens the end.
async fn or_ledger_failure(ledger: &dyn Ledger, signal: impl Future<Output = ()>) {
    tokio::select! {
        () = signal => {}
        _ = ledger.wait_for_failure() => {}
    }
}
