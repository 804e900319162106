//! Toolcrib executes the tool calls of software agents.
//!
//! The crate is the service. A program adds its own tools and ships its own binary:
//!
//! ```no_run
//! # async fn example() -> Result<(), toolcrib::Error> {
//! use toolcrib::{App, Effect, Tool, tool};
//!
//! /// Adds two whole numbers.
//! #[tool(effect = "read", timeout = "10s")]
//! fn add(one: i64, other: i64) -> i64 {
//!     one + other
//! }
//!
//! let app = App::builder()
//!     .tool(add::tool())
//!     .tool(
//!         Tool::new("shout", "Writes a text in capitals.")
//!             .param("text", "string", "The text")
//!             .effect(Effect::Read)
//!             .call(|arguments, _context| async move {
//!                 let text = arguments["text"].as_str().unwrap_or_default();
//!                 Ok(text.to_uppercase())
//!             }),
//!     )
//!     .build()
//!     .await?;
//! app.serve().await
//! # }
//! ```
//!
//! A program that calls the tools itself needs no service: see [`Registry::builder`].
//!
//! The modules:
//!
//! - [`call`]: the data types of a call.
//! - [`stack`]: the layers through which every call passes. [`approval`] and [`cache`]: layers with
//!   much state.
//! - [`kinds`]: the runners, which execute tools. [`sources`]: what provides tools.
//! - [`ledger`]: the durable record. [`metrics`] and [`log`]: what an operator observes.
//! - [`manifest`]: the YAML file. [`http`]: the routes. [`cli`]: the program.
//! - [`app`]: puts the parts together.
//! - [`runtime`] and [`environment`]: functions for a program's `main`.

pub mod access;
pub mod app;
pub mod approval;
pub mod audit;
pub mod cache;
pub mod call;
pub mod catalog;
pub mod cli;
pub mod environment;
pub mod expression;
pub mod formats;
pub mod http;
pub mod kinds;
pub mod ledger;
pub mod log;
pub mod manifest;
pub mod mcp;
pub mod metrics;
pub mod runtime;
pub mod schema;
pub mod secrets;
mod settings;
pub mod sources;
pub mod stack;
pub mod telemetry;
pub mod text;
pub mod tracking;

pub use app::{App, AppBuilder, Error, RegistryBuilder};
pub use call::{
    Caller, Capture, Effect, Idempotency, Limit, LimitScope, Paging, Per, ToolContext, ToolError,
    ToolResult, UpstreamFailure,
};
pub use catalog::registry::{MAX_REGISTERED, Registry};
pub use formats::Format;
pub use kinds::{Agent, Tool};
pub use toolcrib_dialect as dialect;
/// Makes a tool from a function.
///
/// The function does not change. The attribute adds `NAME::tool()`, which returns the function as a
/// [`Tool`]:
///
/// ```
/// use toolcrib::{ToolContext, ToolError, tool};
///
/// /// Finds orders by a word in their text, newest first.
/// #[tool(effect = "read", timeout = "10s", cache(ttl = "5m", context = ["tenant"]))]
/// async fn find_orders(
///     /// A word in the text of the order
///     word: String,
///     /// Maximum number of orders
///     #[tool(default = 10)]
///     #[schemars(range(min = 1, max = 50))]
///     most: u32,
///     /// Only orders of this year
///     year: Option<u16>,
///     context: ToolContext,
/// ) -> Result<Vec<String>, ToolError> {
///     let tenant = context.context.get("tenant").and_then(|name| name.as_str()).ok_or("which tenant?")?;
///     Ok(vec![format!("{tenant}: {word}, {year:?}"); most.min(2) as usize])
/// }
///
/// let tool = find_orders::tool().tag("orders");
/// assert_eq!(tool.name(), "find_orders");
/// ```
///
/// # The definition
///
/// - The **name** is the function's, or `name = "…"`.
/// - The **description** is the function's documentation up to its first heading (`# Errors`), or
///   `description = "…"`. A tool without a description does not compile.
/// - Each **parameter** is a property of the input schema, in the order of the function, with its
///   documentation as description. Its type has `serde::Deserialize` and
///   [`schemars::JsonSchema`](https://docs.rs/schemars). An `Option` is optional. A parameter with
///   `#[tool(default = …)]`, or `#[tool(default)]` for the type's own default, is optional too, and
///   the schema states the default value. `#[schemars(…)]` and `#[serde(…)]` mean what they mean at
///   a field of a struct.
/// - A parameter of the type [`ToolContext`] is the context of the call, and no property. Values
///   that tools share come from [`ToolContext::service`].
/// - The **output schema** comes from the return type, if that is an object: a struct that has
///   `serde::Serialize` and `schemars::JsonSchema`. Texts, numbers, lists and [`ToolResult`] have
///   none. An `Err` becomes a [`ToolError`].
///
/// A function that is not `async` may block: it runs on a blocking thread.
///
/// # The settings
///
/// The settings have the names of the manifest keys. A setting that is invalid or has no effect
/// does not compile; the error points at the setting.
///
/// | key | value |
/// | --- | --- |
/// | `effect` | `"read"`, `"idempotent"` or `"write"`, the default |
/// | `timeout`, `deadline` | a duration such as `"250ms"`, `"10s"`, `"5m"` |
/// | `retry(attempts = 3)` | maximum number of attempts |
/// | `limits(calls = 100, per = "day", scope = "caller")` | a usage limit; may be repeated |
/// | `cache_ttl = "5m"`, `cache(ttl = "5m", scope = "shared", context = ["tenant"])` | how long results are stored; a function with a [`ToolContext`] names the fields that results depend on |
/// | `should_cache = FUNCTION` | as in [`Tool::should_cache`] |
/// | `context = ["tenant"]` | the fields of the caller's `context` that the function takes: its [`ToolContext`] has only these fields |
/// | `concurrency(max = 4, queue = 16, wait = "1s", per_caller = 2)` | bounds on simultaneous calls |
/// | `on_disconnect` | `"cancel"` or `"finish"` |
/// | `idempotency` | `"off"`, `"optional"` or `"required"` |
/// | `capture` | `"full"` or `"digest"` |
/// | `repeatable`, `strict`, `result_as_answer` | without a value |
/// | `paging` | `"caller"` or `"model"` |
/// | `tags`, `aliases` | lists such as `["orders"]` |
/// | `env(name = "KEY", description = "…", required = false, default = "…")` | a declared variable; may be repeated |
/// | `annotations(title = "…", openWorldHint = true)` | MCP's annotations |
/// | `crate = other::path` | the path of the library, for crates that export it under another name |
///
/// Set a value that is known only at run time afterwards:
/// `find_orders::tool().timeout(configured)`.
///
/// # Limits
///
/// The function must be a free function: without `self`, type parameters and references as
/// parameters. `NAME` also becomes the name of a type, so the same scope cannot have a module of
/// that name.
pub use toolcrib_macros::tool;

#[doc(hidden)]
pub use kinds::attribute as __private;

/// Compiles the Rust code of these pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/tools/library.md")]
    struct Library;
}
