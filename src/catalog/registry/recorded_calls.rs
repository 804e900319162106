//! Finds calls, running or ended, and their results: for routes, and for tools that read a caller's
//! own results.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use async_trait::async_trait;

use crate::access::deny_list::DenyList;
use crate::approval::request::waiting_row;
use crate::call::{InvocationId, OwnResult, OwnResultError, OwnResults, ToolContext, ToolName};
use crate::catalog::Catalog;
use crate::ledger::{End, Error, RecordedCall, Row, State};
use crate::stack::order::SharedParts;

/// A call by id, with the result of the call that answered it. `None`: no call has this id.
pub(crate) async fn find_call(
    shared: &SharedParts,
    id: InvocationId,
) -> Result<Option<RecordedCall>, Error> {
    let running = shared.in_flight_calls.get(id);
    if running.is_some() {
        // Failed attempts are written behind. After this flush, a client that asks for its call
        // sees them.
        let _ = shared.ledger.flush().await;
    }
    let found = shared.ledger.get(id).await?;
    let mut found = match (running, found) {
        (Some(row), found) => {
            let row = Row {
                replica: shared.ledger.replica(),
                ..Row::clone(&row)
            };
            match found {
                Some(found) => RecordedCall { row, ..found },
                None => without_attempts(row),
            }
        }
        (None, Some(found)) => found,
        (None, None) => return find_without_row(shared, id).await,
    };
    found.origin_result = match (found.origin_result.take(), found.row.origin) {
        // The origin call ran when this row was read. It is still in the table, or its row is
        // committed by now.
        (None, Some(origin)) => match shared.in_flight_calls.get(origin) {
            Some(row) => row.result.clone(),
            None => shared
                .ledger
                .get(origin)
                .await?
                .and_then(|found| found.row.result),
        },
        (stored, _) => stored,
    };
    Ok(Some(found))
}

/// A call that runs on another replica, or that waits for a person.
async fn find_without_row(
    shared: &SharedParts,
    id: InvocationId,
) -> Result<Option<RecordedCall>, Error> {
    if let Some(row) = shared.ledger.find_running_elsewhere(id).await? {
        return Ok(Some(without_attempts(row)));
    }
    // A call that waits for a person, or that was decided and has no row yet.
    let waiting = shared.ledger.find_approval(id).await?;
    match waiting.filter(|row| !row.done) {
        Some(waiting) => Ok(Some(without_attempts(waiting_row(&waiting)))),
        // The call may have got its row meanwhile.
        None if shared.ledger.replica().is_some() => shared.ledger.get(id).await,
        None => Ok(None),
    }
}

fn without_attempts(row: Row) -> RecordedCall {
    RecordedCall {
        row,
        attempts: Vec::new(),
        origin_result: None,
    }
}

/// Reads the results of a caller's own calls. The catalog is weak: tools hold this value and the
/// catalog holds tools, so a strong reference would be a cycle.
pub(crate) struct RecordedResults {
    pub(crate) shared: SharedParts,
    pub(crate) catalog: Weak<ArcSwap<Catalog>>,
}

#[async_trait]
impl OwnResults for RecordedResults {
    async fn read_result(
        &self,
        context: &ToolContext,
        id: InvocationId,
    ) -> Result<OwnResult, OwnResultError> {
        let found = find_call(&self.shared, id)
            .await
            .map_err(|_| OwnResultError::Unavailable)?
            .ok_or(OwnResultError::Unknown)?;
        let row = found.row;
        // Another caller's call is reported as unknown, so that guessing ids reveals nothing. This
        // holds for admins too, because here a model asks, not the admin.
        if row.caller != context.caller.name {
            return Err(OwnResultError::Unknown);
        }
        if self.is_tool_denied(context, &row.tool) {
            return Err(OwnResultError::Denied);
        }
        let is_running = matches!(row.state, State::Waiting | State::Reserved | State::Running);
        match row
            .decode_end(found.origin_result)
            .map_err(|_| OwnResultError::Unavailable)?
        {
            End::Open if is_running => Err(OwnResultError::InProgress),
            End::Open | End::DigestOnly(_) => Err(OwnResultError::NotRetained),
            End::Failed(_) => Err(OwnResultError::Failed),
            End::Answered { result, .. } => Ok(OwnResult {
                origin: row.origin.unwrap_or(row.id),
                result: Arc::unwrap_or_clone(result),
            }),
        }
    }
}

impl RecordedResults {
    /// Whether the request denies the tool of that call, by any of its names.
    fn is_tool_denied(&self, context: &ToolContext, tool: &str) -> bool {
        let denials = DenyList::from_context(context);
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
