//! Calls that a person must approve before they run.
//!
//! `docs/dev/design-approval.md` explains the mechanism. In the order of a call:
//!
//! - `waiting.rs`: the layer that waits for the decision, and sends the decided call through the
//!   layers below again
//! - `rule.rs`: the layer that denies calls by rule, and stores calls that must be approved
//! - `request.rs`: what a person sees of a call, in lists and events
//! - `table.rs`: the calls of this process that wait
//! - `deciding.rs`: decides about a call; `sweep.rs`: expires calls, and acts on decisions of
//!   processes that have ended
//! - `receivers.rs` and `webhooks/`: webhooks
//!
//! Elsewhere: the policy is in `call/approval.rs`, the rows are in `ledger/`, the routes in `http/`,
//! the forms of MCP in `mcp/`. The files
//! `stack_tests.rs` are parts of `stack/tests.rs`.

pub mod deciding;
pub mod receivers;
pub mod request;
pub mod rule;
mod sweep;
pub mod table;
pub mod waiting;
pub(crate) mod webhooks;
