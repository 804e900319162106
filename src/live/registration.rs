//! Tools that come over HTTP. The ledger's database stores them, and each start and reload restores them.

use std::sync::Arc;

use serde_json::Value;

use super::Live;
use crate::blocking;
use crate::ledger::{Error, Registered};
use crate::manifest::{Defaults, Finding, read_registered};
use crate::registry::{ChangeError, Entry};
use crate::tools::{Clients, Tool};

/// Why a tool was not registered. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The definition has these faults. Their positions are JSON Pointers.
    #[error("{} faults", .0.len())]
    Definition(Vec<Finding>),
    /// A name is not free, the tool cannot be built, too many tools are registered, or the ledger failed.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl Live {
    /// Registers a tool, or replaces the registered tool of that name. `by` is the admin of the request. The tool is
    /// committed when this returns. The result says whether the name is new.
    ///
    /// # Errors
    /// [`PutError`].
    pub async fn put(
        self: &Arc<Self>,
        name: &str,
        definition: Value,
        by: &str,
    ) -> Result<(Arc<Entry>, bool), PutError> {
        let mut state = self.state.lock().await;
        let kept = Registered {
            name: name.to_owned(),
            definition: definition.to_string(),
            by: by.to_owned(),
            at: self.registry.shared().clock.now(),
        };
        let (named, defaults, clients) = (name.to_owned(), state.world.defaults.clone(), self.clients.load_full());
        // Making an HTTP client reads the system's certificates, which blocks.
        let read = blocking::on_a_thread(move || read_registered(&named, &definition, &defaults, &clients)).await;
        let (tool, warnings) = read.ok_or(ChangeError::Ledger(Error::Closed))?.map_err(PutError::Definition)?;
        let (entry, is_new) = self.registry.put(self.plan.admit(tool), kept).await?;
        tracing::info!(tool = name, by, is_new, "a tool was registered");
        for warning in warnings {
            tracing::warn!(tool = name, "{warning}");
        }
        if !is_new {
            // The replaced definition may have had other names, which are free now for tools that were left out.
            self.seat_left_out(&mut state).await;
        }
        self.judge_lists();
        Ok((entry, is_new))
    }

    /// Removes a registered tool. The removal is committed when this returns.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn delete(self: &Arc<Self>, name: &str, by: &str) -> Result<(), ChangeError> {
        let mut state = self.state.lock().await;
        self.registry.delete(name).await?;
        tracing::info!(tool = name, by, "a registered tool was removed");
        self.seat_left_out(&mut state).await;
        self.judge_lists();
        Ok(())
    }

    /// The tools that the ledger stores. A tool that cannot be read any more, perhaps after an upgrade, is skipped and
    /// stays in the ledger.
    pub(super) async fn registered(&self, defaults: Defaults) -> Result<Vec<Tool>, Error> {
        let kept = self.registry.shared().ledger.registered().await?;
        let (plan, clients) = (self.plan.clone(), self.clients.load_full());
        let read = move || {
            let read = |one: Registered| match read(&one, &defaults, &clients) {
                Ok(tool) => Some(plan.admit(tool)),
                Err(why) => {
                    tracing::error!(tool = one.name, why, "a registered tool cannot be read; PUT it anew or DELETE it");
                    None
                }
            };
            kept.into_iter().filter_map(read).collect()
        };
        blocking::on_a_thread(read).await.ok_or(Error::Closed)
    }
}

fn read(kept: &Registered, defaults: &Defaults, clients: &Clients) -> Result<Tool, String> {
    let definition: Value = serde_json::from_str(&kept.definition).map_err(|error| format!("not JSON: {error}"))?;
    let read = read_registered(&kept.name, &definition, defaults, clients);
    read.map(|(tool, _)| tool).map_err(|found| found.first().map(ToString::to_string).unwrap_or_default())
}
