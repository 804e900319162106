//! Rare changes, each in a commit of its own: an admin's decisions, and deletions.

use jiff::Timestamp;
use sqlx::{SqliteConnection, query};

use super::super::operation::{self, Reply};
use super::super::sql::Sql;
use super::super::writer_queue::WriterQueue;
use super::super::{RecordedCall, Row, audit, import};
use super::commit_marker;
use super::hours::{self, Claim};
use super::quota::Settlement;
use super::set_aside::SetAside;
use crate::audit::NewEntry;
use crate::call::{InvocationId, KEY_RETENTION};

/// The changes of the ledger's trait.
pub(super) enum Change {
    Reset {
        tool: String,
        caller: Option<String>,
        entry: Option<NewEntry>,
    },
    Write(Sql, Option<NewEntry>),
    Prune {
        before: Timestamp,
        now: Timestamp,
        at_most: u32,
    },
    Import(Vec<RecordedCall>),
    SettleProcess {
        process: i64,
        now: Timestamp,
    },
    ClaimHours(Claim),
    StoreHours {
        claim: i64,
        hours: Vec<(i64, String)>,
    },
}

impl Change {
    /// What the units set aside must forget after the commit: the counters that it has deleted.
    pub(super) fn forgotten_units(&self) -> Box<dyn FnOnce(&SetAside) + Send> {
        match self {
            Self::Reset { tool, caller, .. } => {
                let (tool, caller) = (tool.clone(), caller.clone());
                Box::new(move |units| units.forget_counters(&tool, caller.as_deref()))
            }
            Self::Prune { before, .. } => {
                let before = *before;
                Box::new(move |units| units.forget_runs(before))
            }
            _ => Box::new(|_| {}),
        }
    }

    /// Approximate size of counted hours, in bytes; `None` for other changes. Nobody waits for them, so they
    /// give way to calls when the file is full.
    pub(super) fn hours_bytes(&self) -> Option<usize> {
        match self {
            Self::ClaimHours(_) => Some(0),
            Self::StoreHours { hours, .. } => Some(hours.iter().map(|hour| hour.1.len()).sum()),
            _ => None,
        }
    }

    /// Writes the change in one commit. Returns the number of affected rows and the number of the
    /// commit. After an error the caller rolls back.
    pub(super) async fn commit(
        self,
        connection: &mut SqliteConnection,
    ) -> Result<(u64, u64), sqlx::Error> {
        query("begin immediate").execute(&mut *connection).await?;
        let rows = self.write(connection).await?;
        Ok((rows, commit_marker::commit(connection).await?))
    }

    async fn write(self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        match self {
            Self::Write(sql, entry) => audit::execute(connection, sql, entry).await,
            Self::Prune {
                before,
                now,
                at_most,
            } => delete_old_rows(connection, before, now, at_most).await,
            Self::Import(calls) => import::import_calls(connection, &calls).await,
            Self::SettleProcess { process, now } => {
                settle_calls(connection, Some(process), now).await
            }
            Self::ClaimHours(claim) => hours::claim(connection, claim).await,
            Self::StoreHours { claim, hours } => hours::store(connection, claim, hours).await,
            Self::Reset {
                tool,
                caller,
                entry,
            } => {
                let mut sql = Sql::new("delete from quota where (tool = ");
                sql.bind(tool).and("caller =", caller.clone()).push(")");
                if let Some(caller) = caller {
                    sql.push(" or (tool = '' and caller = ")
                        .bind(caller)
                        .push(")");
                }
                audit::execute(connection, sql, entry).await
            }
        }
    }
}

/// Without a process: the calls of all processes.
const COUNT_FAILED: &str = "update usage_total set failed = failed + open.calls from \
    (select caller, tool, count(*) as calls from invocation where state = 'reserved' and (?1 is null or reserved = ?1) \
    group by caller, tool) as open where usage_total.caller = open.caller and usage_total.tool = open.tool";
const SETTLE: &str = "update invocation set state = 'unknown', \
    key_until = iif(effect = 'write' and key_until is not null, ?2, null) \
    where state = 'reserved' and (?1 is null or reserved = ?1)";

/// Makes the open calls of a process `unknown`; without a process, those of all. A write keeps its
/// key for a while, as it may have had its effect. Returns the number of calls.
pub(super) async fn settle_calls(
    connection: &mut SqliteConnection,
    process: Option<i64>,
    now: Timestamp,
) -> Result<u64, sqlx::Error> {
    let key_until = now
        .checked_add(KEY_RETENTION)
        .unwrap_or(Row::FOREVER)
        .as_millisecond();
    sqlx::query(COUNT_FAILED)
        .bind(process)
        .execute(&mut *connection)
        .await?;
    let settled = sqlx::query(SETTLE)
        .bind(process)
        .bind(key_until)
        .execute(connection)
        .await?;
    Ok(settled.rows_affected())
}

/// The calls to delete: started before the limit, not reserved, and without a held key. Never the
/// newest row: otherwise the next row would get the same `seq`.
macro_rules! prunable_calls {
    () => {
        "(select seq from invocation where id < ?1 and state != 'reserved' \
          and (key_until is null or key_until <= ?3) and seq < (select max(seq) from invocation) order by id limit ?2)"
    };
}
const DELETE_CALLS: &str = concat!("delete from invocation where seq in ", prunable_calls!());
/// Adds the deleted calls to the carried part of their counters, so that the counters still count
/// them.
const CARRY_COUNTS: &str = concat!(
    "update quota set carried = carried + gone.calls from \
     (select q.id, count(*) as calls from invocation as i cross join json_each('[' || trim(i.charged, ',') || ']') as one \
      join quota as q on q.id = one.value and i.seq >= q.from_seq where i.charged is not null and i.seq in ",
    prunable_calls!(),
    " group by q.id) as gone where quota.id = gone.id"
);
const DELETE_ATTEMPTS: &str = "delete from attempt where (invocation, attempt) in \
    (select invocation, attempt from attempt where invocation < ? limit ?)";
/// Counters of runs that were not used since. All other counters exist once for each limit and
/// caller, and stay.
const DELETE_RUN_COUNTERS: &str = "delete from quota where (tool, caller, run, per) in \
    (select tool, caller, run, per from quota where per = 'run' and counted_at < ? limit ?)";

/// Deletes approvals whose calls are deleted: counts by time find such a call by its approval.
const DELETE_APPROVALS: &str = "delete from approval where id in (select id from approval where id < ? and done = 1 \
    and not exists (select 1 from invocation where invocation.id = approval.id) limit ?)";

/// Deletes at most `at_most` rows of each type that are older than `before` and hold no key at
/// `now`. Returns their number. Runs in the caller's transaction.
async fn delete_old_rows(
    connection: &mut SqliteConnection,
    before: Timestamp,
    now: Timestamp,
    at_most: u32,
) -> Result<u64, sqlx::Error> {
    let oldest = InvocationId::lower_bound(before).as_bytes().to_vec();
    let mut deleted = 0;
    let now = now.as_millisecond();
    sqlx::query(CARRY_COUNTS)
        .bind(oldest.clone())
        .bind(at_most)
        .bind(now)
        .execute(&mut *connection)
        .await?;
    let query = sqlx::query(DELETE_CALLS)
        .bind(oldest.clone())
        .bind(at_most)
        .bind(now);
    deleted += query.execute(&mut *connection).await?.rows_affected();
    for delete in [DELETE_ATTEMPTS, DELETE_APPROVALS] {
        let query = sqlx::query(delete).bind(oldest.clone()).bind(at_most);
        deleted += query.execute(&mut *connection).await?.rows_affected();
    }
    let query = sqlx::query(DELETE_RUN_COUNTERS)
        .bind(before.as_millisecond())
        .bind(at_most);
    deleted += query.execute(&mut *connection).await?.rows_affected();
    Ok(deleted)
}

/// The handle of the writer's task.
pub(super) type Writer = WriterQueue<Settlement, Rare>;

/// An operation of the writer.
pub(super) type Operation = operation::Operation<Settlement, Rare>;

/// An operation in a commit of its own.
pub(super) enum Rare {
    Change {
        change: Change,
        reply: Reply<u64>,
    },
    Trim {
        now: Timestamp,
        at_most: u32,
        reply: Reply<u64>,
    },
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::super::super::State;
    use super::super::super::contract::{ended_row, now, row};
    use super::super::super::operation::{OnCommit, Write};
    use super::super::super::writer_queue::WriterHandle as _;
    use super::*;
    use crate::log::captured_log::capture_log;

    #[test]
    fn unsent_row_is_logged() {
        let end = ended_row(&row("t", "a", now()), State::Succeeded);
        let log = capture_log();
        Writer::new_closed().send_in_background(Write::Record {
            row: end.clone(),
            on_commit: OnCommit::Reply(oneshot::channel().0),
        });
        assert_eq!(
            (
                log.count_lines("the call is not recorded"),
                log.count_lines(&end.id.to_string())
            ),
            (1, 1)
        );
    }
}
