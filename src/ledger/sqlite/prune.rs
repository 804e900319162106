//! Deleting what is older than the operator wants to keep, a few rows at a time.

use jiff::Timestamp;
use sqlx::{Connection, SqliteConnection};

use crate::call::InvocationId;

/// Calls that began before; none that is still reserved.
const CALLS: &str = "delete from invocation where seq in (select seq from invocation \
    where id < ? and state != 'reserved' order by id limit ?)";
const ATTEMPTS: &str = "delete from attempt where (invocation, attempt) in \
    (select invocation, attempt from attempt where invocation < ? limit ?)";
/// Counters of runs that were not counted since. All other counters are one for each limit and caller, and stay.
const RUNS: &str = "delete from quota where (tool, caller, run, per) in \
    (select tool, caller, run, per from quota where per = 'run' and counted_at < ? limit ?)";

/// Deletes at most `at_most` rows of each kind that are older than `before`, in one commit; says how many.
pub(super) async fn prune(
    connection: &mut SqliteConnection,
    before: Timestamp,
    at_most: u32,
) -> Result<u64, sqlx::Error> {
    let oldest = InvocationId::floor(before).as_bytes().to_vec();
    let mut change = connection.begin_with("begin immediate").await?;
    let mut deleted = 0;
    for sql in [CALLS, ATTEMPTS] {
        let query = sqlx::query(sql).bind(oldest.clone()).bind(at_most);
        deleted += query.execute(&mut *change).await?.rows_affected();
    }
    let query = sqlx::query(RUNS).bind(before.as_millisecond()).bind(at_most);
    deleted += query.execute(&mut *change).await?.rows_affected();
    change.commit().await?;
    Ok(deleted)
}
