//! A ledger as one side of a move.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::call::InvocationId;
use crate::ledger::Error;
use crate::ledger::sql::Fetch;

/// A ledger that no other process can use meanwhile, and of which all calls have ended.
#[async_trait]
pub(in crate::ledger) trait End: Send {
    fn connection(&mut self) -> &mut dyn Fetch;

    /// Makes the error of a statement.
    fn explain(&self) -> fn(&sqlx::Error) -> Error;

    /// The file or the database, for people.
    fn place(&self) -> String;

    /// Engine and location, for people.
    fn describe(&self) -> String;

    /// Begins the transaction that writes everything. `oldest` is the oldest call that follows.
    async fn begin(&mut self, oldest: Option<InvocationId>, now: Timestamp) -> sqlx::Result<()>;

    /// Selects by how many units the counters of limits differ from what they count.
    fn drift(&self) -> &'static str;

    /// Commits. Without it, nothing is written.
    async fn commit(&mut self) -> sqlx::Result<()>;

    /// Lets other processes use the ledger.
    async fn close(self: Box<Self>);
}
