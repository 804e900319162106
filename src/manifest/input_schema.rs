//! The input schema of a manifest's entry.

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// A schema, and its compiled form for the catalog, which would compile it again.
pub(super) struct InputSchema {
    pub(super) value: Arc<Value>,
    /// `None` if it has faults.
    pub(super) compiled: Option<Arc<Schema>>,
}
