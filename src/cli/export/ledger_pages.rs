//! The selected calls of a ledger, in the order of their ids.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::super::Failure;
use crate::http::exported_call;
use crate::ledger::{ExportQuery, Ledger};

/// Calls of a page. Each may have a result of a megabyte.
const PAGE_SIZE: u32 = 100;

pub(super) struct LedgerPages {
    ledger: Arc<dyn Ledger>,
    query: ExportQuery,
}

impl LedgerPages {
    pub(super) fn new(ledger: Arc<dyn Ledger>, selection: Selection) -> Self {
        let query = ExportQuery {
            tool: selection.tool,
            since: selection.since,
            until: Some(selection.until),
            after: None,
            limit: PAGE_SIZE,
        };
        Self { ledger, query }
    }

    /// The next calls; empty after the last.
    pub(super) async fn next(&mut self) -> Result<Vec<Value>, Failure> {
        let calls = self.ledger.export_calls(&self.query).await?;
        self.query.after = calls.last().map(|call| call.row.id);
        let mut exported = Vec::with_capacity(calls.len());
        for call in calls {
            let id = call.row.id;
            exported.push(
                exported_call(call)
                    .map_err(|error| Failure::Failed(format!("toolcrib: {error} ({id})")))?,
            );
        }
        Ok(exported)
    }
}

/// The filters of an export.
pub(super) struct Selection {
    pub(super) tool: Option<String>,
    pub(super) since: Option<Timestamp>,
    /// Never in the future, so that an export ends while calls go on.
    pub(super) until: Timestamp,
}
