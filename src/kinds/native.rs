//! Runs tools that are Rust functions in this process.
//!
//! An async function runs on the async threads, and is dropped at its timeout. A blocking function
//! runs on a thread of the blocking pool. It cannot be stopped from outside, so it should check
//! `ToolContext::cancelled` regularly. The attempt layer catches a panic of either and turns it
//! into an error result.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{Runner, RunnerTraits, Tool, ToolOutcome};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::runtime::blocking;

/// The most threads of one blocking tool. The pool is shared (512 threads by default), and name
/// lookups need it too.
const MAX_THREADS: usize = 64;

impl Tool<()> {
    /// Sets an async function as the runner. `Err("text".into())` is an error result (`is_error`).
    pub fn call<F, Fut, T>(self, function: F) -> Tool
    where
        F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
        T: Into<ToolResult> + 'static,
    {
        self.run_async(true, function)
    }

    /// The same. `takes_context`: the function reads the caller's context.
    pub(super) fn run_async<F, Fut, T>(self, takes_context: bool, function: F) -> Tool
    where
        F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
        T: Into<ToolResult> + 'static,
    {
        let function = move |arguments, context| {
            let done = function(arguments, context);
            async move { done.await.map(Into::into) }
        };
        self.with_runner(Arc::new(AsyncFunction {
            function,
            takes_context,
        }))
    }

    /// Sets a function that may block as the runner. It runs on its own thread and never blocks the
    /// async threads.
    pub fn call_blocking<F, T>(self, function: F) -> Tool
    where
        F: Fn(Value, ToolContext) -> Result<T, ToolError> + Send + Sync + 'static,
        T: Into<ToolResult> + 'static,
    {
        self.run_blocking(true, function)
    }

    /// The same. `takes_context`: the function reads the caller's context.
    pub(super) fn run_blocking<F, T>(self, takes_context: bool, function: F) -> Tool
    where
        F: Fn(Value, ToolContext) -> Result<T, ToolError> + Send + Sync + 'static,
        T: Into<ToolResult> + 'static,
    {
        let function = move |arguments, context| function(arguments, context).map(Into::into);
        self.with_runner(Arc::new(BlockingFunction {
            function: Arc::new(function),
            takes_context,
            thread_permits: Arc::new(Semaphore::new(MAX_THREADS)),
        }))
    }
}

impl Tool {
    /// A tool from a function with typed arguments and output. Both schemas are derived (serde and
    /// schemars). An output that is not an object has no output schema.
    pub fn typed<A, O, F, Fut>(
        name: impl Into<String>,
        description: impl Into<String>,
        function: F,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + 'static,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        let mut tool = Tool::new(name, description).input_schema(schema_of::<A>(true));
        if let Some(output) = object_schema(schema_of::<O>(false)) {
            tool = tool.output_schema(output);
        }
        tool.run_async(true, move |arguments, context| {
            let returned = decode_arguments(arguments).map(|typed| function(typed, context));
            async move { encode_output(returned?.await?) }
        })
    }
}

/// The schema, if it describes an object. Only objects have an output schema
/// (`structured_content`).
pub(super) fn object_schema(schema: Value) -> Option<Value> {
    (schema.get("type").and_then(Value::as_str) == Some("object")).then_some(schema)
}

/// Decodes the arguments into the function's type.
pub(super) fn decode_arguments<A: DeserializeOwned>(arguments: Value) -> Result<A, ToolError> {
    serde_json::from_value(arguments)
        .map_err(|error| ToolError::ErrorResult(format!("the arguments are invalid: {error}")))
}

/// Converts an output into a result.
pub(super) fn encode_output<O: Serialize>(output: O) -> Result<ToolResult, ToolError> {
    let value = serde_json::to_value(output).map_err(|error| {
        ToolError::BadOutput(format!("the output cannot be written as JSON: {error}"))
    })?;
    Ok(ToolResult::json(value))
}

/// The schema of a type (draft 2020-12). References are inlined where possible, because models read
/// flat schemas better.
pub(super) fn schema_of<T: JsonSchema>(closed: bool) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Some(root) = schema.as_object_mut() {
        root.shift_remove("title");
        // A `()` or an empty struct: a tool without parameters.
        if closed && root.get("type").and_then(Value::as_str) == Some("null") {
            root.insert("type".into(), "object".into());
        }
        if closed && root.get("type").and_then(Value::as_str) == Some("object") {
            root.entry("properties")
                .or_insert_with(|| Value::Object(JsonObject::new()));
            root.entry("additionalProperties")
                .or_insert(Value::Bool(false));
        }
    }
    schema
}

struct AsyncFunction<F> {
    function: F,
    takes_context: bool,
}

#[async_trait]
impl<F, Fut> Runner for AsyncFunction<F>
where
    F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolResult, ToolError>> + Send + 'static,
{
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let value = Value::Object(Arc::unwrap_or_clone(arguments));
        (self.function)(value, context).await
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            may_ask: self.takes_context,
            ..RunnerTraits::with_context(self.takes_context)
        }
    }
}

struct BlockingFunction<F> {
    function: Arc<F>,
    takes_context: bool,
    /// The permits for threads. A thread cannot be stopped, so a thread whose call was cancelled
    /// keeps its permit until it ends.
    thread_permits: Arc<Semaphore>,
}

#[async_trait]
impl<F> Runner for BlockingFunction<F>
where
    F: Fn(Value, ToolContext) -> Result<ToolResult, ToolError> + Send + Sync + 'static,
{
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let Ok(permit) = self.thread_permits.clone().try_acquire_owned() else {
            let message = "earlier calls that were abandoned still hold all threads of the tool";
            return Err(ToolError::unavailable(message));
        };
        let function = self.function.clone();
        let value = Value::Object(Arc::unwrap_or_clone(arguments));
        run_on_blocking_thread(move || {
            let _permit = permit;
            function(value, context)
        })
        .await
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits::with_context(self.takes_context)
    }
}

/// Runs `work` on a blocking thread. A panic continues in the caller, and the attempt layer catches
/// it like any panic of a tool.
pub(super) async fn run_on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = blocking::run_blocking(work).await;
    done.unwrap_or_else(|| Err(ToolError::unavailable("the service is stopping")))
}
