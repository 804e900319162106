//! A tool of a server as a tool's runner.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::connector::Connector;
use super::direct::CalledTool;
use super::fault::CallFailure;
use super::listing::FingerprintedTool;
use super::per_caller::PerCaller;
use super::persistent_connection::{PersistentConnection, verify_pin};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::kinds::process::OrphanReaper;
use crate::kinds::sandbox::EntrySandbox;
use crate::kinds::{Runner, RunnerTraits, ToolOutcome};
use crate::schema::SchemaOwner;
use crate::secrets::Redactor;
use crate::sources::{DefinitionFingerprint, DiscoveredTool, ToolDefinitionSnapshot};

/// Tenths of a call's time that a server may take to start for it. A call that starts later would
/// be interrupted at the deadline, and the effect of an interrupted write is unknown.
const MAX_CONNECT_TENTHS: u32 = 9;

/// A tool, and how its server is reached.
pub(super) struct ToolRunner {
    tool: CalledTool,
    /// The approved definition; `None`: the tool is not pinned.
    approved: Option<Arc<DefinitionFingerprint>>,
    path: CallPath,
    /// The names of the credentials that calls send for their caller.
    caller_credentials: Vec<String>,
    process: Process,
}

/// The process of a server, for its runners.
#[derive(Clone)]
pub(super) struct Process {
    /// Keeps the reaper alive as long as anything may still call. If the service does not wait for
    /// the end of the processes (`ProcessEnv::orphan_reaper`), the last runner does.
    pub(super) _orphan_reaper: Arc<OrphanReaper>,
    /// `None`: the server is at a URL.
    pub(super) sandbox: Option<Arc<EntrySandbox>>,
}

impl ToolRunner {
    /// A runner for the tool with this name at the server.
    pub(super) fn new(
        tool: CalledTool,
        approved: Option<Arc<DefinitionFingerprint>>,
        path: CallPath,
        process: Process,
    ) -> Self {
        let caller_credentials = path.caller_credentials();
        Self {
            tool,
            approved,
            path,
            caller_credentials,
            process,
        }
    }
}

/// The connection that a call uses.
#[derive(Clone)]
pub(super) enum CallPath {
    /// The one connection of the server.
    Persistent(Arc<PersistentConnection>),
    /// A connection of its own.
    OnDemand(Arc<Connector>),
}

impl CallPath {
    /// The one connection of the server, if there is one.
    pub(super) fn persistent_connection(&self) -> Option<Arc<PersistentConnection>> {
        match self {
            Self::Persistent(persistent_connection) => Some(persistent_connection.clone()),
            Self::OnDemand(_) => None,
        }
    }

    fn caller_credentials(&self) -> Vec<String> {
        match self {
            Self::Persistent(_) => Vec::new(),
            Self::OnDemand(connector) => connector
                .settings
                .per_caller()
                .map(PerCaller::credential_names)
                .unwrap_or_default(),
        }
    }
}

#[async_trait]
impl Runner for ToolRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let (tool, approved) = (&self.tool, self.approved.as_deref());
        match &self.path {
            CallPath::Persistent(persistent_connection) => {
                // Wait for at most half of the remaining time. A call that started later would
                // probably be interrupted at its deadline.
                let now = Instant::now();
                let begin_by = now + context.deadline.saturating_duration_since(now) / 2;
                persistent_connection
                    .call(tool, approved, &arguments, &context, begin_by)
                    .await
            }
            CallPath::OnDemand(connector) => {
                // In the box, so that the future of other calls is small: each call copies it.
                Box::pin(call_on_demand(
                    connector, tool, approved, &arguments, &context,
                ))
                .await
            }
        }
    }

    fn sandbox(&self) -> Option<&EntrySandbox> {
        self.process.sandbox.as_deref()
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            takes_context_fields: true,
            may_ask: true,
            ..RunnerTraits::default()
        }
    }

    fn caller_credentials(&self) -> &[String] {
        &self.caller_credentials
    }

    fn is_available(&self) -> bool {
        match &self.path {
            CallPath::Persistent(persistent_connection) => !persistent_connection.is_unavailable(),
            CallPath::OnDemand(_) => true,
        }
    }
}

async fn call_on_demand(
    connector: &Connector,
    tool: &CalledTool,
    approved: Option<&DefinitionFingerprint>,
    arguments: &JsonObject,
    context: &ToolContext,
) -> Result<ToolResult, ToolError> {
    let name = &connector.name;
    let now = Instant::now();
    let max_wait = context.deadline.saturating_duration_since(now) * MAX_CONNECT_TENTHS / 10;
    let unavailable = |reason: &str| {
        ToolError::unavailable_before_start(
            format!("the MCP server {name} is unavailable: {reason}"),
            None,
        )
    };
    let connecting = async {
        let Some(approved) = approved else {
            return connector
                .connect(context)
                .await
                .map_err(|fault| unavailable(&fault));
        };
        // There is no connection between calls that could report changes. So list the tools before
        // each call.
        let (connection, listing) = connector
            .connect_and_list(&|_| {}, Some(context))
            .await
            .map_err(|fault| unavailable(&fault))?;
        connector.compare_with_offered(&listing);
        let pin_check = verify_pin(connector, &connection, &tool.name, approved).await;
        pin_check
            .map_err(|error| connector.pin_failure(error))
            .map(|()| connection)
    };
    let connection = match context
        .wait_for(timeout_at(now + max_wait, connecting))
        .await
    {
        Ok(connection) => connection?,
        Err(_) => {
            let message = format!(
                "the MCP server {name} was not ready within {:.1} s, which leaves a tenth of the call's time for the tool: if \
                 it takes so long to start, raise the tool's `timeout`",
                max_wait.as_secs_f64()
            );
            return Err(ToolError::unavailable_before_start(message, None));
        }
    };
    match connection.call(tool, arguments, context).await {
        Ok(result) => Ok(result),
        Err(CallFailure::Reported(error)) => Err(error),
        Err(CallFailure::NotDelivered(reason)) => Err(unavailable(&reason)),
        Err(CallFailure::ConnectionLost) => Err(connection.lost_error(None).await),
    }
}

/// Makes a discovered tool, to which the manifest's rules apply.
pub(super) fn to_discovered(
    FingerprintedTool { tool, fingerprint }: &FingerprintedTool,
    path: &CallPath,
    process: &Process,
    redactor: &Redactor,
) -> DiscoveredTool {
    let runner = |fingerprint| -> Arc<dyn Runner> {
        Arc::new(ToolRunner::new(
            CalledTool::new(&tool.name, &tool.input_schema),
            fingerprint,
            path.clone(),
            process.clone(),
        ))
    };
    let annotations = tool
        .annotations
        .as_ref()
        .and_then(|annotations| serde_json::to_value(annotations).ok());
    let mut annotations = match annotations {
        Some(Value::Object(annotations)) => annotations,
        _ => JsonObject::new(),
    };
    if let Some(title) = &tool.title {
        annotations
            .entry("title")
            .or_insert_with(|| title.clone().into());
    }
    // Our own keys carry notes of `listing`.
    let meta = tool.meta.iter().flat_map(|meta| &meta.0);
    let meta = meta.filter(|(key, _)| !key.starts_with("toolcrib/"));
    let meta = meta
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let description = tool
        .description
        .as_deref()
        .or(tool.title.as_deref())
        .unwrap_or_default();
    let mut discovered = DiscoveredTool {
        name: tool.name.to_string(),
        description: description.to_owned(),
        input_schema: Value::Object(JsonObject::clone(&tool.input_schema)),
        output_schema: tool
            .output_schema
            .as_ref()
            .map(|schema| Value::Object(JsonObject::clone(schema))),
        schema_owner: SchemaOwner::Foreign,
        effect: None,
        tags: Vec::new(),
        annotations,
        meta,
        result_as_answer: false,
        max_calls: None,
        env: Vec::new(),
        runner: runner(None),
        snapshot: Some(ToolDefinitionSnapshot {
            fingerprint: fingerprint.clone(),
            runner: runner(Some(fingerprint.clone())),
        }),
    };
    discovered.redact_secrets(redactor);
    discovered
}
