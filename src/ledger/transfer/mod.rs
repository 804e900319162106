//! Moves a whole ledger to another one, from any engine to any engine.
//!
//! - `record.rs`: the records that are moved, in a form that no engine owns.
//! - `ends.rs`: the traits of the two sides. Each engine implements both.
//! - `sums.rs`: what both sides count, so that the move can be verified.
//!
//! The other side gets everything in one transaction, and the sums are compared before its commit. So
//! after a crash the target is as empty as before, and the move can begin again.

#[cfg(test)]
mod contract_test;
mod ends;
mod record;
mod sums;

use futures_util::StreamExt as _;
use jiff::Timestamp;

pub(super) use self::ends::{Source, Target};
pub(super) use self::record::{MovedCall, Record, Table};
pub use self::sums::TableSums;
use super::{Error, Settings, open};

/// Records of one statement.
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
    let mut target = match open::open_target(to, now).await {
        Ok(target) => target,
        Err(error) => {
            source.close().await;
            return Err(error);
        }
    };
    let tables = copy(&mut *source, &mut *target).await;
    let (from, to) = (source.describe(), target.describe());
    source.close().await;
    target.close().await;
    let tables = tables?;
    Ok(Moved { from, to, tables })
}

/// Copies everything, compares the sums of both sides, and commits. After an error nothing is written.
async fn copy(source: &mut dyn Source, target: &mut dyn Target) -> Result<Vec<TableSums>, Error> {
    target.begin(source.oldest_call().await?).await?;
    for table in Table::ALL {
        let mut chunks = source.read(table).chunks(CHUNK);
        while let Some(chunk) = chunks.next().await {
            let records = chunk.into_iter().collect::<Result<Vec<_>, _>>()?;
            target.write(table, records).await?;
        }
    }
    target.finish().await?;
    let (read, written) = (source.sums().await?, target.sums().await?);
    if let Some((one, other)) = read.iter().zip(&written).find(|(one, other)| one != other) {
        return Err(Error::Failed(format!(
            "the move is undone, because the target differs from the source: {one} became {other}"
        )));
    }
    let drift = target.drift().await?;
    if drift != 0 {
        return Err(Error::Failed(format!(
            "the move is undone, because the counters of limits are wrong by {drift} units"
        )));
    }
    target.commit().await?;
    Ok(written)
}
