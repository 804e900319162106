//! The tokens of agents' calls, for `route.rs` and `buckets.rs`.

use std::collections::HashMap;

use crate::catalog::registry::Registry;
use crate::http::problem::ApiError;
use crate::ledger::{BucketQuery, TokenSums};

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
