//! The layers of a tool's stack; `order.rs` composes them. A call passes through them in this
//! order:
//!
//! paginate, await_decision, record, authorize, replay, validate, repeat_guard, approval, cache,
//! page_guard, circuit_breaker, concurrency, usage_limit, deadline, retry, attempt, run.
//!
//! All layers except the three outermost have the same type of service:
//! `Service<Box<Invocation>, Response = Arc<ToolResult>, Error = CallError>`. So a layer can be moved or
//! added without changes to its neighbors. `interceptor.rs` has the common code.
//!
//! Layers with much state have folders of their own: `approval/` and `cache/`.

pub mod attempt;
pub mod authorize;
pub mod circuit_breaker;
pub mod concurrency;
pub mod deadline;
pub mod ended_call;
pub mod interceptor;
pub mod observers;
pub mod order;
pub mod output_check;
pub mod paginate;
pub mod record;
pub mod repeat_guard;
pub mod replay;
pub mod retry;
pub mod run;
#[cfg(test)]
mod tests;
pub mod usage_limit;
pub mod validate;
pub mod validation_pool;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{CallError, ToolResult};

/// The result of every layer except the three outermost.
pub type Outcome = Result<Arc<ToolResult>, CallError>;

/// The boxed future of one call. A box costs little, compared with a tool call.
pub type CallFuture = BoxFuture<'static, Outcome>;
