//! The pages for people and programs: the reference and the console.

pub(super) mod console;
pub(super) mod docs;
