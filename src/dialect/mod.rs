//! What models say when they call tools, and what they want to hear: a provider's message in, calls out; results in, the
//! messages to append out.
//!
//! Nothing here runs a tool or knows one.

pub mod mend;
mod message;
pub mod text;

pub use message::{Ask, Dialect, Form, Message, Misread, Said, Written};
