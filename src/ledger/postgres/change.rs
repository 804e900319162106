//! Rare changes: an admin's decisions. Each is one statement on a connection of the pool.

use sqlx::PgPool;

use super::super::{RegisteredTool, Switch};
use super::commit::storable;
use super::read::Result;

/// Deletes the counters of a tool, or only those of a caller. See the trait.
pub(super) async fn reset_counters(pool: &PgPool, tool: &str, caller: Option<&str>) -> Result<u64> {
    let sql = "delete from quota where id in (select id from quota where (tool = $1 and ($2::text is null or caller = $2)) \
        or (tool = '' and caller = $2) order by id for update)";
    let query = sqlx::query(sql)
        .bind(storable(tool))
        .bind(caller.map(storable));
    Ok(query.execute(pool).await?.rows_affected())
}

pub(super) async fn purge_results(pool: &PgPool, tool: Option<&str>) -> Result<u64> {
    let query = sqlx::query("delete from stored_result where $1::text is null or tool = $1");
    Ok(query
        .bind(tool.map(storable))
        .execute(pool)
        .await?
        .rows_affected())
}

pub(super) async fn set_switch(pool: &PgPool, switch: &Switch) -> Result<()> {
    let sql = "insert into tool_switch (tool, enabled) values ($1, $2) \
        on conflict (tool) do update set enabled = excluded.enabled";
    let query = sqlx::query(sql)
        .bind(storable(&switch.tool))
        .bind(switch.enabled);
    query.execute(pool).await.map(drop)
}

pub(super) async fn register_tool(pool: &PgPool, tool: &RegisteredTool) -> Result<()> {
    let sql = "insert into registered_tool (name, definition, registered_by, registered_at) values ($1, $2, $3, $4) \
        on conflict (name) do update set definition = excluded.definition, registered_by = excluded.registered_by, \
        registered_at = excluded.registered_at";
    let query = sqlx::query(sql)
        .bind(storable(&tool.name))
        .bind(storable(&tool.definition))
        .bind(storable(&tool.registered_by))
        .bind(tool.registered_at.as_millisecond());
    query.execute(pool).await.map(drop)
}

pub(super) async fn unregister_tool(pool: &PgPool, name: &str) -> Result<bool> {
    let query = sqlx::query("delete from registered_tool where name = $1").bind(storable(name));
    Ok(query.execute(pool).await?.rows_affected() > 0)
}
