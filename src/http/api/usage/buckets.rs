//! `GET /usage?bucket=…`: calls by the time of their start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use utoipa::IntoParams;

use crate::call::units::parse_time;
use crate::call::{CallError, Caller, Failure};
use crate::catalog::registry::Registry;
use crate::http::openapi::documented::Since;
use crate::http::problem::ApiError;
use crate::ledger::{BucketQuery, BucketRow, TokenSums, UsageBy};

/// Most buckets of one answer: a day of minutes, and two months of hours.
const MAX_BUCKETS: i64 = 1500;
/// Most rows of one answer, over all buckets.
const MAX_ROWS: u32 = 50_000;

/// How many requests count at once. They may read many rows, and others need the ledger, too.
const MAX_COUNTS: usize = 2;
/// How long a request waits for the others.
const MAX_COUNT_WAIT: Duration = Duration::from_secs(10);

/// The requests that count.
pub(crate) struct CountSlots(Semaphore);

impl Default for CountSlots {
    fn default() -> Self {
        Self(Semaphore::new(MAX_COUNTS))
    }
}

impl CountSlots {
    async fn take(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        if let Ok(Ok(slot)) = timeout(MAX_COUNT_WAIT, self.0.acquire()).await {
            return Ok(slot);
        }
        let overloaded = CallError::Overloaded {
            retry_after: MAX_COUNT_WAIT,
            per_caller: None,
        };
        Err(ApiError::Call {
            failure: Failure {
                detail: format!("{MAX_COUNTS} requests count calls by time, which is the maximum"),
                ..Failure::from(&overloaded)
            },
            invocation: None,
        })
    }
}

/// Length of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
pub(crate) enum BucketLength {
    /// A minute.
    #[serde(rename = "1m")]
    Minute,
    /// An hour.
    #[serde(rename = "1h")]
    Hour,
    /// A day of UTC.
    #[serde(rename = "1d")]
    Day,
}

impl BucketLength {
    fn width_ms(self) -> i64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }

    /// The time range if the request names none.
    fn default_range(self) -> Duration {
        Duration::from_secs(match self {
            Self::Minute => 3600,
            Self::Hour => 24 * 3600,
            Self::Day => 30 * 24 * 3600,
        })
    }
}

/// Which calls to count, and how.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageParams {
    /// Counts by time instead of totals, in buckets of this length. At most 1500 buckets.
    bucket: Option<BucketLength>,
    /// With `bucket`: calls that started at or after this time (RFC 3339), or within this span
    /// (`15m`). Default: an hour of minutes, a day of hours, or 30 days.
    #[param(value_type = Option<Since>, inline)]
    since: Option<String>,
    /// With `bucket`: calls that started before this time, or longer ago than this span. Default:
    /// now.
    #[param(value_type = Option<Since>, inline)]
    until: Option<String>,
    /// With `bucket`: one row for each tool, caller, or run of a caller. Default: for each tool and
    /// caller.
    by: Option<UsageBy>,
}

impl UsageParams {
    /// The length of the buckets; `None` if the request wants totals.
    pub(crate) fn bucket(&self) -> Result<Option<BucketLength>, ApiError> {
        let others = [
            ("since", self.since.is_some()),
            ("until", self.until.is_some()),
            ("by", self.by.is_some()),
        ];
        match (self.bucket, others.iter().find(|(_, is_set)| *is_set)) {
            (None, Some((name, _))) => Err(ApiError::Malformed(format!(
                "`{name}` needs `bucket`: 1m, 1h or 1d"
            ))),
            (bucket, _) => Ok(bucket),
        }
    }
}

/// Counts by time.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct UsageBuckets {
    /// The oldest first. A bucket without calls has no row.
    pub buckets: Vec<UsageBucket>,
}

/// The calls that started in one bucket, of one tool, caller or run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct UsageBucket {
    /// Start of the bucket.
    #[schema(value_type = String, format = DateTime)]
    pub start: Timestamp,
    /// Name of the tool; null if the row is over all tools.
    #[schema(required)]
    pub tool: Option<String>,
    /// Name of the caller; null if the row is over all callers.
    #[schema(required)]
    pub caller: Option<String>,
    /// With `by=run`: the run, or null for calls without a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<String>)]
    pub run_id: Option<Option<String>>,
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
    /// The tokens of agents' calls, without those of nested calls; null if there are none.
    #[schema(required)]
    pub tokens: Option<TokenSums>,
}

impl UsageBucket {
    fn new(row: BucketRow, tokens: Option<TokenSums>, by: Option<UsageBy>) -> Option<Self> {
        let counts = row.counts;
        Some(Self {
            start: Timestamp::from_millisecond(row.start_ms).ok()?,
            tool: matches!(by, None | Some(UsageBy::Tool)).then_some(counts.tool),
            caller: (by != Some(UsageBy::Tool)).then_some(counts.caller),
            run_id: (by == Some(UsageBy::Run)).then_some(row.run_id),
            calls: counts.calls,
            succeeded: counts.succeeded,
            failed: counts.failed,
            refused: counts.refused,
            cache_hits: counts.cache_hits,
            p50_ms: counts.p50_ms,
            p99_ms: counts.p99_ms,
            tokens,
        })
    }
}

/// Counts the calls that this caller may see.
pub(crate) async fn count_by_time(
    registry: &Arc<Registry>,
    slots: &CountSlots,
    caller: &Caller,
    params: &UsageParams,
    bucket: BucketLength,
) -> Result<UsageBuckets, ApiError> {
    let shared = registry.shared();
    let now = shared.clock.now();
    let time = |name: &str, text: &Option<String>| {
        let parsed = text.as_deref().map(|text| parse_time(name, text, now));
        parsed.transpose().map_err(ApiError::Malformed)
    };
    let until = time("until", &params.until)?.unwrap_or(now);
    let default = || until.checked_sub(bucket.default_range()).unwrap_or(until);
    let since = time("since", &params.since)?.unwrap_or_else(default);
    if since >= until {
        return Err(ApiError::Malformed(
            "since must be before until: without `until`, before now".into(),
        ));
    }
    let width_ms = bucket.width_ms();
    let number = |at: Timestamp| at.as_millisecond().div_euclid(width_ms);
    let buckets = number(until) - number(since) + 1;
    if buckets > MAX_BUCKETS {
        return Err(ApiError::Malformed(format!(
            "{buckets} buckets are too many: at most {MAX_BUCKETS}; use a longer bucket or a later `since`"
        )));
    }
    let _slot = slots.take().await?;
    shared.ledger.flush().await?;
    // A request without `until` counts the calls of this millisecond, too.
    let until = match params.until {
        Some(_) => until,
        None => until
            .checked_add(SignedDuration::from_secs(1))
            .unwrap_or(until),
    };
    let query = BucketQuery {
        since,
        until,
        width_ms,
        by: params.by,
        caller: (!caller.admin).then(|| caller.name.to_string()),
        limit: MAX_ROWS + 1,
    };
    let rows = shared.ledger.usage_buckets(&query).await?;
    if rows.len() > MAX_ROWS as usize {
        return Err(ApiError::Malformed(format!(
            "there are more than {MAX_ROWS} rows: use a longer bucket, a later `since`, or `by=tool`"
        )));
    }
    let tokens = token_sums(registry, &query).await?;
    let buckets = rows.into_iter().filter_map(|row| {
        let (tool, caller) = (row.counts.tool.clone(), row.counts.caller.clone());
        let key = (row.start_ms, tool, caller, row.run_id.clone());
        UsageBucket::new(row, tokens.get(&key).copied(), params.by)
    });
    Ok(UsageBuckets {
        buckets: buckets.collect(),
    })
}

/// Bucket, tool, caller and run of sums of tokens.
type TokenKey = (i64, String, String, Option<String>);

/// The tokens of agents, by the groups of the query. Only tools that call others have a model.
pub(crate) async fn token_sums(
    registry: &Registry,
    query: &BucketQuery,
) -> Result<HashMap<TokenKey, TokenSums>, ApiError> {
    let catalog = registry.catalog();
    let agents = catalog.entries();
    let agents = agents.filter(|entry| entry.rules.runner.traits().calls_tools);
    let agents: Vec<String> = agents
        .map(|entry| entry.definition.name.to_string())
        .collect();
    if agents.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = registry.shared().ledger.token_sums(query, &agents).await?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|row| ((row.start_ms, row.tool, row.caller, row.run_id), row.tokens))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn third_count_waits_and_is_refused_after_a_while() {
        let slots = CountSlots::default();
        let (first, _second) = (slots.take().await.unwrap(), slots.take().await.unwrap());
        let Err(ApiError::Call { failure, .. }) = slots.take().await else {
            panic!("there is no third slot");
        };
        assert_eq!(failure.kind, crate::call::ErrorKind::Overloaded);
        drop(first);
        assert!(slots.take().await.is_ok());
    }
}
