//! What the model has to know of an engine, and how the test opens its ledgers and lets them crash.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::Ledger;

/// In which an engine may differ from the others, because the contract leaves it open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Number of processes that share the ledger. Each operation is done by one of them.
    pub(super) replicas: usize,
    /// A crash may leave at most this number of units used without a call.
    pub(super) max_lost_units: u64,
    /// `trim` deletes in the order of ids, and not in the order in which the rows were written.
    pub(super) trims_by_id: bool,
    /// `prune` keeps the newest row.
    pub(super) prune_keeps_newest: bool,
    /// A row names the counters of runs that count it, so that `trim` does not delete it.
    pub(super) names_run_counters: bool,
    /// The end of a call that has already ended counts in the totals. The service sends none.
    pub(super) counts_later_ends: bool,
    /// The end of a call that a crash has interrupted is an error for its caller.
    pub(super) refuses_interrupted: bool,
    /// A refused call gives its units back, because its caller may not know of them. A reservation
    /// without a waiting caller is undone.
    pub(super) undoes_unknown: bool,
}

/// An engine with an empty ledger.
pub(super) trait Harness {
    const RULES: Rules;

    /// Opens the ledger as one more process.
    async fn open(&mut self, at: Timestamp) -> Arc<dyn Ledger>;

    /// Ends a process without closing its ledger. Its calls are settled when this returns, or when
    /// the ledger is opened again.
    async fn crash(&mut self, ledger: Arc<dyn Ledger>, at: Timestamp);

    /// Cuts the connection of a process to its ledger, if there is one.
    async fn disconnect(&mut self, ledger: &dyn Ledger);
}
