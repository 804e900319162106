//! Moves a whole ledger to another one, from any engine to any engine.
//!
//! - `end.rs`: a ledger that no other process uses. Each engine has one.
//! - `tables.rs`: what is moved, and what both sides count, so that the move can be verified.
//!
//! The other side gets everything in one transaction, and the sums are compared before its commit. So
//! after a crash the target is as empty as before, and the move can begin again.

#[cfg(test)]
mod contract_test;
mod end;
mod tables;

use futures_util::StreamExt as _;
use jiff::Timestamp;

pub(super) use self::end::End;
pub use self::tables::TableSums;
use self::tables::{TABLES, Table};
use super::sql::{FromColumn, Sql, SqlRow, Unreadable};
use super::{Error, Settings, open};

/// Rows of one statement.
const CHUNK: usize = 256;

/// A move that is done.
#[derive(Debug)]
pub struct Moved {
    /// Engine and location of the source, for people.
    pub from: String,
    /// Engine and location of the target, for people.
    pub to: String,
    /// What was moved. Both sides have counted the same.
    pub tables: Vec<TableSums>,
}

/// Moves the ledger to an empty one. The source keeps everything.
///
/// # Errors
/// When a running process uses one of the two, the target is not empty, or an operation fails. Then the
/// target is empty.
pub async fn migrate(from: &Settings, to: &Settings, now: Timestamp) -> Result<Moved, Error> {
    let mut source = open::open_source(from, now).await?;
    let mut target = match open::open_end(to, now).await {
        Ok(target) => target,
        Err(error) => {
            source.close().await;
            return Err(error);
        }
    };
    let tables = copy(&mut *source, &mut *target, now).await;
    let (from, to) = (source.describe(), target.describe());
    source.close().await;
    target.close().await;
    let tables = tables?;
    Ok(Moved { from, to, tables })
}

/// Copies everything, compares the sums of both sides, and commits. After an error nothing is written.
async fn copy(
    source: &mut dyn End,
    target: &mut dyn End,
    now: Timestamp,
) -> Result<Vec<TableSums>, Error> {
    if first::<bool>(target, tables::HAS_ROWS).await? == Some(true) {
        return Err(Error::NotEmpty(target.place()));
    }
    let explain = target.explain();
    let oldest = first(source, "select id from invocation order by id limit 1").await?;
    let begun = target.begin(oldest, now).await;
    begun.map_err(|error| explain(&error))?;
    for table in &TABLES {
        copy_table(table, source, target, now).await?;
    }
    for sql in tables::finish(target.connection().dialect()) {
        let finished = target.connection().execute(Sql::new(*sql)).await;
        finished.map_err(|error| explain(&error))?;
    }
    let (read, written) = (count(source, now).await?, count(target, now).await?);
    if let Some((one, other)) = read.iter().zip(&written).find(|(one, other)| one != other) {
        return Err(Error::Failed(format!(
            "the move is undone, because the target differs from the source: {one} became {other}"
        )));
    }
    let drift = target.drift();
    let drift = first::<i64>(target, drift).await?;
    if let Some(drift) = drift.filter(|drift| *drift != 0) {
        return Err(Error::Failed(format!(
            "the move is undone, because the counters of limits are wrong by {drift} units"
        )));
    }
    target.commit().await.map_err(|error| explain(&error))?;
    Ok(written)
}

/// Copies the rows of a table, a few at a time.
async fn copy_table(
    table: &Table,
    source: &mut dyn End,
    target: &mut dyn End,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(sql) = table.select(source.connection().dialect(), now) else {
        return Ok(());
    };
    let (unread, unwritten) = (source.explain(), target.explain());
    let mut chunks = source.connection().stream(sql).chunks(CHUNK);
    while let Some(chunk) = chunks.next().await {
        let rows = chunk.into_iter().collect::<Result<Vec<SqlRow>, _>>();
        let rows = rows.map_err(|error| unread(&error))?;
        let lines = table.decode(rows, now)?;
        let written = lines.write(target.connection()).await;
        written.map_err(|error| unwritten(&error))?;
    }
    Ok(())
}

/// What is in the tables, without what is not moved.
async fn count(end: &mut dyn End, now: Timestamp) -> Result<Vec<TableSums>, Error> {
    let explain = end.explain();
    let mut counted = Vec::with_capacity(TABLES.len());
    for table in &TABLES {
        let sql = table.select_sums(end.connection().dialect(), now);
        let rows = end.connection().fetch(sql).await;
        let rows = rows.map_err(|error| explain(&error))?;
        let row = rows.first().ok_or(Unreadable(0))?;
        let mut sums = Vec::with_capacity(table.sums.len());
        for (at, (name, _)) in table.sums.iter().enumerate() {
            sums.push((*name, row.get(at + 1)?));
        }
        counted.push(TableSums {
            table: table.title,
            rows: row.get(0)?,
            sums,
        });
    }
    Ok(counted)
}

/// The first column of the first row.
async fn first<T: FromColumn>(end: &mut dyn End, sql: &'static str) -> Result<Option<T>, Error> {
    let explain = end.explain();
    let rows = end.connection().fetch(Sql::new(sql)).await;
    let rows = rows.map_err(|error| explain(&error))?;
    let found = rows.first().map(|row| row.get::<Option<T>>(0));
    Ok(found.transpose()?.flatten())
}
