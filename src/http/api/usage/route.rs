//! `GET /usage`: calls and limits of each tool and caller. `buckets.rs` counts by time.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::buckets::{UsageBuckets, UsageParams, count_by_time, token_sums};
use crate::call::{Caller, Charged, LimitOwner, LimitUsage, Per};
use crate::http::edge::auth::Principal;
use crate::http::openapi::responses::{
    AuthResponses, CommonResponses, LedgerResponses, QueryResponses,
};
use crate::http::problem::ApiError;
use crate::http::query::QueryParams;
use crate::http::state::AppState;
use crate::ledger::{BucketQuery, TokenSums, UsageRow};

/// Totals and limits of one tool and caller.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ToolUsage {
    /// Name of the tool.
    pub tool: String,
    /// Name of the caller.
    pub caller: String,
    /// All calls.
    pub calls: u64,
    /// Calls whose result is not an error.
    pub succeeded: u64,
    /// Calls that failed, gave an error result, timed out, were cancelled, or are unknown.
    pub failed: u64,
    /// Calls refused before the tool ran.
    pub refused: u64,
    /// Calls answered from a stored result, or from the result of an equal call in flight.
    pub cache_hits: u64,
    /// Median duration of calls that were not refused.
    #[schema(required)]
    pub p50_ms: Option<f64>,
    /// 99th percentile of the duration of calls that were not refused.
    #[schema(required)]
    pub p99_ms: Option<f64>,
    /// The tokens of an agent's calls, as far as they are recorded; null for other tools.
    #[schema(required)]
    pub tokens: Option<TokenSums>,
    /// The current state of the tool's limits. Those per run are left out.
    pub limits: Vec<LimitUsage>,
}

/// The limits of one caller.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CallerUsage {
    /// Name of the caller.
    pub caller: String,
    /// The current state of its limits over all tools. Those per run are left out.
    pub limits: Vec<LimitUsage>,
}

impl From<UsageRow> for ToolUsage {
    fn from(row: UsageRow) -> Self {
        Self {
            tool: row.tool,
            caller: row.caller,
            calls: row.calls,
            succeeded: row.succeeded,
            failed: row.failed,
            refused: row.refused,
            cache_hits: row.cache_hits,
            p50_ms: row.p50_ms,
            p99_ms: row.p99_ms,
            tokens: None,
            limits: Vec::new(),
        }
    }
}

/// Totals.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Usage {
    /// One entry for each tool and caller with calls.
    pub tools: Vec<ToolUsage>,
    /// One entry for each caller with limits of its own.
    pub callers: Vec<CallerUsage>,
}

/// A tool's calls over all of time, for each caller.
fn all_time(caller: Option<&str>) -> BucketQuery {
    BucketQuery {
        since: Timestamp::UNIX_EPOCH,
        until: Timestamp::MAX,
        width_ms: i64::MAX,
        by: None,
        caller: caller.map(str::to_owned),
        limit: u32::MAX,
    }
}

/// A query without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParameters {}

/// Totals, or counts by time.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(crate) enum UsageAnswer {
    /// Without `bucket`.
    Totals(Usage),
    /// With `bucket`.
    Buckets(UsageBuckets),
}

/// Usage: a caller sees its own, an admin all.
///
/// Without parameters: totals of each tool and caller since the ledger began, and limits. With
/// `bucket`: the recorded calls by the time of their start.
#[utoipa::path(get, operation_id = "get_usage", path = "/usage", tag = "ledger", params(UsageParams), responses(
    (status = 200, description = "Totals, or counts by time", body = UsageAnswer), CommonResponses, AuthResponses, QueryResponses, LedgerResponses))]
pub(crate) async fn get_usage(
    State(state): State<AppState>,
    Principal(caller): Principal,
    QueryParams(params): QueryParams<UsageParams>,
) -> Result<Json<UsageAnswer>, ApiError> {
    let registry = &state.registry;
    if let Some(bucket) = params.bucket()? {
        let slots = &state.count_slots;
        let buckets = count_by_time(registry, slots, &caller, &params, bucket).await?;
        return Ok(Json(UsageAnswer::Buckets(buckets)));
    }
    let own = (!caller.admin).then(|| caller.name.to_string());
    let ledger = &registry.shared().ledger;
    ledger.flush().await?;
    let rows = ledger.usage_totals(own.as_deref()).await?;
    let tokens = token_sums(registry, &all_time(own.as_deref())).await?;
    let mut tools = Vec::with_capacity(rows.len());
    for row in rows {
        let row_caller = Caller::new(row.caller.as_str(), false);
        let limits = match registry.get(&row.tool) {
            Some(entry) => registry
                .limit_usage(&entry, &row_caller)
                .await?
                .iter()
                .filter(|charged| charged.charge.owner() == LimitOwner::Tool)
                .filter(|charged| charged.charge.per != Per::Run)
                .map(Charged::to_usage)
                .collect(),
            None => Vec::new(),
        };
        let key = (0, row.tool.clone(), row.caller.clone(), None);
        tools.push(ToolUsage {
            tokens: tokens.get(&key).copied(),
            limits,
            ..ToolUsage::from(row)
        });
    }
    let callers = registry.caller_limit_usage(own.as_deref()).await?;
    let callers = callers.into_iter().filter(|(_, limits)| !limits.is_empty());
    let callers = callers.map(|(caller, limits)| CallerUsage {
        caller: caller.to_string(),
        limits: limits.iter().map(Charged::to_usage).collect(),
    });
    let callers = callers.collect();
    Ok(Json(UsageAnswer::Totals(Usage { tools, callers })))
}
