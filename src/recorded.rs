//! Finds calls, running or ended, and their results: for routes, and for tools that read a caller's own results.

use std::sync::Weak;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use crate::call::{InvocationId, NotRead, OwnResult, OwnResults, ToolContext, ToolName};
use crate::catalog::Catalog;
use crate::deny_list::Denials;
use crate::ledger::{End, Error, RecordedCall, State};
use crate::stack::Shared;

/// A call by id, with the result of the call that answered it. `None`: no call has this id.
pub(crate) async fn find(shared: &Shared, id: InvocationId) -> Result<Option<RecordedCall>, Error> {
    let running = shared.running.get(id);
    if running.is_some() {
        // Failed attempts are written behind. After this flush, a client that asks for its call sees them.
        let _ = shared.ledger.flush().await;
    }
    let found = shared.ledger.get(id).await?;
    let mut found = match (running, found) {
        (Some(row), found) => {
            let (attempts, origin_result) =
                found.map(|found| (found.attempts, found.origin_result)).unwrap_or_default();
            RecordedCall { row: (*row).clone(), attempts, origin_result }
        }
        (None, Some(found)) => found,
        (None, None) => return Ok(None),
    };
    found.origin_result = match (found.origin_result.take(), found.row.origin) {
        // The origin call ran when this row was read. It is still in the table, or its row is committed by now.
        (None, Some(origin)) => match shared.running.get(origin) {
            Some(row) => row.result.clone(),
            None => shared.ledger.get(origin).await?.and_then(|found| found.row.result),
        },
        (stored, _) => stored,
    };
    Ok(Some(found))
}

/// Reads the results of a caller's own calls. The catalog is weak: tools hold this value and the catalog holds tools,
/// so a strong reference would be a cycle.
pub(crate) struct Recorded {
    pub(crate) shared: Shared,
    pub(crate) catalog: Weak<ArcSwap<Catalog>>,
}

#[async_trait]
impl OwnResults for Recorded {
    async fn read(&self, asking: &ToolContext, id: InvocationId) -> Result<OwnResult, NotRead> {
        let found = find(&self.shared, id).await.map_err(|_| NotRead::Unavailable)?.ok_or(NotRead::Unknown)?;
        let row = found.row;
        // Another caller's call is reported as unknown, so that guessing ids reveals nothing. This holds for admins
        // too, because here a model asks, not the admin.
        if row.caller != asking.caller.name {
            return Err(NotRead::Unknown);
        }
        if self.is_denied(asking, &row.tool) {
            return Err(NotRead::Denied);
        }
        let is_running = matches!(row.state, State::Reserved | State::Running);
        match row.end(found.origin_result).map_err(|_| NotRead::Unavailable)? {
            End::Open if is_running => Err(NotRead::Open),
            End::Open | End::Withheld(_) => Err(NotRead::NotKept),
            End::Failed(_) => Err(NotRead::Failed),
            End::Answered { result, .. } => Ok(OwnResult { origin: row.origin.unwrap_or(row.id), result }),
        }
    }
}

impl Recorded {
    /// Whether the request denies the tool of that call, by any of its names.
    fn is_denied(&self, asking: &ToolContext, tool: &str) -> bool {
        let denials = Denials::of(asking);
        if denials.is_empty() {
            return false;
        }
        let catalog = self.catalog.upgrade().map(|catalog| catalog.load_full());
        match catalog.as_ref().and_then(|catalog| catalog.get(tool)) {
            Some(entry) => denials.denies(entry.names()),
            None => ToolName::parse(tool).is_ok_and(|name| denials.denies([&name])),
        }
    }
}
