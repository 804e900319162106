//! Types that exist only for the OpenAPI document.
//!
//! The service reads these shapes by hand, so that its messages can state what would be right.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, SchemaFormat, Type};
use utoipa::openapi::{KnownFormat, Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::call::{
    CacheMode, CacheScope, Capture, Effect, Idempotency, JsonObject, Limit, OnDisconnect,
    OutputCheckMode, Page, Paging,
};

/// The spellings of a duration in the document. The service accepts more, such as `2min 30sec`. It
/// refuses no duration that fits this pattern: three parts are less than the ten years of
/// [`MAX_DURATION`](crate::call::units::MAX_DURATION).
const DURATION_PATTERN: &str = "^(([1-9][0-9]{0,8} ?ms|[1-9][0-9]{0,6} ?s|[1-9][0-9]{0,5} ?m|[1-9][0-9]{0,3} ?h|[1-9][0-9]{0,2} ?d) ?){1,3}$";

/// A time with its unit: `250ms`, `30s`, `1h 30m`.
pub(super) struct Duration;

impl PartialSchema for Duration {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("A time with its unit: 250ms, 30s, 5m, 24h, 30d, or some of these in a row: 1h 30m."))
            .pattern(Some(DURATION_PATTERN))
            .examples(["5s"])
            .into()
    }
}

impl ToSchema for Duration {
    fn name() -> Cow<'static, str> {
        "Duration".into()
    }
}

/// A moment, or how long ago it was.
pub(super) struct Since;

impl PartialSchema for Since {
    fn schema() -> RefOr<Schema> {
        let moment = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
        OneOfBuilder::new()
            .item(moment)
            .item(Ref::from_schema_name("Duration"))
            .into()
    }
}

impl ToSchema for Since {}

/// The body of `POST /tools/{name}/invoke`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "see `invoke_request.rs`")]
#[serde(deny_unknown_fields)]
pub(super) struct InvokeRequest {
    /// The arguments: an object, or the JSON text of one, as OpenAI-style callers hold it.
    #[schema(value_type = Arguments)]
    arguments: JsonObject,
    /// The model's id for this call; it is part of the answer.
    #[schema(required = false, max_length = 256)]
    tool_use_id: Option<String>,
    /// Groups the calls of one agent run.
    #[schema(required = false, max_length = 256)]
    run_id: Option<String>,
    /// For tools that take a context; never part of the arguments.
    #[schema(value_type = Option<Context>, required = false)]
    context: JsonObject,
    /// How the cache takes part.
    #[schema(value_type = Option<CacheMode>, required = false)]
    cache: CacheMode,
    /// Shortens the call's deadline, e.g. `5s`.
    #[schema(value_type = Option<Duration>, required = false)]
    timeout: Option<Duration>,
    /// Which part of a long result to show.
    #[schema(required = false)]
    page: Option<Page>,
}

/// The two forms of `arguments`.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "parse_arguments reads both, with better messages for other values"
)]
pub(super) enum Arguments {
    /// The arguments by name.
    Object(HashMap<String, Value>),
    /// The JSON text of an object.
    Text(String),
}

/// Facts about a call that the caller knows beside the arguments, by name.
#[derive(ToSchema)]
#[expect(
    dead_code,
    reason = "gives the shape a name of its own, for generated clients"
)]
pub(super) struct Context(HashMap<String, Value>);

/// An error of JSON-RPC 2.0.
#[derive(ToSchema)]
#[expect(
    dead_code,
    reason = "rmcp writes most of them, `mcp/message.rs` the others"
)]
pub(super) struct JsonRpcError {
    /// `2.0`.
    jsonrpc: String,
    /// The id of the request; null when it is not known.
    #[schema(required, value_type = Option<Value>)]
    id: Value,
    /// What is wrong.
    error: JsonRpcFault,
}

/// What is wrong with a message.
#[derive(ToSchema)]
#[expect(dead_code, reason = "see JsonRpcError")]
pub(super) struct JsonRpcFault {
    /// JSON-RPC's error code.
    code: i64,
    /// The error as text.
    message: String,
    /// Details of the error.
    #[schema(required = false)]
    data: Option<Value>,
}

type Object = HashMap<String, Value>;

/// A tool of kind `http`, with the keys of an entry of a manifest's `tools:`.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "the manifest's reader reads it; the test below compares the two"
)]
pub(super) struct RegisteredTool {
    /// `http`.
    kind: HttpKind,
    /// When to use it, for the model.
    description: Option<String>,
    /// Parameters by name, each with its JSON Schema, required unless it has a default.
    parameters: Option<Object>,
    /// JSON Schema of the arguments, in place of `parameters`.
    input_schema: Option<Object>,
    /// JSON Schema of the result.
    output_schema: Option<Object>,
    /// MCP annotations.
    annotations: Option<Object>,
    /// Other names of the tool.
    #[schema(required = false)]
    aliases: Vec<String>,
    /// Labels.
    #[schema(required = false)]
    tags: Vec<String>,
    /// The result is the agent's final answer.
    result_as_answer: Option<bool>,
    /// Whether the caller or the model requests the parts of long results. Default: caller.
    paging: Option<Paging>,
    /// The fields of a request's `context` that it takes: `{{ context.NAME }}` stands for one.
    context: Option<Vec<String>>,
    /// Example calls, checked against the schemas.
    #[schema(required = false)]
    examples: Vec<RegisteredExample>,
    /// What may be repeated and cached. Default: write.
    effect: Option<Effect>,
    /// Time for one attempt.
    #[schema(value_type = Option<Duration>)]
    timeout: Option<String>,
    /// Time for the whole call.
    #[schema(value_type = Option<Duration>)]
    deadline: Option<String>,
    /// How often a failed attempt is repeated.
    retry: Option<RegisteredRetry>,
    /// Calls per window.
    limits: Option<Vec<Limit>>,
    /// How results are kept.
    cache: Option<RegisteredCache>,
    /// Which calls wait for a person. `true`: every call.
    approval: Option<RegisteredApproval>,
    /// Rules that deny calls.
    deny_when: Option<Vec<RegisteredDenyRule>>,
    /// How many calls run and wait at once.
    concurrency: Option<RegisteredConcurrency>,
    /// What happens to a call when its caller disconnects.
    on_disconnect: Option<OnDisconnect>,
    /// Whether calls may or must carry an `Idempotency-Key`.
    idempotency: Option<Idempotency>,
    /// Whether the same call may come twice in a row within a run.
    repeatable: Option<bool>,
    /// Whether arguments are checked without coercion.
    strict: Option<bool>,
    /// What happens to a result that does not fit `output_schema`. Default: `fail`.
    output_check: Option<OutputCheckMode>,
    /// Whether the tool is enabled.
    enabled: Option<bool>,
    /// What the ledger keeps of arguments and results.
    capture: Option<Capture>,
    /// The HTTP request. Texts may contain `{{ name }}` placeholders.
    request: RegisteredRequest,
    /// How the answer becomes the result.
    #[schema(required = false)]
    response: RegisteredResponse,
    /// Longest answer that is read, e.g. `256KiB`.
    max_output: Option<String>,
}

/// The one kind that can be registered.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "see RegisteredTool")]
enum HttpKind {
    /// An HTTP request.
    Http,
}

/// An example call of a registered tool.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "see RegisteredTool")]
struct RegisteredExample {
    /// The arguments of the call.
    arguments: Object,
    /// The result of the call.
    result: Option<Value>,
}

/// Retries of a registered tool.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "see RegisteredTool")]
struct RegisteredRetry {
    /// Attempts in all.
    #[schema(minimum = 1)]
    attempts: u32,
}

/// How a registered tool's results are kept.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "see RegisteredTool")]
struct RegisteredCache {
    /// How long a result may be served.
    #[schema(value_type = Duration)]
    ttl: String,
    /// Which callers share a result.
    #[schema(required = false)]
    scope: CacheScope,
    /// The fields of `context` that distinguish results.
    context: Option<Vec<String>>,
    /// Which results are kept: an expression.
    when: Option<String>,
}

/// Which calls of a registered tool wait for a person.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "see RegisteredTool")]
enum RegisteredApproval {
    /// Whether every call waits.
    Flag(bool),
    /// All settings.
    Settings(RegisteredApprovalSettings),
}

/// Which calls of a registered tool wait for a person, and how long.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "see RegisteredTool")]
struct RegisteredApprovalSettings {
    /// The condition on calls that wait.
    when: Option<String>,
    /// Callers that may decide, besides admins.
    #[schema(required = false)]
    by: Vec<String>,
    /// How long a request waits.
    #[schema(value_type = Option<Duration>)]
    wait: Option<String>,
    /// How long a call waits.
    #[schema(value_type = Option<Duration>)]
    expires: Option<String>,
    /// Text for the person that decides.
    message: Option<String>,
}

/// A rule that denies calls of a registered tool.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "see RegisteredTool")]
struct RegisteredDenyRule {
    /// The condition.
    when: String,
    /// Text for the model.
    say: String,
}

/// How many calls of a registered tool run at once.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "see RegisteredTool")]
struct RegisteredConcurrency {
    /// Running at once.
    #[schema(minimum = 1)]
    max: Option<u32>,
    /// Waiting at once.
    queue: Option<u32>,
    /// Longest wait.
    #[schema(value_type = Option<Duration>)]
    wait: Option<String>,
    /// Of `max`, calls of one caller.
    #[schema(minimum = 1)]
    per_caller: Option<u32>,
}

/// The request of a registered tool. There is at most one body: `json`, `body`, `body_base64`,
/// `form` or `multipart`.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "see RegisteredTool")]
struct RegisteredRequest {
    /// HTTP method. Default: GET.
    method: Option<String>,
    /// An http or https URL with a public address.
    url: String,
    /// Query parameters.
    #[schema(required = false)]
    query: Object,
    /// Header fields.
    #[schema(required = false)]
    headers: HashMap<String, String>,
    /// JSON body.
    #[schema(required = false)]
    json: Option<Value>,
    /// Text body.
    body: Option<String>,
    /// Bytes of the body, as base64.
    body_base64: Option<String>,
    /// Form body.
    form: Option<Object>,
    /// Parts of a `multipart/form-data` body.
    multipart: Option<Object>,
    /// Cookies.
    #[schema(required = false)]
    cookies: HashMap<String, String>,
    /// The allowed hosts, if the URL's host contains a placeholder.
    #[schema(required = false)]
    allow_hosts: Vec<String>,
}

/// How the answer to a registered tool's request becomes the result.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "see RegisteredTool")]
struct RegisteredResponse {
    /// JSON Pointer to the part of the answer that is the result.
    pick: Option<String>,
    /// JSON Pointer to a part that makes the answer an error, if the part is present and not null,
    /// false or empty.
    error_when: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::call::units::HumanDuration;
    use crate::manifest::registered::registered_keys;

    fn properties<T: PartialSchema>() -> BTreeSet<String> {
        let schema = json!(T::schema());
        schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    }

    #[test]
    fn registered_tool_has_the_manifest_keys() {
        let refused = ["env", "allow_private", "auth"];
        let read = |section: &str| -> BTreeSet<String> {
            let keys = registered_keys(section)
                .into_iter()
                .filter(|key| !refused.contains(key));
            keys.map(str::to_owned).collect()
        };
        assert_eq!(properties::<RegisteredTool>(), read(""));
        assert_eq!(properties::<RegisteredRetry>(), read("retry"));
        assert_eq!(properties::<RegisteredCache>(), read("cache"));
        assert_eq!(properties::<RegisteredConcurrency>(), read("concurrency"));
        assert_eq!(properties::<RegisteredRequest>(), read("request"));
        assert_eq!(properties::<RegisteredResponse>(), read("response"));
    }

    proptest! {
        #[test]
        fn documented_durations_are_valid(text in DURATION_PATTERN.trim_start_matches('^').trim_end_matches('$')) {
            let time = HumanDuration::parse(&text);
            prop_assert!(time.is_ok_and(|time| !time.0.is_zero()), "{text}");
        }
    }
}
