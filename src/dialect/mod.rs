//! What models say when they call tools, and what they want to hear: a provider's message in, calls out; results in, the
//! messages to append out.
//!
//! Nothing here runs a tool or knows one. [`read()`] guesses the dialect (`guess`) and has its file find the calls;
//! [`reply()`] has the same file write the results. What a dialect cannot carry becomes words (`blocks`).

mod anthropic;
mod bedrock;
mod blocks;
mod found;
mod gemini;
mod guess;
mod mcp;
pub mod mend;
mod message;
mod native;
mod openai;
mod read;
mod reply;
mod responses;
#[cfg(test)]
mod tests;
pub mod text;
mod words;

pub use found::{id_of, name_of};
pub use mend::{Mended, arguments};
pub use message::{Ask, Dialect, Form, Message, Misread, Said, Written};
pub use read::{Unread, read};
pub use reply::reply;
