//! Webhooks about calls that wait for approval, as in Standard Webhooks
//! (<https://www.standardwebhooks.com>).
//!
//! - `task.rs`: finds the waiting calls of which the receivers do not know
//! - `sender.rs`: one request to a receiver
//!
//! A webhook tells; it decides nothing. A receiver that misses it misses nothing else: the call goes
//! on waiting, and `GET /approvals` lists it.

mod sender;
mod task;

pub(crate) use self::task::send_approval_webhooks;
