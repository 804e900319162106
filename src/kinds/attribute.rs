//! The parts of the library that the expansion of `#[tool]` uses. No other code uses them.

use std::future::Future;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::Tool;
use super::native::{self, decode_arguments, object_schema, schema_of};
use crate::call::{ToolContext, ToolError, ToolResult};

pub use schemars;
pub use serde;

/// What a tool's function may return, directly or as the `Ok` of a `Result`.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    note = "derive `serde::Serialize` and `schemars::JsonSchema` for it, or return a `toolcrib::ToolResult`"
)]
pub trait ToolOutput {
    /// The output schema, if the output is an object.
    fn schema() -> Option<Value>;

    /// Converts the value into the tool's result.
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    fn into_result(self) -> Result<ToolResult, ToolError>;
}

impl<T: Serialize + JsonSchema> ToolOutput for T {
    fn schema() -> Option<Value> {
        object_schema(schema_of::<T>(false))
    }

    fn into_result(self) -> Result<ToolResult, ToolError> {
        native::encode_output(self)
    }
}

impl ToolOutput for ToolResult {
    fn schema() -> Option<Value> {
        None
    }

    fn into_result(self) -> Result<ToolResult, ToolError> {
        Ok(self)
    }
}

/// How the return value of a function becomes the tool's result, and its output schema.
pub struct Conversion<R> {
    schema: fn() -> Option<Value>,
    convert: fn(R) -> Result<ToolResult, ToolError>,
}

/// The return type of a function. It chooses the conversion by method resolution. A `Result` has an
/// inherent method; any other type has the method of [`Plain`]. This also works for an alias of a
/// `Result`, which a macro cannot recognize.
pub struct Returned<R>(PhantomData<fn() -> R>);

impl<R> Returned<R> {
    /// A marker for the type.
    #[expect(
        clippy::new_without_default,
        reason = "it stands for a type and has no value of its own"
    )]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T, E> Returned<Result<T, E>> {
    /// The conversion of a function that may fail.
    pub fn conversion(self) -> Conversion<Result<T, E>>
    where
        T: ToolOutput,
        E: Into<ToolError>,
    {
        Conversion {
            schema: T::schema,
            convert: |returned| returned.map_err(Into::into)?.into_result(),
        }
    }
}

/// Return types other than `Result`.
pub trait Plain<R> {
    /// The conversion of a function that does not fail.
    fn conversion(self) -> Conversion<R>
    where
        Self: Sized,
        R: ToolOutput,
    {
        Conversion {
            schema: R::schema,
            convert: R::into_result,
        }
    }
}

impl<R> Plain<R> for Returned<R> {}

/// The JSON value of an annotation.
pub fn json(value: impl Into<Value>) -> Value {
    value.into()
}

/// Sets an async function as the tool's runner, with the schemas of its types.
pub fn call<A, R, F, Fut>(
    tool: Tool<()>,
    conversion: Conversion<R>,
    takes_context: bool,
    function: F,
) -> Tool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: 'static,
    F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
{
    let Conversion { schema, convert } = conversion;
    with_schemas::<A>(tool, schema()).run_async(takes_context, move |arguments, context| {
        let returned = decode_arguments(arguments).map(|arguments| function(arguments, context));
        async move { convert(returned?.await) }
    })
}

/// Sets a function that may block as the tool's runner, with the schemas of its types.
pub fn call_blocking<A, R, F>(
    tool: Tool<()>,
    conversion: Conversion<R>,
    takes_context: bool,
    function: F,
) -> Tool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: 'static,
    F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
{
    let Conversion { schema, convert } = conversion;
    with_schemas::<A>(tool, schema()).run_blocking(takes_context, move |arguments, context| {
        convert(function(decode_arguments(arguments)?, context))
    })
}

fn with_schemas<A: JsonSchema>(tool: Tool<()>, output_schema: Option<Value>) -> Tool<()> {
    let tool = tool.input_schema(schema_of::<A>(true));
    match output_schema {
        Some(schema) => tool.output_schema(schema),
        None => tool,
    }
}
