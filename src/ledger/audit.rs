//! The record of administration in the ledger. `crate::audit` has the entries and their hashes.

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::Error;
use super::sql::{Fetch, Sql, SqlRow, Store, Unreadable};
use crate::audit::{Action, Entry, NewEntry, first_hash};

/// The columns of the table.
pub(super) const COLUMNS: &str = "seq, at, actor, action, subject, detail, hash";
/// Replicas append one after the other. The lock ends with the transaction.
const LOCK: &str = "select pg_advisory_xact_lock(1413698114, 8)";
/// Entries of one statement.
const MAX_LINES: usize = 1000;
const LAST: &str = "select seq, hash from audit order by seq desc limit 1";

/// Selects entries, newest first. Each given filter must match.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// With this action.
    pub action: Option<Action>,
    /// By this caller.
    pub actor: Option<String>,
    /// About this tool, source, caller or call.
    pub subject: Option<String>,
    /// Made at this time or later.
    pub since: Option<Timestamp>,
    /// Made before this time.
    pub until: Option<Timestamp>,
    /// Entries before this one.
    pub before: Option<u64>,
    /// Maximum number.
    pub limit: u32,
}

/// Runs a statement, and appends an entry about it, in the transaction of the caller. An empty statement
/// does nothing. Returns the number of affected rows.
pub(super) async fn execute(
    connection: &mut dyn Fetch,
    sql: Sql,
    entry: Option<NewEntry>,
) -> sqlx::Result<u64> {
    let rows = match sql.text.is_empty() {
        true => 0,
        false => connection.execute(sql).await?,
    };
    let Some(entry) = entry.filter(|entry| entry.action.has_happened(rows)) else {
        return Ok(rows);
    };
    if !connection.dialect().pick("", LOCK).is_empty() {
        connection.execute(Sql::new(LOCK)).await?;
    }
    if let Some(sql) = select_same(&entry)
        && !connection.fetch(sql).await?.is_empty()
    {
        return Ok(rows);
    }
    let last = connection.fetch(Sql::new(LAST)).await?;
    let (seq, hash) = match last.first() {
        Some(row) => (row.get(0)?, row.get(1)?),
        None => (0, first_hash()),
    };
    connection
        .execute(insert([entry.follow(seq, &hash)]))
        .await?;
    Ok(rows)
}

/// Selects the entry that makes a new one needless.
fn select_same(entry: &NewEntry) -> Option<Sql> {
    let mut sql = Sql::new("select 1 from (select detail from audit where true");
    sql.and("subject =", entry.subject.as_deref())
        .and("action =", Some(entry.action.as_str()))
        .push(" order by seq desc limit 1) as newest where true")
        .and("detail =", Some(entry.detail_text()));
    entry.action.is_noted_once().then_some(sql)
}

fn insert(entries: impl IntoIterator<Item = Entry>) -> Sql {
    let mut sql = Sql::new(format!("insert into audit ({COLUMNS}) values "));
    sql.bind_rows(entries.into_iter().map(|entry| {
        [
            entry.seq.into(),
            entry.at.into(),
            entry.actor.into(),
            entry.action.into(),
            entry.subject.into(),
            entry.detail.get().into(),
            entry.hash.into(),
        ]
    }));
    sql
}

/// Appends an entry.
pub(super) async fn append(store: &dyn Store, entry: NewEntry) -> Result<(), Error> {
    // After a start, thousands of callers may use keys that are known. They need no commit.
    if let Some(sql) = select_same(&entry)
        && !store.fetch(sql).await?.is_empty()
    {
        return Ok(());
    }
    let appended = store.change(Sql::default(), None, Some(entry));
    appended.await.map(drop)
}

/// Matching entries, newest first.
pub(super) async fn list(store: &dyn Store, wanted: &AuditQuery) -> Result<Vec<Entry>, Error> {
    let mut sql = Sql::new(format!("select {COLUMNS} from audit where true"));
    sql.and("action =", wanted.action.map(Action::as_str))
        .and("actor =", wanted.actor.as_deref())
        .and("subject =", wanted.subject.as_deref())
        .and("at >=", wanted.since)
        .and("at <", wanted.until)
        .and("seq <", wanted.before)
        .push(" order by seq desc limit ")
        .bind(wanted.limit);
    let rows = store.fetch(sql).await?;
    Ok(rows.iter().map(decode).collect::<Result<_, _>>()?)
}

/// What was edited to something that is no time or no JSON is replaced, and its hash does not fit.
fn decode(row: &SqlRow) -> Result<Entry, Unreadable> {
    Ok(Entry {
        seq: row.get(0)?,
        at: row.get(1).unwrap_or_default(),
        actor: row.get(2)?,
        action: row.get(3)?,
        subject: row.get(4)?,
        detail: RawValue::from_string(row.get(5)?).unwrap_or_default(),
        hash: row.get(6)?,
    })
}

/// Adds entries of another ledger, which must continue the chain. Entries that the ledger has are
/// skipped. Returns the number of added entries.
pub(super) async fn import(store: &dyn Store, mut entries: Vec<Entry>) -> Result<u64, Error> {
    let at_most = |before: Option<u64>| AuditQuery {
        before,
        limit: 1,
        ..AuditQuery::default()
    };
    let last = list(store, &at_most(None)).await?.pop();
    let (seq, mut hash) = last.map_or((0, first_hash()), |last| (last.seq, last.hash));
    let new = entries.split_off(entries.partition_point(|entry| entry.seq <= seq));
    if let Some(known) = entries.last() {
        let same = list(store, &at_most(Some(known.seq + 1))).await?.pop();
        if same.is_none_or(|same| same.hash != known.hash) {
            return Err(misfit(known.seq));
        }
    }
    for (entry, due) in new.iter().zip(seq + 1..) {
        if entry.seq != due || entry.hash != entry.hash_after(&hash) {
            return Err(misfit(entry.seq));
        }
        hash.clone_from(&entry.hash);
    }
    let mut added = 0;
    for chunk in new.chunks(MAX_LINES) {
        // If the service has appended an entry meanwhile, its number is taken, and this fails.
        added += store.change(insert(chunk.to_vec()), None, None).await?;
    }
    Ok(added)
}

fn misfit(seq: u64) -> Error {
    Error::Failed(format!(
        "entry {seq} of the audit does not continue the chain of this ledger; import it into a new ledger, or into one that \
         has the entries before it"
    ))
}
