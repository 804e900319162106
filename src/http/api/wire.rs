//! The JSON shapes of requests and answers. Scripts rely on these fields: fields may be added, but
//! never renamed.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call::{
    Answer, CacheScope, CacheStatus, Capture, Coercion, Content, ContextFields, Definition, Digest,
    Effect, EnvVar, ErrorKind, Idempotency, InvocationId, JsonObject, Kind, LimitUsage, Meta,
    OnDisconnect, Origin, OutputCheckMode, Page, Paging, ToolName, Truncated,
};
use crate::catalog::{Entry, definition_hash};
use crate::kinds::Tool;
use crate::kinds::sandbox::SandboxReport;
use crate::ledger::{Row, State};

/// The answer of `POST /tools/{name}/invoke`, whenever the tool ran.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct InvokeAnswer<'a> {
    /// The call's id, the key of its row in the ledger.
    #[schema(value_type = String)]
    pub invocation_id: InvocationId,
    /// Name of the tool.
    pub tool: &'a str,
    /// The model's id for the call.
    #[schema(required)]
    pub tool_use_id: Option<&'a str>,
    /// The tool ran and reports an error.
    pub is_error: bool,
    /// Blocks for the model. If `meta.overflow` is not null, the last block is a text that says so.
    #[schema(value_type = Vec<Content>)]
    pub content: Cow<'a, [Content]>,
    /// The result as data.
    #[schema(required)]
    pub structured_content: Option<&'a Value>,
    /// The result is the agent's final answer.
    pub result_as_answer: bool,
    /// How the answer was made.
    pub meta: &'a Meta,
}

impl<'a> InvokeAnswer<'a> {
    /// The answer for a call of this tool. `model_content` replaces the content of a cut result.
    pub(crate) fn for_entry(
        entry: &'a Entry,
        answer: &'a Answer,
        model_content: Option<Cow<'a, [Content]>>,
    ) -> Self {
        Self::new(
            entry.definition.name.as_str(),
            entry.definition.result_as_answer,
            answer,
            model_content,
        )
    }

    /// The answer for a call, also if its tool is no longer in the catalog.
    pub(crate) fn new(
        tool: &'a str,
        result_as_answer: bool,
        answer: &'a Answer,
        model_content: Option<Cow<'a, [Content]>>,
    ) -> Self {
        let result = &*answer.result;
        Self {
            invocation_id: answer.invocation,
            tool,
            tool_use_id: answer.tool_use_id.as_deref(),
            is_error: result.is_error,
            content: model_content.unwrap_or(Cow::Borrowed(&result.content)),
            structured_content: result.structured_content.as_ref(),
            result_as_answer: result.is_answer(result_as_answer),
            meta: &answer.meta,
        }
    }
}

/// One tool as callers see it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ToolView<'a> {
    /// Unique name.
    #[schema(value_type = String)]
    pub name: &'a ToolName,
    /// When to use it, for the model.
    pub description: &'a str,
    /// JSON Schema of the arguments.
    #[schema(value_type = HashMap<String, Value>)]
    pub input_schema: &'a Value,
    /// JSON Schema of `structured_content`.
    #[schema(value_type = Option<HashMap<String, Value>>, required)]
    pub output_schema: Option<&'a Value>,
    /// MCP annotations.
    #[schema(value_type = HashMap<String, Value>)]
    pub annotations: &'a JsonObject,
    /// How it runs.
    pub kind: Kind,
    /// Where it was declared.
    pub origin: Origin,
    /// The source that brings it, such as an MCP server; null for a tool of its own.
    #[schema(required)]
    pub source: Option<&'a str>,
    /// What may be repeated and cached.
    pub effect: Effect,
    /// The result is the agent's final answer.
    pub result_as_answer: bool,
    /// Labels.
    pub tags: &'a [String],
    /// Other names of the tool.
    #[schema(value_type = Vec<String>)]
    pub aliases: &'a [ToolName],
    /// The fields of a request's `context` that it takes; null when it gets all of them.
    #[schema(required)]
    pub context: Option<Vec<String>>,
    /// Whether it can be called now.
    pub available: bool,
    /// SHA-256 over definition and implementation, in hex.
    pub definition_hash: String,
}

impl<'a> ToolView<'a> {
    pub(crate) fn new(
        definition: &'a Definition,
        (kind, origin, source, effect): (Kind, Origin, Option<&'a str>, Effect),
        context: &ContextFields,
        available: bool,
        definition_hash: String,
    ) -> Self {
        Self {
            name: &definition.name,
            description: &definition.description,
            input_schema: &definition.input_schema,
            output_schema: definition.output_schema.as_deref(),
            annotations: &definition.annotations,
            kind,
            origin,
            source,
            effect,
            result_as_answer: definition.result_as_answer,
            tags: &definition.tags,
            aliases: &definition.aliases,
            context: match context {
                ContextFields::All => None,
                ContextFields::Named(fields) => Some(fields.to_vec()),
            },
            available,
            definition_hash,
        }
    }

    /// The view of a tool that is not registered yet.
    pub fn from_tool(tool: &'a Tool) -> Self {
        Self::new(
            &tool.definition,
            (
                tool.kind,
                tool.origin,
                tool.settings.source.as_deref(),
                tool.policy.effect,
            ),
            &tool.context_fields(),
            tool.is_available(),
            definition_hash(tool),
        )
    }
}

/// A tool that is not registered yet, with the variables that it declares.
#[derive(Debug, Serialize)]
pub struct DeclaredTool<'a> {
    #[serde(flatten)]
    tool: ToolView<'a>,
    env: Vec<EnvView<'a>>,
}

impl<'a> From<&'a Tool> for DeclaredTool<'a> {
    fn from(tool: &'a Tool) -> Self {
        Self {
            tool: ToolView::from_tool(tool),
            env: tool.definition.env.iter().map(EnvView::from).collect(),
        }
    }
}

/// A tool in a list.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ToolJson<'a> {
    /// JSON that an earlier list has written.
    Written(&'a RawValue),
    /// A tool whose JSON is not kept.
    View(Box<ToolView<'a>>),
}

/// Tools, by name.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ToolList<'a> {
    /// The tools.
    #[schema(value_type = Vec<ToolView<'a>>)]
    pub tools: Vec<ToolJson<'a>>,
    /// Where the next page begins; null on the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A tool's policy as callers see it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PolicyView {
    /// What may be repeated and cached.
    pub effect: Effect,
    /// Time for one attempt.
    pub timeout: String,
    /// Time for the whole call.
    #[schema(required)]
    pub deadline: Option<String>,
    /// Retries after failed attempts.
    pub retry: RetryView,
    /// Limits, as declared.
    pub limits: Vec<crate::call::Limit>,
    /// The cache, if there is one.
    #[schema(required)]
    pub cache: Option<CacheView>,
    /// Which calls wait for a person; null when none does.
    #[schema(required)]
    pub approval: Option<ApprovalPolicyView>,
    /// Rules that deny calls.
    pub deny_when: Vec<DenyRuleView>,
    /// Running and waiting calls.
    pub concurrency: ConcurrencyView,
    /// What happens to a call when its caller disconnects.
    pub on_disconnect: OnDisconnect,
    /// Whether calls may or must carry an `Idempotency-Key`.
    pub idempotency: Idempotency,
    /// What the ledger keeps of arguments and results.
    pub capture: Capture,
    /// Whether the same call may come twice in a row within a run.
    pub repeatable: bool,
    /// Whether arguments are checked without coercion.
    pub strict: bool,
    /// What happens to results that do not fit the output schema. Absent: `warn` if another party
    /// wrote the schema, else `fail`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_check: Option<OutputCheckMode>,
    /// Whether the caller or the model requests the parts of long results.
    pub paging: Paging,
    /// Whether the tool is enabled.
    pub enabled: bool,
}

impl PolicyView {
    pub(crate) fn new(policy: &crate::call::Policy, paging: Paging, enabled: bool) -> Self {
        let text = |duration: Duration| humantime::format_duration(duration).to_string();
        Self {
            effect: policy.effect,
            timeout: text(policy.timeout),
            deadline: policy.deadline.map(text),
            retry: RetryView {
                attempts: policy.max_attempts(),
            },
            limits: policy.limits.clone(),
            cache: policy.cache.as_ref().map(|cache| CacheView {
                ttl: text(cache.ttl),
                scope: cache.scope,
                context: cache.context.clone(),
                when: policy
                    .cache_when
                    .as_ref()
                    .map(|when| when.text().unwrap_or("a function").to_owned()),
            }),
            approval: policy.approval.as_ref().map(|approval| ApprovalPolicyView {
                when: approval.when.as_ref().map(|when| when.text().to_owned()),
                by: approval.by.clone(),
                wait: text(approval.wait),
                expires: text(approval.expires),
                message: approval.message.clone(),
            }),
            deny_when: policy
                .deny_when
                .iter()
                .map(|rule| DenyRuleView {
                    when: rule.when.text().to_owned(),
                    say: rule.say.clone(),
                })
                .collect(),
            concurrency: ConcurrencyView {
                max: policy.concurrency.max,
                queue: policy.concurrency.queue,
                wait: text(policy.concurrency.wait),
                per_caller: policy.concurrency.per_caller,
            },
            on_disconnect: policy.disconnect_action(),
            idempotency: policy.idempotency,
            capture: policy.capture.unwrap_or_default(),
            repeatable: policy.repeatable,
            strict: policy.strict,
            output_check: policy.output_check,
            paging,
            enabled,
        }
    }
}

/// How often a failed attempt is repeated.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct RetryView {
    /// Attempts in all.
    pub attempts: u32,
}

/// How results are kept.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CacheView {
    /// How long a result may be served.
    pub ttl: String,
    /// Which callers share a result.
    pub scope: CacheScope,
    /// The fields of `context` that distinguish results; null when they are not declared.
    #[schema(required)]
    pub context: Option<Vec<String>>,
    /// Which results are kept: an expression, or `a function` of the program; null when all are.
    #[schema(required)]
    pub when: Option<String>,
}

/// Which calls wait for a person.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ApprovalPolicy)]
pub(crate) struct ApprovalPolicyView {
    /// The condition on calls that wait; null when every call waits.
    #[schema(required)]
    pub when: Option<String>,
    /// Callers that may decide, besides admins.
    #[schema(value_type = Vec<String>)]
    pub by: Vec<std::sync::Arc<str>>,
    /// How long a request waits.
    pub wait: String,
    /// How long a call waits.
    pub expires: String,
    /// Text for the person that decides.
    #[schema(value_type = Option<String>, required)]
    pub message: Option<std::sync::Arc<str>>,
}

/// A rule that denies calls.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = DenyRule)]
pub(crate) struct DenyRuleView {
    /// The condition.
    pub when: String,
    /// Text for the model.
    #[schema(value_type = String)]
    pub say: std::sync::Arc<str>,
}

/// How many calls of one tool run at once.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ConcurrencyView {
    /// Running at once.
    pub max: usize,
    /// Waiting at once.
    pub queue: usize,
    /// Longest wait.
    pub wait: String,
    /// Of `max`, calls of one caller; null when one caller may take all.
    #[schema(required)]
    pub per_caller: Option<usize>,
}

/// A tool with its policy, usage and environment.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ToolDetail<'a> {
    /// What the list shows.
    #[serde(flatten)]
    pub tool: ToolView<'a>,
    /// What the operator decided.
    pub policy: PolicyView,
    /// The current state of the limits, for this caller.
    pub usage: Vec<LimitUsage>,
    /// Environment variables it declares; never their values.
    pub env: Vec<EnvView<'a>>,
    /// Its circuit breaker: `closed`, `half_open` or `open`; null if it has none.
    #[schema(required)]
    pub breaker: Option<&'static str>,
    /// The sandbox of its programs; null if it starts none.
    #[schema(required)]
    pub sandbox: Option<SandboxReport>,
}

/// A declared environment variable.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct EnvView<'a> {
    /// Name of the variable.
    pub name: &'a str,
    /// Purpose of the variable.
    pub description: &'a str,
    /// Whether the service needs it to start; one with a default is optional.
    pub required: bool,
    /// Value that is used when the variable is not set.
    #[schema(required)]
    pub default: Option<&'a str>,
}

impl<'a> From<&'a EnvVar> for EnvView<'a> {
    fn from(var: &'a EnvVar) -> Self {
        Self {
            name: &var.name,
            description: &var.description,
            required: var.is_required(),
            default: var.default.as_deref(),
        }
    }
}

/// The answer of `POST /tools/{name}/validate` when the arguments fit.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Validated {
    /// True.
    pub valid: bool,
    /// The arguments as the tool would get them.
    #[schema(value_type = HashMap<String, Value>)]
    pub arguments: JsonObject,
    /// What would be converted.
    pub coercions: Vec<Coercion>,
    /// The page that the arguments of a tool with `paging: model` ask for; such arguments never
    /// reach the tool.
    #[schema(required)]
    pub page: Option<Page>,
}

/// One call in the ledger.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct InvocationView {
    /// Id of the call, the key of its row.
    pub invocation_id: String,
    /// Name of the tool.
    pub tool: String,
    /// Name of the caller.
    pub caller: String,
    /// The caller's run.
    #[schema(required)]
    pub run_id: Option<String>,
    /// The model's id for the call.
    #[schema(required)]
    pub tool_use_id: Option<String>,
    /// The caller's own name for the call.
    #[schema(required)]
    pub idempotency_key: Option<String>,
    /// The call whose tool made this call; null when a client made it.
    #[schema(required)]
    pub parent: Option<String>,
    /// Current state of the call.
    pub state: State,
    /// Why it failed; null when the tool answered.
    #[schema(required)]
    pub kind: Option<ErrorKind>,
    /// One sentence of the service on why it failed or was refused, without arguments and results.
    /// For an error of the tool's own: the beginning of its text. Else null.
    #[schema(required)]
    pub detail: Option<String>,
    /// The effect of the tool at that time.
    pub effect: Effect,
    /// How the cache took part.
    pub cache: CacheStatus,
    /// Number of attempts.
    pub attempts: u32,
    /// When the call started.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// Milliseconds from start to end; null while the call runs.
    #[schema(required)]
    pub duration_ms: Option<f64>,
    /// The arguments as the client sent them. Null if only a digest or their beginning is kept, and
    /// in a list if they are longer than 16 KiB.
    #[schema(value_type = Option<HashMap<String, Value>>, required)]
    pub arguments: Option<Box<RawValue>>,
    /// Stands for arguments that are not kept (`capture: digest`); else null.
    pub arguments_digest: Option<Digest>,
    /// Stands for the arguments of a refused call that are longer than 1 KiB; else null.
    pub arguments_truncated: Option<Truncated>,
    /// The replica that ran the call (`GET /replicas`); null if the ledger is a file of one machine.
    #[schema(required)]
    pub replica: Option<String>,
    /// Number of calls in this row. It is 1, except for refused calls of one caller beyond 100 in a
    /// second. Of these, the calls with the same tool and kind share the row of the first.
    pub count: u64,
}

impl From<&Row> for InvocationView {
    fn from(row: &Row) -> Self {
        let arguments_digest = Digest::from_column(&row.arguments);
        let arguments_truncated = Truncated::from_column(&row.arguments);
        let has_arguments = arguments_digest.is_none()
            && arguments_truncated.is_none()
            && &*row.arguments != "null";
        Self {
            invocation_id: row.id.to_string(),
            tool: row.tool.to_string(),
            caller: row.caller.to_string(),
            run_id: row.run_id.as_deref().map(str::to_owned),
            tool_use_id: row.tool_use_id.as_deref().map(str::to_owned),
            idempotency_key: row.idempotency_key.as_deref().map(str::to_owned),
            parent: row.parent.map(|id| id.to_string()),
            state: row.state,
            kind: row.kind,
            detail: row.summary().map(str::to_owned),
            effect: row.effect,
            cache: row.cache,
            attempts: row.attempts,
            started_at: row.started_at,
            duration_ms: row.duration_us.map(|us| us as f64 / 1000.0),
            arguments: has_arguments
                .then(|| RawValue::from_string(row.arguments.to_string()).ok())
                .flatten(),
            arguments_digest,
            arguments_truncated,
            replica: row.replica.as_deref().map(str::to_owned),
            count: row.count,
        }
    }
}
