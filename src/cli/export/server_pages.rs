//! The calls of a running server, the oldest first.
//!
//! `GET /invocations` has the newest first. So the time is divided into spans with few calls each, and
//! the list of each span is reversed. A span is halved until its calls fit on one page, and the next
//! one is twice as long.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use serde_json::Value;

use super::super::Failure;
use super::super::client::{Client, encode_query, encode_segment, successful};
use super::ledger_pages::Selection;
use crate::call::InvocationId;

/// Most calls of a page of `GET /invocations`.
const PAGE_SIZE: usize = 500;
/// Number of calls that are read at the same time.
const CONCURRENT_READS: usize = 8;
/// Ids have milliseconds, so a shorter span has the same calls.
const SHORTEST_SPAN: SignedDuration = SignedDuration::from_millis(1);
/// What only the service knows about a call.
const FIELDS_OF_SERVICE: [&str; 2] = ["approval", "question"];

pub(super) struct ServerPages {
    client: Client,
    tool: Option<String>,
    /// Calls before this time are done.
    from: Timestamp,
    until: Timestamp,
    span: SignedDuration,
}

impl ServerPages {
    pub(super) fn new(client: Client, selection: Selection) -> Self {
        let from = selection.since.unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            client,
            tool: selection.tool,
            from,
            until: selection.until,
            span: selection.until.duration_since(from),
        }
    }

    /// The next calls; empty after the last.
    pub(super) async fn next(&mut self) -> Result<Vec<Value>, Failure> {
        while self.from < self.until {
            let end = self.from.checked_add(self.span).unwrap_or(self.until);
            let end = end.min(self.until);
            let Some(ids) = self.list(end).await? else {
                self.span = (self.span / 2).max(SHORTEST_SPAN);
                continue;
            };
            self.from = end;
            self.span = self.span.checked_mul(2).unwrap_or(self.span);
            let calls = self.read(ids).await?;
            if !calls.is_empty() {
                return Ok(calls);
            }
        }
        Ok(Vec::new())
    }

    /// The ids of the calls before `end`, the oldest first. `None`: they do not fit on one page, and
    /// the span can be shorter.
    async fn list(&self, end: Timestamp) -> Result<Option<Vec<String>>, Failure> {
        let mut ids = Vec::new();
        let mut cursor = InvocationId::lower_bound(end).to_string();
        loop {
            let (limit, since) = (PAGE_SIZE.to_string(), self.from.to_string());
            let query = encode_query([
                ("limit", Some(&*limit)),
                ("since", Some(&*since)),
                ("cursor", Some(&*cursor)),
                ("tool", self.tool.as_deref()),
            ]);
            let page = self.client.get(&format!("/invocations?{query}")).await?;
            let page = successful(page, true)?;
            let rows = page["invocations"].as_array().into_iter().flatten();
            let has_ended = |row: &&Value| {
                let state = row["state"].as_str().unwrap_or_default();
                !["waiting", "reserved", "running"].contains(&state)
            };
            let id = |row: &Value| row["invocation_id"].as_str().map(str::to_owned);
            ids.extend(rows.filter(has_ended).filter_map(id));
            match page["next_cursor"].as_str() {
                None => break,
                Some(_) if self.span > SHORTEST_SPAN => return Ok(None),
                Some(next) => next.clone_into(&mut cursor),
            }
        }
        ids.reverse();
        Ok(Some(ids))
    }

    /// The calls with these ids, without those that were deleted meanwhile.
    async fn read(&self, ids: Vec<String>) -> Result<Vec<Value>, Failure> {
        let client = &self.client;
        let read_one = |id: String| async move {
            let path = format!("/invocations/{}", encode_segment(&id));
            let (status, call) = client.get(&path).await?;
            if status == StatusCode::NOT_FOUND {
                return Ok::<_, Failure>(None);
            }
            let mut call = successful((status, call), true)?;
            if let Some(fields) = call.as_object_mut() {
                fields.retain(|name, _| !FIELDS_OF_SERVICE.contains(&name.as_str()));
            }
            Ok(Some(call))
        };
        let calls = stream::iter(ids).map(read_one).buffered(CONCURRENT_READS);
        let calls: Vec<Option<Value>> = calls.try_collect().await?;
        Ok(calls.into_iter().flatten().collect())
    }
}
