//! The two tasks of a source. One starts the source, and repeats that until its listing is served.
//! The other lists the served source again when it reports changed tools, without a restart.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::active_listing::UnusableListing;
use super::entry::{StartTask, WatchTask};
use super::live_source::LiveSource;
use super::states::Event;
use crate::runtime::backoff::Backoff;
use crate::sources::live::live_tools::LiveTools;
use crate::sources::{Source, SourceFault, SourceListing, SourceSettings, StatusFn};

const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};

/// What has become of a listing that can be used.
pub(super) enum Applied {
    /// Its tools are served.
    Served,
    /// A newer start has replaced this one, or the source was removed. The listing is ignored.
    Stale,
}

impl StartTask {
    /// Starts the source. `wait`: pause first, because it has just failed. Also returns the number
    /// of the start.
    pub(super) fn spawn(
        live: &Arc<LiveTools>,
        source: &Arc<LiveSource>,
        settings: &SourceSettings,
        wait: bool,
    ) -> (Self, u64) {
        let pause = wait.then(|| BACKOFF.wait_after(1, fastrand::f64()));
        let start = StartLoop {
            live: Arc::downgrade(live),
            source: source.clone(),
            number: source.begin_start(pause),
        };
        let (number, wake_up) = (start.number, Arc::new(Notify::new()));
        let instance = settings.build(&live.process_env);
        let task = tokio::spawn(
            start
                .run_until_served(instance, wake_up.clone(), pause)
                .boxed(),
        );
        let _task = AbortOnDropHandle::new(task);
        (Self { wake_up, _task }, number)
    }
}

struct StartLoop {
    live: Weak<LiveTools>,
    source: Arc<LiveSource>,
    number: u64,
}

impl StartLoop {
    async fn run_until_served(
        self,
        instance: Arc<dyn Source>,
        wake_up: Arc<Notify>,
        pause: Option<Duration>,
    ) {
        let mut failures = u32::from(pause.is_some());
        if let Some(pause) = pause {
            wait_or_wake(&wake_up, pause).await;
        }
        loop {
            record_activity(&self.source, self.number, "starting".into());
            // Register for the wake-up before the listing starts. `notify_waiters` wakes only tasks
            // that are registered already. So a request that comes while the source is being listed
            // is not lost.
            let mut wake_request = pin!(wake_up.notified());
            wake_request.as_mut().enable();
            let on_progress = {
                let (source, live, number) = (self.source.clone(), self.live.clone(), self.number);
                move |activity: String| {
                    let live = live.upgrade();
                    let activity =
                        live.map_or_else(|| activity.clone(), |live| live.sanitize_text(&activity));
                    tracing::info!(
                        source = &*source.name,
                        doing = activity,
                        "a source is loading"
                    );
                    record_activity(&source, number, activity);
                }
            };
            let listing = list_source(&instance, &on_progress).await;
            let Some(live) = self.live.upgrade() else {
                return;
            };
            let outcome = match listing {
                Ok(listed) => {
                    live.apply_listing(&self.source, self.number, instance.clone(), listed)
                        .await
                }
                Err(unusable) => Err(unusable),
            };
            let Err(UnusableListing { why, is_lasting }) = outcome else {
                return;
            };
            failures = failures.saturating_add(1);
            let pause = (!is_lasting).then(|| BACKOFF.wait_after(failures, fastrand::f64()));
            live.record_start_failure(&self.source, self.number, &why, pause);
            // Hold no strong reference while waiting, so that the service can end.
            drop(live);
            match pause {
                Some(pause) => wait_or_wake(&wake_up, pause).await,
                None => wake_request.await,
            }
        }
    }
}

fn record_activity(source: &LiveSource, start: u64, activity: String) {
    source.apply(Event::Progress { start, activity });
}

impl WatchTask {
    /// Lists the source again whenever it reports changed tools.
    pub(super) fn spawn(
        live: &Arc<LiveTools>,
        source: &Arc<LiveSource>,
        instance: &Arc<dyn Source>,
    ) -> Self {
        let watch = WatchLoop {
            live: Arc::downgrade(live),
            source: source.clone(),
            instance: instance.clone(),
        };
        Self {
            source: instance.clone(),
            task: AbortOnDropHandle::new(tokio::spawn(watch.run().boxed())),
        }
    }
}

struct WatchLoop {
    live: Weak<LiveTools>,
    source: Arc<LiveSource>,
    instance: Arc<dyn Source>,
}

impl WatchLoop {
    async fn run(self) {
        let mut pauses = ListingPauses::default();
        loop {
            self.instance.changed().await;
            sleep(pauses.next_pause()).await;
            self.source
                .apply(Event::RelistingBegun(self.instance.clone()));
            if !self.list_until_served().await {
                return;
            }
            pauses.record_listing();
        }
    }

    /// Lists the source until the listing is served. False if the source itself is not served any
    /// more.
    async fn list_until_served(&self) -> bool {
        let name = self.source.name.clone();
        let on_progress = move |activity: String| {
            tracing::debug!(
                source = &*name,
                doing = activity,
                "a source is listed again"
            );
        };
        let mut failures = 0_u32;
        loop {
            let listing = list_source(&self.instance, &on_progress).await;
            let Some(live) = self.live.upgrade() else {
                return false;
            };
            let outcome = match listing {
                Ok(listed) => {
                    live.apply_relisting(&self.source, &self.instance, listed)
                        .await
                }
                Err(unusable) => Err(unusable),
            };
            let why = match outcome {
                Ok(Applied::Served) => return true,
                Ok(Applied::Stale) => return false,
                Err(unusable) => unusable.why,
            };
            failures = failures.saturating_add(1);
            let pause = BACKOFF.wait_after(failures, fastrand::f64());
            live.record_relisting_failure(&self.source, &self.instance, &why, pause);
            // Hold no strong reference while waiting, so that the service can end.
            drop(live);
            sleep(pause).await;
        }
    }
}

/// Lists a source. A panic of the source is a failure like any other.
async fn list_source(
    instance: &Arc<dyn Source>,
    on_progress: &StatusFn,
) -> Result<SourceListing, UnusableListing> {
    let listing = AssertUnwindSafe(instance.list(on_progress)).catch_unwind();
    let listing = listing.await;
    let listing = listing.unwrap_or_else(|_| Err(SourceFault("it panicked".into())));
    listing.map_err(|SourceFault(why)| why.into())
}

async fn wait_or_wake(wake_up: &Notify, pause: Duration) {
    tokio::select! {
        () = sleep(pause) => {}
        () = wake_up.notified() => {}
    }
}

/// The pauses between listings, so that a source that reports changes all the time is not listed
/// all the time. The first listing starts at once, and each further pause is twice as long.
#[derive(Default)]
struct ListingPauses {
    consecutive: u32,
    last_listing: Option<Instant>,
}

impl ListingPauses {
    fn next_pause(&mut self) -> Duration {
        if self
            .last_listing
            .is_none_or(|last| last.elapsed() >= BACKOFF.longest)
        {
            self.consecutive = 0;
        }
        let pause = match self.consecutive {
            0 => Duration::ZERO,
            many => BACKOFF.wait_after(many, 1.0),
        };
        self.consecutive = self.consecutive.saturating_add(1);
        pause
    }

    fn record_listing(&mut self) {
        self.last_listing = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_between_listings_grow_to_one_minute() {
        let mut pauses = ListingPauses::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(pauses.next_pause().as_secs());
            pauses.record_listing();
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        sleep(BACKOFF.longest).await;
        assert_eq!(pauses.next_pause(), Duration::ZERO, "it was quiet");
    }
}
