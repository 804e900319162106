//! SQLite: one process and one file.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::contract::sqlite::settings;
use super::super::{Ledger, Settings, open};
use super::harness::{Harness, Rules};

/// A folder with the file.
pub(super) struct Sqlite {
    folder: tempfile::TempDir,
}

impl Sqlite {
    pub(super) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }
}

impl Harness for Sqlite {
    const RULES: Rules = Rules {
        replicas: 1,
        // Units that the crashed process had set aside stay used.
        max_lost_units: 19,
        trims_by_id: false,
        prune_keeps_newest: true,
        names_run_counters: false,
        counts_later_ends: true,
        refuses_interrupted: false,
        undoes_unknown: false,
    };

    async fn open(&mut self, at: Timestamp) -> Arc<dyn Ledger> {
        let settings = Settings {
            base: self.folder.path().to_owned(),
            ..settings()
        };
        open(&settings, at).await.unwrap()
    }

    async fn crash(&mut self, ledger: Arc<dyn Ledger>, _: Timestamp) {
        drop(ledger);
        // A process that another test has just forked shares the lock until its `exec`. So wait for
        // the lock.
        let lock = std::fs::File::open(self.folder.path().join("test.db.lock")).unwrap();
        lock.lock().unwrap();
    }

    async fn disconnect(&mut self, _: &dyn Ledger) {}
}
