//! Long results in pages.
//!
//! - `page.rs`: which page is wanted, and what an answer tells about the rest
//! - `cut.rs`: cuts a result to a page
//! - `shape.rs`: the shape of a result that a model does not see
//! - `incomplete.rs`, `source_overflow.rs`: results of which a part is missing

mod cut;
mod incomplete;
mod page;
mod shape;
mod source_overflow;

pub use cut::{CutResult, MAX_TEXT_CHARS, cut_result, may_be_cut};
pub use incomplete::Incomplete;
pub use page::{Detail, Overflow, Page, PageArguments, Paging, RestHint, Unit};
pub use shape::describe_shape;
