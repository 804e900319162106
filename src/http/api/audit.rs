//! `GET /audit`: the record of administration.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::audit::{Action, Entry};
use crate::call::units::parse_time;
use crate::http::edge::auth::Admin;
use crate::http::openapi::documented::Since;
use crate::http::openapi::responses::{
    AuthResponses, CommonResponses, LedgerResponses, QueryResponses,
};
use crate::http::problem::ApiError;
use crate::http::query::{QueryParams, invalid_cursor, page_size};
use crate::http::state::AppState;
use crate::ledger::{AuditQuery, Error, Ledger};

/// Which entries to list; everything given must match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListAudit {
    /// Only this action.
    #[param(inline)]
    action: Option<Action>,
    /// Only what this caller did, or `operator`.
    actor: Option<String>,
    /// Only what was done to this tool, source, caller or call.
    subject: Option<String>,
    /// Only entries of this time or later (RFC 3339), or within this span (`15m`).
    #[param(value_type = Option<Since>, inline)]
    since: Option<String>,
    /// Only entries before this time, or longer ago than this span.
    #[param(value_type = Option<Since>, inline)]
    until: Option<String>,
    /// Entries on a page: 1 to 500, default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page: the `seq` of its last entry.
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
}

/// A page of entries, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct AuditPage {
    /// The entries.
    entries: Vec<Entry>,
    /// Where the next page begins; null on the last.
    #[schema(required)]
    next_cursor: Option<String>,
}

impl AuditPage {
    /// Reads a page of the ledger.
    pub(crate) async fn read(ledger: &dyn Ledger, mut query: AuditQuery) -> Result<Self, Error> {
        let limit = query.limit as usize;
        query.limit += 1;
        let mut entries = ledger.list_audit(&query).await?;
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let last = entries.last().filter(|_| has_more);
        let next_cursor = last.map(|entry| entry.seq.to_string());
        Ok(Self {
            entries,
            next_cursor,
        })
    }
}

/// What admins and the operator have done, newest first.
///
/// Each entry has a hash over itself and the hash of the entry before, so a later change shows.
#[utoipa::path(get, operation_id = "list_audit", path = "/audit", tag = "operator", params(ListAudit), responses(
    (status = 200, description = "A page, newest first", body = AuditPage), CommonResponses, AuthResponses, QueryResponses, LedgerResponses))]
pub(crate) async fn list_audit(
    State(state): State<AppState>,
    _: Admin,
    QueryParams(params): QueryParams<ListAudit>,
) -> Result<Json<AuditPage>, ApiError> {
    let limit = page_size(params.limit)?;
    let shared = state.registry.shared();
    let now = shared.clock.now();
    let read_time = |name, text: Option<String>| {
        let time = text.map(|text| parse_time(name, &text, now)).transpose();
        time.map_err(ApiError::Malformed)
    };
    let cursor = params.cursor.map(|cursor| cursor.parse());
    let query = AuditQuery {
        action: params.action,
        actor: params.actor,
        subject: params.subject,
        since: read_time("since", params.since)?,
        until: read_time("until", params.until)?,
        before: cursor.transpose().map_err(|_| invalid_cursor())?,
        limit,
    };
    Ok(Json(AuditPage::read(&*shared.ledger, query).await?))
}
