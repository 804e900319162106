//! Deletes rows that are older than the retention, a few at a time.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use crate::call::InvocationId;

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
pub(super) async fn delete_old_rows(
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
