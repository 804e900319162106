//! The types of all sections of a manifest and of the keys of a tool, as written in the file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::short_forms::{self, ApprovalForm, CacheForm, LimitsForm, RetryForm};
use crate::call::units::{HumanDuration, Size, Tokens};
use crate::call::{
    CacheScope, Capture, Effect, EnvVar, Example, Idempotency, Limit, OnDisconnect,
    OutputCheckMode, Paging,
};
use crate::kinds::SandboxSetting;
use crate::ledger::{Durability, WhenDown};
use crate::telemetry::Protocol;

/// `server:`: the HTTP service.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Server {
    /// Address and port to listen on. Port 0 takes a free port. `--listen` and `TOOLCRIB_LISTEN`
    /// take precedence.
    #[schemars(extend("examples" = ["127.0.0.1:7411"]), extend("default" = "127.0.0.1:7411"))]
    pub(super) listen: Option<String>,
    /// Largest request body.
    #[schemars(extend("examples" = ["4MiB"]), extend("default" = "1MiB"))]
    pub(super) max_body: Option<Size>,
    /// Calls of all tools that run at once.
    #[schemars(extend("examples" = [256]), extend("default" = 256))]
    pub(super) max_in_flight: Option<usize>,
    /// Connections that are open at once. The service accepts fewer if the limit of open files is
    /// below twice this number. A quarter of the connections may be MCP streams that only listen.
    #[schemars(extend("examples" = [8192]), extend("default" = 1024), range(min = 8, max = 65536))]
    pub(super) max_connections: Option<usize>,
    /// After SIGTERM, time in which new calls are still served, for a load balancer that learns
    /// late of the end.
    #[schemars(extend("examples" = ["5s"]), extend("default" = "0s"))]
    pub(super) linger: Option<HumanDuration>,
    /// After `linger`, time in which running calls may finish.
    #[schemars(extend("examples" = ["20s"]), extend("default" = "20s"))]
    pub(super) drain: Option<HumanDuration>,
    /// Values of the `Host` header that are accepted besides the listen address and loopback names.
    #[schemars(extend("examples" = [["toolcrib"]]))]
    pub(super) allowed_hosts: Vec<String>,
    /// Values of the `Origin` header that are accepted.
    #[schemars(extend("examples" = [["https://app.example.com"]]))]
    pub(super) allowed_origins: Vec<String>,
    /// Allows an address beyond loopback without `callers`: every client that reaches the port may
    /// use every tool.
    #[schemars(extend("examples" = [true]))]
    pub(super) allow_open: bool,
    /// The address at which people reach the service, for links. Its host and origin are accepted
    /// as in `allowed_hosts` and `allowed_origins`.
    #[schemars(extend("examples" = ["https://tools.example.com"]))]
    pub(super) public_url: Option<String>,
    /// `required`: the service does not start if a part of a program's sandbox cannot be enforced.
    #[schemars(extend("examples" = ["required"]))]
    pub(super) sandbox: Option<ServerSandbox>,
}

/// `server.sandbox:`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum ServerSandbox {
    /// Every part of every sandbox must be enforced.
    Required,
}

/// What `defaults:` has beside policies.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProgramDefaults {
    /// The sandbox of every program: of commands, Python modules and MCP servers with a `command`.
    #[schemars(extend("examples" = [true]), extend("default" = "service"))]
    pub(super) sandbox: Option<SandboxSetting>,
}

/// `ledger:`: the record of calls.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Ledger {
    /// The database file, relative to the manifest; without this key, a file in the working folder.
    /// `postgres://USER:PASSWORD@HOST/DATABASE` is a ledger that several replicas share. With
    /// `HOST1:PORT,HOST2:PORT`, it is in the first server that accepts writes. `--ledger` and
    /// `TOOLCRIB_LEDGER` take precedence.
    #[schemars(extend("examples" = ["sqlite://toolcrib.db"]), extend("default" = "sqlite://toolcrib.db"))]
    pub(super) url: Option<String>,
    /// When an answer may leave.
    #[schemars(extend("examples" = ["tiered"]))]
    pub(super) durability: Durability,
    /// What is served while the ledger cannot write. Other calls are refused as
    /// `ledger_unavailable`.
    #[schemars(extend("examples" = ["serve_reads"]))]
    pub(super) when_down: WhenDown,
    /// What the ledger keeps of arguments and results.
    #[schemars(extend("examples" = ["full"]), extend("default" = "full"))]
    pub(super) capture: Option<Capture>,
    /// Secret of at least 16 bytes for the digests of `capture: digest`. Without it, digests differ
    /// after each start.
    #[schemars(extend("examples" = ["${env:DIGEST_KEY}"]))]
    pub(super) digest_key: Option<String>,
    /// Deletes calls that are older. Without it, all calls are kept.
    #[schemars(extend("examples" = ["30d"]))]
    pub(super) retention: Option<HumanDuration>,
    /// Upper bound of the file's size, at least 16 MiB. Without it, the file has no bound. Only for
    /// a file.
    #[schemars(extend("examples" = ["2GiB"]))]
    pub(super) max_bytes: Option<Size>,
}

/// `cache:`: results in memory, and in Redis.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cache {
    /// Memory for cached results. The ledger holds those that do not fit.
    #[schemars(extend("examples" = ["64MiB"]), extend("default" = "64MiB"))]
    pub(super) max_bytes: Option<Size>,
    /// A Redis server through which services share cached results: `redis://:PASSWORD@HOST:6379/0`,
    /// `rediss://` for TLS, or `unix:///SOCKET`. Services that must not share results use another
    /// number of the database.
    #[schemars(extend("examples" = ["redis://:${env:REDIS_PASSWORD}@redis.example:6379/0"]))]
    pub(super) redis: Option<String>,
}

/// `results:`: how much of a result an answer shows.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Results {
    /// A longer result stays in the service. Its answer has the shape and the beginning, and a model reads the
    /// rest with `read_result`. A token is estimated as four characters.
    #[schemars(extend("examples" = ["8k tokens"]))]
    pub(super) reference_above: Option<Tokens>,
}

/// `approvals:`: webhooks about calls that wait for a person.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Approvals {
    /// Receivers of a webhook for each call that waits. They need `server.public_url`.
    #[schemars(extend("examples" = [serde_json::json!([{"url": "https://chat.example.com/hooks/toolcrib", "secret": "${env:HOOK_SECRET}"}])]))]
    pub(super) notify: Vec<Notify>,
}

/// One entry of `approvals.notify`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Notify {
    /// The address to which the webhook is sent with POST.
    #[schemars(extend("examples" = ["https://chat.example.com/hooks/toolcrib"]))]
    pub(super) url: String,
    /// The secret of the signature, as in Standard Webhooks: `whsec_` and base64 of 24 to 64 bytes.
    #[schemars(extend("examples" = ["${env:HOOK_SECRET}"]))]
    pub(super) secret: String,
    /// Name of the receiver. The ledger records `link:NAME` as the author of its decisions. Default:
    /// the host of `url`.
    #[schemars(extend("examples" = ["chat"]))]
    pub(super) name: Option<String>,
}

/// `telemetry:`: spans, metrics and logs for a collector of OpenTelemetry.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Telemetry {
    /// Base URL of the collector. Without it, `OTEL_EXPORTER_OTLP_ENDPOINT` applies; without both,
    /// nothing is sent.
    #[schemars(extend("examples" = ["http://localhost:4318"]))]
    pub(super) otlp: Option<String>,
    /// Headers for the collector, such as a key. They complete `OTEL_EXPORTER_OTLP_HEADERS`.
    #[schemars(extend("examples" = [serde_json::json!({"authorization": "${env:OTLP_KEY}"})]))]
    pub(super) headers: std::collections::BTreeMap<String, String>,
    /// `http`: OTLP over HTTP with protobuf bodies; `grpc`: OTLP over gRPC.
    #[schemars(extend("examples" = ["http"]), extend("default" = "http"))]
    pub(super) protocol: Option<Protocol>,
    /// Part of the calls that gets spans, from 0 to 1. It applies to calls without a trace context;
    /// otherwise the caller's decision applies.
    #[schemars(extend("examples" = [0.1]), extend("default" = 1.0))]
    pub(super) sample: Option<f64>,
    /// Adds arguments and results to spans, without secrets and up to 8 KiB each.
    #[schemars(extend("examples" = [true]))]
    pub(super) capture: bool,
}

/// `compat:`: the HTTP APIs of other servers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Compat {
    /// Serves clients of MCP Toolbox for Databases: `/api/toolset`, `/api/tool` and `/mcp/TOOLSET`.
    /// A toolset is a tag of tools.
    #[schemars(extend("examples" = [true]))]
    pub(super) toolbox: bool,
}

/// One entry of `toolsets:`. It has the tools that `tools` or `tags` select, except those of
/// `exclude`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ToolsetEntry {
    /// Names of tools; `*` stands for any characters.
    #[schemars(extend("examples" = [["orders_*"]]))]
    pub(super) tools: Vec<String>,
    /// Every tool with one of these tags is in the set, too.
    #[schemars(extend("examples" = [["faq"]]))]
    pub(super) tags: Vec<String>,
    /// Tools that are not in the set. Takes precedence over the other keys.
    #[schemars(extend("examples" = [["orders_delete"]]))]
    pub(super) exclude: Vec<String>,
}

/// One entry of `callers:`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Caller {
    /// Name of the caller in the ledger, in logs and in metrics.
    #[schemars(extend("examples" = ["research-agent"]))]
    pub(super) name: String,
    /// The caller's key, sent as `Authorization: Bearer KEY`. Either `key` or `key_sha256`.
    #[schemars(extend("examples" = ["${env:RESEARCH_KEY}"]))]
    pub(super) key: Option<String>,
    /// SHA-256 of the key in hexadecimal digits, so that the manifest does not hold the key.
    #[schemars(extend("examples" = ["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]))]
    pub(super) key_sha256: Option<String>,
    /// Tools that the caller may use; `*` stands for any characters. Without it, all tools.
    #[serde(default, deserialize_with = "deserialize_present_list")]
    #[schemars(extend("examples" = [["get_*", "word_count"]]))]
    pub(super) allow: Option<Vec<String>>,
    /// The toolset whose tools the caller may use, as far as `allow` and `deny` permit.
    #[schemars(extend("examples" = ["support"]))]
    pub(super) toolset: Option<String>,
    /// Tools that the caller may not use. Takes precedence over `allow`.
    #[serde(default)]
    #[schemars(extend("examples" = [["delete_*"]]))]
    pub(super) deny: Vec<String>,
    /// Limits on all calls of this caller together.
    #[serde(default, deserialize_with = "short_forms::decode_caller_limits")]
    #[schemars(with = "LimitsForm", extend("examples" = [serde_json::json!([{"calls": 1000, "per": "day"}])]))]
    pub(super) limits: Vec<Limit>,
    /// Credentials for other services, by name. `${caller:NAME}` in a tool stands for the value of
    /// the caller of each call.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"CRM_TOKEN": "${env:RESEARCH_CRM_TOKEN}"})]))]
    pub(super) credentials: std::collections::BTreeMap<String, String>,
    /// May see the calls of all callers and change tools while the service runs.
    #[serde(default)]
    #[schemars(extend("examples" = [true]))]
    pub(super) admin: bool,
    /// May read `GET /metrics`. An admin always may.
    #[serde(default)]
    #[schemars(extend("examples" = [true]))]
    pub(super) metrics: bool,
}

/// Policy keys: in `defaults:`, in every tool, and below `tools:` of a source.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicyEntry {
    /// What a call changes. It decides on retries, caching and cancellation.
    #[schemars(extend("examples" = ["read"]), extend("default" = "write"))]
    pub(super) effect: Option<Effect>,
    /// Time for one attempt.
    #[schemars(extend("examples" = ["10s"]), extend("default" = "30s"))]
    pub(super) timeout: Option<HumanDuration>,
    /// Time for the whole call, with waiting and all attempts. Without it, only `timeout` bounds a
    /// call.
    #[schemars(extend("examples" = ["25s"]))]
    pub(super) deadline: Option<HumanDuration>,
    /// Repeats failed attempts of tools whose `effect` is `read` or `idempotent`.
    #[serde(deserialize_with = "short_forms::decode_retry")]
    #[schemars(with = "Option<RetryForm>", extend("examples" = [serde_json::json!({"attempts": 3})]))]
    pub(super) retry: Option<Retry>,
    /// Usage limits. A call needs room in each of them.
    #[serde(deserialize_with = "short_forms::decode_limits")]
    #[schemars(
        with = "Option<LimitsForm>",
        extend("examples" = [serde_json::json!([{"calls": 100, "per": "day", "scope": "caller"}])]))]
    pub(super) limits: Option<Vec<Limit>>,
    /// Keeps results of `effect: read`. Without it, nothing is cached.
    #[serde(deserialize_with = "short_forms::decode_cache")]
    #[schemars(with = "Option<CacheForm>", extend("examples" = [serde_json::json!({"ttl": "5m"})]))]
    pub(super) cache: Option<CacheEntry>,
    /// Calls that wait for a person. `true`: every call, by any admin.
    #[serde(deserialize_with = "short_forms::decode_approval")]
    #[schemars(
        with = "Option<ApprovalForm>",
        extend("examples" = [serde_json::json!({"when": "args.amount > 100", "by": ["carol"]})]))]
    pub(super) approval: Option<ApprovalEntry>,
    /// Rules that deny calls with status 403, without a person.
    #[schemars(extend("examples" = [serde_json::json!([{"when": "args.amount > 10000", "say": "Payments above 10000 are not possible."}])]))]
    pub(super) deny_when: Option<Vec<DenyEntry>>,
    /// How many calls of the tool run and wait at once.
    #[schemars(extend("examples" = [serde_json::json!({"max": 8})]))]
    pub(super) concurrency: Option<ConcurrencyEntry>,
    /// What happens to a running call when its client disconnects. Default: a started write
    /// finishes, any other call is cancelled.
    #[schemars(extend("examples" = ["finish"]))]
    pub(super) on_disconnect: Option<OnDisconnect>,
    /// Whether a call may or must carry an `Idempotency-Key`.
    #[schemars(extend("examples" = ["required"]), extend("default" = "optional"))]
    pub(super) idempotency: Option<Idempotency>,
    /// Allows the same call twice in a row within a run.
    #[schemars(extend("examples" = [true]), extend("default" = false))]
    pub(super) repeatable: Option<bool>,
    /// Refuses arguments of the wrong type instead of converting them, such as `"5"` for a number.
    #[schemars(extend("examples" = [true]), extend("default" = false))]
    pub(super) strict: Option<bool>,
    /// What happens to a result that does not fit `output_schema`: `warn` passes it on with a
    /// warning, `fail` fails the call with `bad_output`, `off` checks nothing. Default: `warn` if
    /// another party wrote the schema (MCP servers, OpenAPI documents, agent frameworks), else
    /// `fail`.
    #[schemars(extend("examples" = ["fail"]))]
    pub(super) output_check: Option<OutputCheckMode>,
    /// Whether the tool can be called. An admin's switch at run time takes precedence.
    #[schemars(extend("examples" = [false]), extend("default" = true))]
    pub(super) enabled: Option<bool>,
    /// What the ledger keeps of this tool's calls. Default: `ledger.capture`.
    #[schemars(extend("examples" = ["digest"]))]
    pub(super) capture: Option<Capture>,
}

/// `retry:`
#[derive(Debug, Clone, PartialEq, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// Attempts in all: 3 means at most two retries.
    #[schemars(extend("examples" = [3]))]
    pub(super) attempts: u32,
}

/// `cache:` of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheEntry {
    /// How long a result may be served.
    #[schemars(extend("examples" = ["5m"]))]
    pub(super) ttl: HumanDuration,
    /// Which callers share a result.
    #[serde(default)]
    #[schemars(extend("examples" = ["shared"]))]
    pub(super) scope: CacheScope,
    /// Fields of the request's `context` that are part of the cache key. Default: the fields that
    /// the tool takes.
    #[schemars(extend("examples" = [["tenant"]]))]
    pub(super) context: Option<Vec<String>>,
    /// Expression over `args` and `result`. A result is kept only if the expression is true.
    #[schemars(extend("examples" = ["result.temperature is defined"]))]
    pub(super) when: Option<String>,
}

/// `approval:` of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApprovalEntry {
    /// Expression over `args`, `caller` and `run`. A call waits if the expression is true, fails, or
    /// meets a missing field. Without it, every call waits.
    #[schemars(extend("examples" = ["args.amount > 100"]))]
    pub(super) when: Option<String>,
    /// Callers that may decide, besides admins. A caller never decides about its own call unless
    /// this list names that caller.
    #[schemars(extend("examples" = [["carol"]]))]
    pub(super) by: Vec<String>,
    /// How long a request waits for the decision. Then the answer is 202, and the call goes on
    /// waiting.
    #[schemars(extend("examples" = ["20s"]), extend("default" = "20s"))]
    pub(super) wait: Option<HumanDuration>,
    /// How long a call waits for its decision.
    #[schemars(extend("examples" = ["24h"]), extend("default" = "24h"))]
    pub(super) expires: Option<HumanDuration>,
    /// Text for the person that decides.
    #[schemars(extend("examples" = ["Check the recipient."]))]
    pub(super) message: Option<String>,
    /// Whether calls wait at all: false for `approval: false`.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) is_on: bool,
}

impl Default for ApprovalEntry {
    fn default() -> Self {
        Self {
            when: None,
            by: Vec::new(),
            wait: None,
            expires: None,
            message: None,
            is_on: true,
        }
    }
}

/// One rule of `deny_when:`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DenyEntry {
    /// Expression over `args`, `caller` and `run`. A call is denied if the expression is true,
    /// fails, or meets a missing field.
    #[schemars(extend("examples" = ["args.amount > 10000"]))]
    pub(super) when: String,
    /// Text for the model.
    #[schemars(extend("examples" = ["Payments above 10000 are not possible."]))]
    pub(super) say: String,
}

/// `concurrency:` of a tool.
#[derive(Debug, Clone, PartialEq, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConcurrencyEntry {
    /// Calls that run at once.
    #[schemars(extend("examples" = [8]), extend("default" = 16))]
    pub(super) max: Option<usize>,
    /// Calls that wait at once. A further call is refused.
    #[schemars(extend("examples" = [32]), extend("default" = 64))]
    pub(super) queue: Option<usize>,
    /// Longest time that a call waits.
    #[schemars(extend("examples" = ["500ms"]), extend("default" = "1s"))]
    pub(super) wait: Option<HumanDuration>,
    /// Of `max`, the calls of one caller. Without it, one caller may use all.
    #[schemars(extend("examples" = [4]))]
    pub(super) per_caller: Option<usize>,
}

/// Definition keys of every tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DefinitionEntry {
    /// What runs the tool: `native`, `command`, `http`, `sql` or `agent`.
    #[schemars(extend("examples" = ["http"]))]
    pub(super) kind: Option<String>,
    /// What the tool does and when a model should use it.
    #[schemars(extend("examples" = ["Current weather for a city. Use for questions about weather now, not for forecasts."]))]
    pub(super) description: Option<String>,
    /// Parameters in short form: each name with its JSON Schema. `required: false` makes a
    /// parameter optional. Either `parameters` or `input_schema`.
    #[schemars(
        with = "Option<std::collections::BTreeMap<String, serde_json::Value>>",
        extend("examples" = [serde_json::json!({"city": {"type": "string", "description": "City and country"}})]))]
    pub(super) parameters: Option<serde_json::Value>,
    /// JSON Schema of the arguments, draft 2020-12 unless `$schema` names another draft. The root
    /// has `type: object`.
    #[schemars(
        with = "Option<crate::call::JsonObject>",
        extend("examples" = [serde_json::json!({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})]))]
    pub(super) input_schema: Option<serde_json::Value>,
    /// JSON Schema of `structured_content`. A result that does not match is a `bad_output` error.
    #[schemars(with = "Option<crate::call::JsonObject>", extend("examples" = [serde_json::json!({"type": "object"})]))]
    pub(super) output_schema: Option<serde_json::Value>,
    /// MCP annotations, such as `title`.
    #[schemars(extend("examples" = [serde_json::json!({"title": "Weather"})]))]
    pub(super) annotations: Option<crate::call::JsonObject>,
    /// Further names that the tool answers to.
    #[schemars(extend("examples" = [["weather"]]))]
    pub(super) aliases: Vec<String>,
    /// Words to filter `GET /tools` by.
    #[schemars(extend("examples" = [["demo"]]))]
    pub(super) tags: Vec<String>,
    /// Environment variables that the tool needs.
    #[schemars(extend("examples" = [serde_json::json!([{"name": "WEATHER_KEY", "description": "Key for the weather API"}])]))]
    pub(super) env: Vec<EnvVar>,
    /// Fields of the request's `context` that the tool takes.
    #[schemars(extend("examples" = [["tenant"]]))]
    pub(super) context: Option<Vec<String>>,
    /// Tells the agent to return the result as its answer.
    #[schemars(extend("examples" = [true]), extend("default" = false))]
    pub(super) result_as_answer: Option<bool>,
    /// Which side requests further pages of a long result.
    #[schemars(extend("examples" = ["model"]), extend("default" = "caller"))]
    pub(super) paging: Option<Paging>,
    /// Example calls, checked against the schemas. The API page offers the first one.
    #[schemars(extend("examples" = [serde_json::json!([{"arguments": {"city": "Oslo"}}])]))]
    pub(super) examples: Vec<Example>,
}

/// A native tool's own keys.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NativeEntry {
    /// Name of the built-in or of the program's own function. Default: the tool's name.
    #[serde(rename = "use")]
    #[schemars(extend("examples" = ["read_file"]))]
    pub(super) native_name: Option<String>,
    /// Settings of the built-in.
    #[schemars(extend("examples" = [serde_json::json!({"root": "./notes"})]))]
    pub(super) with: crate::call::JsonObject,
    /// Working folder that the function is given, relative to the manifest.
    #[schemars(extend("examples" = ["./notes"]))]
    pub(super) workdir: Option<std::path::PathBuf>,
}

/// Decodes a list that was written explicitly, even an empty one. `null` is an error here: as an
/// absent list it would allow everything.
fn deserialize_present_list<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<String>>, D::Error> {
    let list = Option::<Vec<String>>::deserialize(from)?;
    list.map(Some).ok_or_else(|| {
        serde::de::Error::custom(
            "the list has no items: write [] for no tools, or leave the key out for all",
        )
    })
}
