//! `POST /calls`: runs the calls of a model's message, and answers with the messages to append.
//!
//! - `route.rs`: the handler; `in_process.rs`: the same without a server
//! - `request.rs` reads the body and the options
//! - `turn.rs` runs the calls, and `answer.rs` is the answer; `references.rs`: found tools for
//!   Anthropic
//! - `resume.rs` answers later for calls that waited for a person; `held_message.rs` keeps the other
//!   results meanwhile, and `ended_call.rs` is an ended call as data

mod answer;
mod ended_call;
mod held_message;
mod in_process;
mod references;
pub(crate) mod request;
mod resume;
pub(crate) mod route;
mod turn;

pub use self::in_process::calls_in_process;
