//! Replaces the manifest with a new one, as a whole or not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::watch::Sender;

use super::file_snapshot::FileSnapshot;
use super::fixed::Fixed;
use super::sources::{Sources, look};
use super::{Error, Live, ManifestReading, Plan, Remembered, State, Status};
use crate::blocking;
use crate::call::Origin;
use crate::callers::Callers;
use crate::ledger;
use crate::manifest::{Finding, Manifest, Place, Severity};
use crate::pins;
use crate::registry::{Registry, SkippedTool};
use crate::tools::{Clients, ProcessEnv, Tool};

impl Live {
    /// Fills an empty registry with the tools of program and manifest, and with the stored registered tools.
    ///
    /// # Errors
    /// Why the service cannot be built.
    pub(crate) async fn start(
        registry: Arc<Registry>,
        plan: Plan,
        manifest: Manifest,
        seen: FileSnapshot,
    ) -> Result<Arc<Self>, Error> {
        let (world, sources) = (Remembered::default(), Sources::default());
        let surroundings = ProcessEnv::new(registry.shared().redactor.clone(), &plan.environment);
        let surroundings = surroundings.of_service_at(plan.own.clone());
        let live = Arc::new(Self {
            _ends: surroundings.ends(),
            surroundings,
            clients: ArcSwap::default(),
            registry,
            plan: Arc::new(plan),
            state: State { world, sources, fixed: Fixed::of(&manifest), seen }.into(),
            status: ArcSwap::default(),
            lists: Mutex::default(),
            shown: ArcSwap::default(),
            told: Sender::new(()),
            has_started: AtomicBool::new(false),
        });
        live.take(&mut *live.state.lock().await, manifest).await?;
        live.has_started.store(true, Ordering::Relaxed);
        Ok(live)
    }

    /// Whether [`start`](Self::start) has ended. A source that is added later is not awaited by the readiness probe.
    pub(super) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Relaxed)
    }

    /// Reads the manifest again. A valid manifest replaces the old one in one step: callers, tools, aliases. A manifest
    /// with errors changes nothing, and the log has its errors. Without a manifest, this does nothing.
    ///
    /// Running calls finish in the stacks in which they started. Counts of limits, switches, stored results of
    /// unchanged tools and concurrency permits carry over.
    ///
    /// # Errors
    /// Why the old manifest was kept.
    pub async fn reload(self: &Arc<Self>) -> Result<(), Error> {
        if self.plan.manifest.is_none() {
            tracing::warn!("there is no manifest, so nothing was read again");
            return Ok(());
        }
        let mut state = self.state.lock().await;
        let plan = self.plan.clone();
        let read = blocking::on_a_thread(move || plan.read_again()).await;
        let ManifestReading { outcome, seen } = read.ok_or(ledger::Error::Closed)?;
        // Keep the snapshot even if the manifest has errors. Otherwise each poll would read the same errors again.
        state.seen = seen;
        let outcome = outcome.and_then(|manifest| with_pins(manifest, &state.world, &self.plan));
        let done = match outcome {
            Ok(manifest) => self.replace(&mut state, manifest).await,
            Err(findings) => Err(Error::Manifest(findings)),
        };
        let mut status = Status::clone(&self.status.load());
        match &done {
            Ok(()) => {
                status.taken += 1;
                status.kept = None;
            }
            Err(error) => {
                status.refused += 1;
                status.kept = Some(kept(error));
                say_why(error);
            }
        }
        self.status.store(Arc::new(status));
        done
    }

    async fn replace(self: &Arc<Self>, state: &mut State, manifest: Manifest) -> Result<(), Error> {
        let now = Fixed::of(&manifest);
        let before = self.registry.catalog();
        self.take(state, manifest).await?;
        let after = self.registry.catalog();
        let tools = after.changes_since(&before);
        let callers = after.callers().changes_since(before.callers());
        tracing::info!(count = after.len(), %tools, %callers, "a new manifest is served");
        let late = state.fixed.changed(&now, &self.plan);
        if !late.is_empty() {
            tracing::warn!(keys = late.join(", "), "changed, and taken over at the next start");
        }
        Ok(())
    }

    /// Makes the manifest the current one.
    async fn take(self: &Arc<Self>, state: &mut State, manifest: Manifest) -> Result<(), Error> {
        // The order matters. First come the checks that can refuse the manifest. The redactor learns the new secrets
        // before a tool can use them. Then the catalog is replaced. `state.world` follows only after that has
        // succeeded, so a refused manifest leaves no trace in later changes.
        let Manifest { defaults, callers, calls, tools, sources, taken, secrets, warnings, pins, lists, .. } = manifest;
        // A truncated file, or one that is still being written, must not open the service to every client.
        if callers.is_empty() && !self.registry.catalog().callers().is_empty() {
            return Err(Error::Unguarded);
        }
        let tools = self.plan.tools(tools, &taken)?;
        let sources = look(self.plan.sources(sources)?).await.ok_or(ledger::Error::Closed)?;
        self.registry
            .shared()
            .redactor
            .learn(secrets.iter().map(String::as_str).chain(tools.iter().flat_map(Tool::secrets)));
        self.clients.store(Arc::new(Clients::new(self.plan.own.clone())));
        let world =
            Remembered { callers: Arc::new(Callers::new(callers)), calls, tools, defaults, is_pinned: pins.is_some() };
        let aside = self.put_sources(&mut state.sources, &world, sources).await?;
        state.world = world;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        warn_of(&aside);
        self.seat_left_out(state).await;
        self.take_lists(lists);
        let registered = self.registry.catalog().count(Origin::Registered);
        tracing::debug!(registered, "registered tools");
        Ok(())
    }
}

/// Refuses the manifest if its pins are gone while it has servers. Without this check, deleting the file of pins would
/// serve every tool of those servers unapproved. An unreadable file is refused as well.
fn with_pins(manifest: Manifest, before: &Remembered, plan: &Plan) -> Result<Manifest, Vec<Finding>> {
    let has_servers = manifest.sources.iter().any(|source| source.settings.is_foreign());
    match &plan.manifest {
        Some(path) if before.is_pinned && has_servers && manifest.pins.is_none() => {
            let place = Place { file: pins::file_of(path).into(), line: 1, column: 1 };
            let message = "is gone, so the pins that were read from it stay; put it back, or start the service anew to serve \
                           without it";
            Err(vec![Finding::error(place, "", message)])
        }
        _ => Ok(manifest),
    }
}

pub(super) fn warn_of(aside: &[SkippedTool]) {
    for SkippedTool { name, why } in aside {
        tracing::warn!(tool = name, why, "a registered tool is set aside");
    }
}

/// The reason in short, for `/readyz`. It has no details of the manifest.
fn kept(error: &Error) -> String {
    let what = match error {
        Error::Manifest(findings) => match findings.iter().filter(|found| is_error(found)).count() {
            1 => "it has an error".to_owned(),
            many => format!("it has {many} errors"),
        },
        Error::Tool(_) => "a tool in it cannot be built".into(),
        Error::Ledger(_) => "the ledger could not be read".into(),
        Error::Unguarded => "it has no callers".into(),
    };
    format!("kept the one before, not what is there now: {what}; the log says more")
}

fn is_error(finding: &Finding) -> bool {
    finding.severity == Severity::Error
}

fn say_why(error: &Error) {
    match error {
        Error::Manifest(findings) => {
            for finding in findings {
                match finding.severity {
                    Severity::Error => tracing::error!("{finding}"),
                    Severity::Warning => tracing::warn!("{finding}"),
                    Severity::Hint => tracing::info!("{finding}"),
                }
            }
        }
        other => tracing::error!("{other}"),
    }
    tracing::error!("the manifest was not taken; the one before is served on");
}
