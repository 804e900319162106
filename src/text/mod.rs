//! Functions on texts and names that many parts need.
//!
//! - `names.rs`: other spellings of names of tools; `suggest.rs`: similar names
//! - `sanitize.rs`: characters that a model or terminal must not get
//! - `word_index.rs`: finds texts by their words
//! - `changes.rs`: differences between two sets of names

pub mod changes;
pub mod names;
pub mod sanitize;
pub mod suggest;
pub(crate) mod word_index;
