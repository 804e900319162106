//! Tools that come over HTTP. The ledger's database stores them, and each start and reload restores
//! them.

use std::sync::Arc;

use serde_json::Value;

use super::live_tools::LiveTools;
use crate::catalog::registry::{ChangeError, Entry, SkippedTool};
use crate::kinds::{HttpClients, Tool};
use crate::ledger::{Error, RegisteredTool};
use crate::manifest::{Defaults, Finding, read_registered_tool};
use crate::runtime::blocking;

/// Why a tool was not registered. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The definition has these faults. Their positions are JSON Pointers.
    #[error("{} faults", .0.len())]
    Definition(Vec<Finding>),
    /// A name is not free, the tool cannot be built, too many tools are registered, or the ledger
    /// failed.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl LiveTools {
    /// Registers a tool, or replaces the registered tool of that name. `by` is the admin of the
    /// request. The tool is committed when this returns. The result says whether the name is new.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub async fn register_tool(
        self: &Arc<Self>,
        name: &str,
        definition: Value,
        by: &str,
    ) -> Result<(Arc<Entry>, bool), RegisterError> {
        let mut state = self.state.lock().await;
        let stored = RegisteredTool {
            name: name.to_owned(),
            definition: definition.to_string(),
            registered_by: by.to_owned(),
            registered_at: self.registry.shared().clock.now(),
        };
        let (named, defaults, clients) = (
            name.to_owned(),
            state.declared_state.defaults.clone(),
            self.clients.load_full(),
        );
        // Making an HTTP client reads the system's certificates, which blocks.
        let read = blocking::run_blocking(move || {
            read_registered_tool(&named, &definition, &defaults, &clients)
        })
        .await;
        let (tool, warnings) = read
            .ok_or(ChangeError::Ledger(Error::Closed))?
            .map_err(RegisterError::Definition)?;
        let (entry, is_new) = self
            .registry
            .put_registered(self.config.with_deny_list(tool), stored)
            .await?;
        tracing::info!(tool = name, by, is_new, "a tool was registered");
        for warning in warnings {
            tracing::warn!(tool = name, "{warning}");
        }
        if !is_new {
            // The replaced definition may have had other names, which are free now for rejected
            // tools.
            self.place_rejected_tools(&mut state).await;
        }
        self.check_tool_lists();
        Ok((entry, is_new))
    }

    /// Removes a registered tool. The removal is committed when this returns.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn delete_tool(self: &Arc<Self>, name: &str, by: &str) -> Result<(), ChangeError> {
        let mut state = self.state.lock().await;
        self.registry.delete_registered(name, by).await?;
        tracing::info!(tool = name, by, "a registered tool was removed");
        self.place_rejected_tools(&mut state).await;
        self.check_tool_lists();
        Ok(())
    }

    /// The tools that the ledger stores. A tool that cannot be read any more, perhaps after an
    /// upgrade, is skipped and stays in the ledger.
    pub(super) async fn load_registered_tools(
        &self,
        defaults: Defaults,
    ) -> Result<Vec<Tool>, Error> {
        let stored = self.registry.shared().ledger.registered_tools().await?;
        let (config, clients) = (self.config.clone(), self.clients.load_full());
        let read_all = move || {
            let parse =
                |stored: RegisteredTool| match parse_registered(&stored, &defaults, &clients) {
                    Ok(tool) => Some(config.with_deny_list(tool)),
                    Err(why) => {
                        tracing::error!(
                            tool = stored.name,
                            why,
                            "a registered tool cannot be read; PUT it again or DELETE it"
                        );
                        None
                    }
                };
            stored.into_iter().filter_map(parse).collect()
        };
        blocking::run_blocking(read_all).await.ok_or(Error::Closed)
    }
}

pub(super) fn log_skipped_tools(skipped: &[SkippedTool]) {
    for SkippedTool { name, reason: why } in skipped {
        tracing::warn!(tool = name, why, "a registered tool is skipped");
    }
}

fn parse_registered(
    stored: &RegisteredTool,
    defaults: &Defaults,
    clients: &HttpClients,
) -> Result<Tool, String> {
    let definition: Value =
        serde_json::from_str(&stored.definition).map_err(|error| format!("not JSON: {error}"))?;
    let read = read_registered_tool(&stored.name, &definition, defaults, clients);
    read.map(|(tool, _)| tool)
        .map_err(|found| found.first().map(ToString::to_string).unwrap_or_default())
}
