//! Which calls are exported.

use jiff::Timestamp;

/// The filters of an export.
pub(super) struct Selection {
    pub(super) tool: Option<String>,
    pub(super) since: Option<Timestamp>,
    /// Never in the future, so that an export ends while calls go on.
    pub(super) until: Timestamp,
}
