//! Translates between providers' message formats and calls. From a provider's message it reads
//! calls; from results it writes the messages to append.
//!
//! Nothing here runs a tool or knows one. [`read_message`] guesses the dialect (`guess`), and the
//! file of that dialect finds the calls. [`write_replies`] lets the same file write the results.
//! Content that a dialect cannot carry is replaced by text (`blocks`).

mod anthropic;
mod bedrock;
mod blocks;
mod content;
mod found_calls;
mod gemini;
mod guess;
mod interactions;
pub mod json_repair;
mod mcp;
mod mended_json;
mod message;
mod message_texts;
mod native;
mod openai;
mod read;
mod reply;
mod responses;
mod strict_json;
#[cfg(test)]
mod tests;
pub mod text;
mod words;

pub use blocks::block_as_text;
pub use content::{
    Content, EMPTY_ERROR_MESSAGE, RESULT_AS_ANSWER_KEY, Resource, ResourceLink, media_type_essence,
};
pub use json_repair::{Repaired, UnreadableArguments, read_arguments};
pub use mended_json::{Changes, Mended};
pub use message::{
    Dialect, MalformedCall, Message, RawArguments, TextSyntax, ToolCall, ToolReply, call_id,
    tool_name,
};
pub use read::{ReadError, read_message};
pub use reply::{write_late_results, write_replies};
pub use strict_json::{JsonObject, parse_foreign, parse_result, parse_strict, type_name};
pub use words::words;
