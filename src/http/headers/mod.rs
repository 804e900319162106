//! Headers that several routes read or write.

pub(super) mod etag;
pub(super) mod idempotency;
pub(super) mod prefer;
pub(super) mod run_id;
pub(super) mod single_header;
