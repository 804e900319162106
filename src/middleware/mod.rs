//! The layers of a tool's stack; `stack.rs` puts them together. In the order a call meets them:
//! view, record, authorize, replay, validate, repeat_guard, cache, further_page, circuit_breaker, concurrency, usage_limit, deadline, retry, attempt, run.
//!
//! All but the two outermost share one shape, `Service<Invocation, Response = Arc<ToolResult>, Error = CallError>`, so a
//! layer can be moved or added without touching its neighbours; `around.rs` has the plumbing.

pub mod around;
pub mod attempt;
pub mod authorize;
pub mod cache;
mod caller_share;
pub mod circuit_breaker;
pub mod concurrency;
pub mod deadline;
pub mod further_page;
mod media;
pub mod output;
pub mod record;
pub mod repeat_guard;
pub mod replay;
pub mod retry;
mod retry_budget;
pub mod run;
#[cfg(test)]
mod tests;
pub mod usage_limit;
pub mod validate;
pub mod validation;
pub mod view;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{CallError, ToolResult};

/// What every inner layer answers.
pub type Outcome = Result<Arc<ToolResult>, CallError>;

/// The future of one call. A tool call costs far more than a box.
pub type CallFuture = BoxFuture<'static, Outcome>;
