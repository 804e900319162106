//! Types that exist only for the OpenAPI document.
//!
//! The service reads these shapes by hand, so that its messages can state what would be right.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, SchemaFormat, Type};
use utoipa::openapi::{KnownFormat, Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::call::{CacheMode, JsonObject, Page};

/// The spellings of a duration in the document. The service accepts more, such as `2min 30sec`. It
/// refuses no duration that fits this pattern: three parts are less than the ten years of
/// [`MAX_DURATION`](crate::call::units::MAX_DURATION).
const DURATION_PATTERN: &str = "^(([1-9][0-9]{0,8} ?ms|[1-9][0-9]{0,6} ?s|[1-9][0-9]{0,5} ?m|[1-9][0-9]{0,3} ?h|[1-9][0-9]{0,2} ?d) ?){1,3}$";

/// A time with its unit: `250ms`, `30s`, `1h 30m`.
pub(crate) struct Duration;

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
pub(crate) struct Since;

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
pub(crate) struct InvokeRequest {
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
pub(crate) enum Arguments {
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
pub(crate) struct Context(HashMap<String, Value>);

/// An error of JSON-RPC 2.0.
#[derive(ToSchema)]
#[expect(
    dead_code,
    reason = "rmcp writes most of them, `mcp/message.rs` the others"
)]
pub(crate) struct JsonRpcError {
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
pub(crate) struct JsonRpcFault {
    /// JSON-RPC's error code.
    code: i64,
    /// The error as text.
    message: String,
    /// Details of the error.
    #[schema(required = false)]
    data: Option<Value>,
}

/// A tool of kind `http`. `document.rs` puts the schema in its place, which is made from that of
/// manifests.
pub(crate) struct RegisteredTool;

impl PartialSchema for RegisteredTool {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().into()
    }
}

impl ToSchema for RegisteredTool {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::call::units::HumanDuration;

    proptest! {
        #[test]
        fn documented_durations_are_valid(text in DURATION_PATTERN.trim_start_matches('^').trim_end_matches('$')) {
            let time = HumanDuration::parse(&text);
            prop_assert!(time.is_ok_and(|time| !time.0.is_zero()), "{text}");
        }
    }
}
