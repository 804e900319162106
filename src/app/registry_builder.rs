//! Builds a registry without a service, for a program that calls tools itself.

use std::path::PathBuf;
use std::sync::Arc;

use super::shared::build_shared;
use super::{AppBuilder, Error};
use crate::access::callers::Callers;
use crate::call::Clock;
use crate::catalog::registry::{DesiredState, Registry};
use crate::environment::Environment;
use crate::kinds::{Agent, BuildError, HttpClients, Tool};
use crate::ledger;
use crate::log::CallLog;
use crate::manifest::Manifest;
use crate::metrics::Metrics;
use crate::sources::live;

/// Collects the parts of a [`Registry`] without a server. [`Registry::builder`] starts one.
#[derive(Default)]
pub struct RegistryBuilder(AppBuilder);

impl Registry {
    /// Starts the builder of a registry without a service. Its tools have the same layers as those
    /// of a service, the program is their caller, and nothing listens.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use serde_json::json;
    /// use toolcrib::{Registry, tool};
    ///
    /// /// Adds two whole numbers.
    /// #[tool(effect = "read")]
    /// fn add(one: i64, other: i64) -> i64 {
    ///     one + other
    /// }
    ///
    /// let registry = Registry::builder().tool(add::tool()).build().await?;
    /// let answer = registry.execute("add", json!({"one": 2, "other": 3})).await.ok_or("no such tool")??;
    /// assert_eq!(answer.result.as_text(), "5");
    /// registry.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::default()
    }
}

impl RegistryBuilder {
    /// Adds a tool.
    #[must_use]
    pub fn tool(self, tool: Tool) -> Self {
        Self(self.0.tool(tool))
    }

    /// Adds an agent as a tool. It finds the tools that it may use by name, including those that
    /// are registered later.
    #[must_use]
    pub fn agent(self, agent: Tool<Agent>) -> Self {
        Self(self.0.agent(agent))
    }

    /// Shares a value with all native tools. They get it with `ToolContext::service::<T>()`.
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(self, value: T) -> Self {
        Self(self.0.share(value))
    }

    /// Sets the ledger (`sqlite://FILE`, relative to the working folder). By default it is in a
    /// temporary folder that is deleted with the registry. Calls, limits and stored results are
    /// then lost when the program ends.
    #[must_use]
    pub fn ledger(self, url: impl Into<String>) -> Self {
        Self(self.0.ledger(url))
    }

    /// Sets the variables for tools. The default is the environment of the process.
    #[must_use]
    pub fn environment(self, environment: Environment) -> Self {
        Self(self.0.environment(environment))
    }

    /// Replaces the clock, for tests of windows and expiry.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self(self.0.clock(clock))
    }

    /// Sets the destination of the log line of each call. The default is tracing events.
    #[must_use]
    pub fn call_log(self, log: CallLog) -> Self {
        Self(self.0.call_log(log))
    }

    /// Opens the ledger and builds every tool's stack.
    ///
    /// # Errors
    /// [`Error::Tool`]: two tools have the same name, a schema is invalid, or a variable is
    /// missing. [`Error::Ledger`]: the ledger cannot be opened.
    pub async fn build(self) -> Result<Arc<Registry>, Error> {
        let parts = self.0;
        let mut tools = parts.tools;
        let environment = parts.environment.unwrap_or_else(Environment::from_process);
        let clients = HttpClients::default();
        for agent in parts.agents {
            tools.push(agent.build_with(&clients)?);
        }
        let tools: Vec<Tool> = tools
            .into_iter()
            .map(|tool| tool.with_env_values(&environment))
            .collect::<Result<_, BuildError>>()?;
        let (manifest, metrics) = (Manifest::default(), Metrics::new()?);
        let clock = parts.clock.unwrap_or_else(Clock::system);
        let ledger = match parts.ledger {
            Some(url) => {
                let ledger_settings = ledger::Settings {
                    url,
                    base: PathBuf::new(),
                    ..manifest.ledger.clone()
                };
                ledger::open_with_observer(&ledger_settings, clock.now(), metrics.commit_metrics())
                    .await?
            }
            None => {
                ledger::open_temporary(&manifest.ledger, clock.now(), metrics.commit_metrics())
                    .await?
            }
        };
        let call_log = parts.call_log.unwrap_or_else(CallLog::events);
        let shared = build_shared(&manifest, ledger, clock, call_log, metrics, None)?;
        shared
            .redactor
            .add_secrets(tools.iter().flat_map(Tool::secret_values));
        let registry = Registry::new(shared, Arc::new(Callers::default()), parts.services)
            .with_environment(environment);
        let registry = Arc::new(registry);
        let desired_state = DesiredState {
            callers: Arc::default(),
            calls: manifest.calls,
            tools,
            sources: Vec::new(),
            registered: Vec::new(),
        };
        let replaced = registry.replace_catalog(desired_state).await;
        replaced.map_err(live::Error::from)?;
        Ok(registry)
    }
}
