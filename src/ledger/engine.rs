//! What the service asks of a ledger. Every engine passes `contract.rs`.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    AttemptRow, Error, Found, Query, Registered, Reservation, ReserveError, Row, StoredResult, Switch, UsageRow,
};
use crate::call::{Charge, Charged, InvocationId};

/// Something that ends with a row's commit.
pub type Held = Box<dyn Send + Sync>;

/// What the service asks of a ledger.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Commits a `reserved` row together with its charges and the claim on its idempotency key, or nothing. Committed
    /// when it returns.
    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError>;

    /// Writes the whole row of a call that has ended and was not reserved. Committed when it returns.
    async fn record(&self, row: Arc<Row>) -> Result<(), Error>;

    /// The same, behind: hands it over and returns. `held` is dropped when the row is committed, or cannot be.
    fn record_behind(&self, row: Arc<Row>, held: Held);

    /// Writes the end of a reserved call, once; a later end changes nothing. `refunds` gives units back. Committed
    /// when it returns.
    async fn settle(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error>;

    /// Whether every answer waits for its commit.
    fn is_strict(&self) -> bool;

    /// Returns when everything handed over before is committed.
    async fn flush(&self) -> Result<(), Error>;

    /// Writes a failed try, behind.
    async fn attempt(&self, row: AttemptRow) -> Result<(), Error>;

    /// One call with its failed tries.
    async fn get(&self, id: InvocationId) -> Result<Option<Found>, Error>;

    /// The call that holds this idempotency key of the caller and the tool at `now`.
    async fn claimed(&self, caller: &str, tool: &str, key: &str, now: Timestamp) -> Result<Option<Row>, Error>;

    /// Calls that match, newest first, without their results; arguments over
    /// [`LISTED_ARGUMENTS`](super::LISTED_ARGUMENTS) are `null`.
    async fn list(&self, query: &Query) -> Result<Vec<Row>, Error>;

    /// Totals per tool and caller; of one caller only, if named.
    async fn usage(&self, caller: Option<&str>) -> Result<Vec<UsageRow>, Error>;

    /// How far the charges' keys are used in the window of `now`.
    async fn used(&self, charges: &[Charge], now: Timestamp) -> Result<Vec<Charged>, Error>;

    /// Forgets what was counted for a tool. If a caller is named, of that caller only, and what its own limits over all
    /// tools have counted.
    async fn reset(&self, tool: &str, caller: Option<&str>) -> Result<(), Error>;

    /// A stored result that has not expired at `now`.
    async fn stored(&self, key: &[u8; 32], now: Timestamp) -> Result<Option<StoredResult>, Error>;

    /// Stores a result, behind.
    async fn store(&self, result: StoredResult) -> Result<(), Error>;

    /// Deletes stored results, of one tool or of all; says how many.
    async fn purge(&self, tool: Option<&str>) -> Result<u64, Error>;

    /// Switches that an admin set.
    async fn switches(&self) -> Result<Vec<Switch>, Error>;

    /// Sets a switch; committed when it returns.
    async fn switch(&self, switch: Switch) -> Result<(), Error>;

    /// Deletes up to `at_most` calls that began before that time, have ended and hold no idempotency key at `now`, with
    /// their failed tries, and counters of runs that were not counted since; says how many rows went. Totals and all
    /// other counters stay.
    async fn prune(&self, before: Timestamp, now: Timestamp, at_most: u32) -> Result<u64, Error>;

    /// Deletes up to `at_most` of the oldest calls that nothing promises (they were not committed before their tool ran, or
    /// were refused), with their failed tries, or stored results: such as have expired at `now` first, others when no
    /// such call is left. Says how many went. Totals and counters stay.
    async fn trim(&self, now: Timestamp, at_most: u32) -> Result<u64, Error>;

    /// Tools that were registered at run time, by name.
    async fn registered(&self) -> Result<Vec<Registered>, Error>;

    /// Keeps a tool that was registered at run time, in place of one of the same name; committed when it returns.
    async fn register(&self, tool: Registered) -> Result<(), Error>;

    /// Forgets a registered tool; committed when it returns. Says whether there was one.
    async fn unregister(&self, name: &str) -> Result<bool, Error>;

    /// By how many units the counters of limits differ from the rows that are charged to them: 0, or something is wrong.
    async fn drift(&self) -> Result<u64, Error>;

    /// Copies the ledger as it stands now to a new file, which is a ledger too; says how large it is, in bytes. Calls
    /// go on meanwhile. Dropped before its end it leaves nothing behind.
    async fn backup(&self, to: &Path) -> Result<u64, Error>;

    /// Whether it can write now; if not, why.
    fn health(&self) -> Result<(), String>;

    /// Waits until nothing can be known or written any more, for good; why ([`Error::Stopped`]).
    /// The process should end then.
    async fn failed(&self) -> Error;

    /// Writes everything that waits and closes the files; of a ledger that has failed it leaves them as they are.
    async fn close(&self);

    /// What it is, for people: engine and place.
    fn describe(&self) -> String;
}
