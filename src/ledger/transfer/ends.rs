//! The two sides of a move.

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::record::{Record, Table};
use super::sums::TableSums;
use crate::call::InvocationId;
use crate::ledger::Error;

/// A ledger that is read as a whole. No process can use it meanwhile, and all its calls have ended.
#[async_trait]
pub(in crate::ledger) trait Source: Send {
    /// The id of the oldest call.
    async fn oldest_call(&mut self) -> Result<Option<InvocationId>, Error>;

    /// All records of a table that are moved. Calls are in the order of their ids.
    fn read(&mut self, table: Table) -> BoxStream<'_, Result<Record, Error>>;

    /// What is in the tables, without what is not moved.
    async fn sums(&mut self) -> Result<Vec<TableSums>, Error>;

    /// Engine and location, for people.
    fn describe(&self) -> String;

    /// Lets other processes use the ledger.
    async fn close(self: Box<Self>);
}

/// An empty ledger. No process can use it before the end.
#[async_trait]
pub(in crate::ledger) trait Target: Send {
    /// Begins the transaction. `oldest` is the oldest call that follows.
    async fn begin(&mut self, oldest: Option<InvocationId>) -> Result<(), Error>;

    /// Writes records of a table.
    async fn write(&mut self, table: Table, records: Vec<Record>) -> Result<(), Error>;

    /// Writes what depends on all records.
    async fn finish(&mut self) -> Result<(), Error>;

    /// By how many units the counters of limits differ from what they count.
    async fn drift(&mut self) -> Result<i64, Error>;

    /// What is in the tables now.
    async fn sums(&mut self) -> Result<Vec<TableSums>, Error>;

    /// Commits. Without it, nothing is written.
    async fn commit(&mut self) -> Result<(), Error>;

    /// Engine and location, for people.
    fn describe(&self) -> String;

    /// Lets other processes use the ledger.
    async fn close(self: Box<Self>);
}
