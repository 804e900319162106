//! Rare changes: an admin's decisions. Each is a transaction on a connection of the pool, which also
//! announces the change to the other replicas.

use std::time::Duration;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgPool, Postgres};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::super::{RegisteredTool, SharedChange, Switch};
use super::announce::announce;
use super::commit::storable;
use super::lease::RECALL_TIME;
use super::read::Result;
use crate::call::InvocationId;

/// How often a reset looks whether the free units of its counters are back.
const RECALL_INTERVAL: Duration = Duration::from_millis(20);

/// Makes changes in the name of one process.
pub(super) struct Changes {
    pub(super) pool: PgPool,
    /// The sender of the announcements.
    pub(super) process: Uuid,
}

impl Changes {
    /// Deletes the counters of a tool, or only those of a caller. See the trait.
    pub(super) async fn reset_counters(&self, tool: &str, caller: Option<&str>) -> Result<u64> {
        let counters = async |sql| {
            sqlx::query_scalar::<_, i64>(sql)
                .bind(storable(tool))
                .bind(caller.map(storable))
                .fetch_one(&self.pool)
                .await
        };
        // A replica that keeps silent must not hand out units that were set aside before.
        let until = Instant::now() + RECALL_TIME;
        while counters("select recall_units_1($1, $2)").await? > 0 && Instant::now() < until {
            sleep(RECALL_INTERVAL).await;
        }
        let deleted = counters("select reset_counters_1($1, $2)").await?;
        Ok(deleted.unsigned_abs())
    }

    pub(super) async fn purge_results(&self, tool: Option<&str>) -> Result<u64> {
        let delete = sqlx::query("delete from stored_result where $1::text is null or tool = $1")
            .bind(tool.map(storable));
        let change = SharedChange::Purged(tool.map(str::to_owned));
        self.make(delete, &change).await
    }

    pub(super) async fn set_switch(&self, switch: &Switch) -> Result<()> {
        let sql = "insert into tool_switch (tool, enabled) values ($1, $2) \
            on conflict (tool) do update set enabled = excluded.enabled";
        let set = sqlx::query(sql)
            .bind(storable(&switch.tool))
            .bind(switch.enabled);
        self.make(set, &SharedChange::Tools).await.map(drop)
    }

    pub(super) async fn register_tool(&self, tool: &RegisteredTool) -> Result<()> {
        let sql = "insert into registered_tool (name, definition, registered_by, registered_at) values ($1, $2, $3, $4) \
            on conflict (name) do update set definition = excluded.definition, registered_by = excluded.registered_by, \
            registered_at = excluded.registered_at";
        let register = sqlx::query(sql)
            .bind(storable(&tool.name))
            .bind(storable(&tool.definition))
            .bind(storable(&tool.registered_by))
            .bind(tool.registered_at.as_millisecond());
        self.make(register, &SharedChange::Tools).await.map(drop)
    }

    pub(super) async fn unregister_tool(&self, name: &str) -> Result<bool> {
        let delete =
            sqlx::query("delete from registered_tool where name = $1").bind(storable(name));
        Ok(self.make(delete, &SharedChange::Tools).await? > 0)
    }

    /// Asks the other replicas to cancel a call.
    pub(super) async fn request_cancel(
        &self,
        call: InvocationId,
        caller: Option<&str>,
    ) -> Result<()> {
        let caller = caller.map(str::to_owned);
        let change = SharedChange::Cancel { call, caller };
        let mut connection = self.pool.acquire().await?;
        announce(&mut connection, self.process, &change).await
    }

    /// Runs the statement and announces the change. Returns the number of affected rows.
    async fn make(
        &self,
        statement: Query<'_, Postgres, PgArguments>,
        change: &SharedChange,
    ) -> Result<u64> {
        let mut transaction = self.pool.begin().await?;
        let rows = statement.execute(&mut *transaction).await?.rows_affected();
        announce(&mut transaction, self.process, change).await?;
        transaction.commit().await?;
        Ok(rows)
    }
}
