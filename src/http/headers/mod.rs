//! Headers that several routes read or write.

pub(super) mod call_headers;
pub(super) mod etag;
pub(super) mod prefer;
