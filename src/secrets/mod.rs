//! Secrets come in by reference and never go out.
//!
//! `${env:NAME}` and `${file:/path}` in a manifest are replaced when it is read. Every value that came in that way is
//! remembered here, so that it can be taken out of whatever a tool says: an upstream may echo a header back.
//!
//! `forms` lists the encodings of a value. `finder` finds all of them in one pass, and finds the part of one that a cut
//! leaves behind. `condensed` is for values with line breaks and invisible characters in them. `redactor` applies both to results, failures, progress and texts that are cut.

mod condensed;
mod finder;
mod forms;
mod redactor;
#[cfg(test)]
pub(crate) mod tests;

pub use redactor::Redactor;

/// Put in a secret's place.
pub const REDACTED: &str = "[redacted]";
/// Shorter values, in bytes, are not looked for: `eu` or `8080` would be found in every other answer.
pub const SHORTEST: usize = 8;
