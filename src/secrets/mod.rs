//! Keeps secrets out of the output. They enter only by reference.
//!
//! `${env:NAME}` and `${file:/path}` in a manifest are replaced when it is read. Each such value is
//! remembered here, so that it can be removed from the output of tools: an upstream may echo a
//! header.
//!
//! - `forms` lists the encodings of a value.
//! - `finder` finds all of them in one pass, and also the part of one that a cut leaves.
//! - `condensed` handles values with line breaks and invisible characters inside.
//! - `redactor` applies these to results, failures, progress and texts that are cut.

mod condensed;
mod finder;
mod forms;
mod redactor;
#[cfg(test)]
pub(crate) mod tests;

pub use redactor::Redactor;

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";
/// The shortest value that is searched for, in bytes. Shorter ones (`eu`, `8080`) would be found in
/// many results.
pub const MIN_SECRET_LENGTH: usize = 8;
