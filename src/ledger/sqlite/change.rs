//! Rare changes, each in a commit of its own: an admin's decisions, and deletions.

use jiff::Timestamp;
use sqlx::{SqliteConnection, query};

use super::super::sql::{Fetch as _, Sql};
use super::super::{RecordedCall, import};
use super::hours::{self, Claim};
use super::set_aside::SetAside;
use super::{commit_marker, prune, settle};

/// The changes of the ledger's trait.
pub(super) enum Change {
    Reset {
        tool: String,
        caller: Option<String>,
    },
    Write(Sql),
    Prune {
        before: Timestamp,
        now: Timestamp,
        at_most: u32,
    },
    Import(Vec<RecordedCall>),
    SettleProcess {
        process: i64,
        now: Timestamp,
    },
    ClaimHours(Claim),
    StoreHours {
        claim: i64,
        hours: Vec<(i64, String)>,
    },
}

impl Change {
    /// What the units set aside must forget after the commit: the counters that it has deleted.
    pub(super) fn forgotten_units(&self) -> Box<dyn FnOnce(&SetAside) + Send> {
        match self {
            Self::Reset { tool, caller } => {
                let (tool, caller) = (tool.clone(), caller.clone());
                Box::new(move |units| units.forget_counters(&tool, caller.as_deref()))
            }
            Self::Prune { before, .. } => {
                let before = *before;
                Box::new(move |units| units.forget_runs(before))
            }
            _ => Box::new(|_| {}),
        }
    }

    /// Approximate size of counted hours, in bytes; `None` for other changes. Nobody waits for them, so they
    /// give way to calls when the file is full.
    pub(super) fn hours_bytes(&self) -> Option<usize> {
        match self {
            Self::ClaimHours(_) => Some(0),
            Self::StoreHours { hours, .. } => Some(hours.iter().map(|hour| hour.1.len()).sum()),
            _ => None,
        }
    }

    /// Writes the change in one commit. Returns the number of affected rows and the number of the
    /// commit. After an error the caller rolls back.
    pub(super) async fn commit(
        self,
        connection: &mut SqliteConnection,
    ) -> Result<(u64, u64), sqlx::Error> {
        query("begin immediate").execute(&mut *connection).await?;
        let rows = self.write(connection).await?;
        Ok((rows, commit_marker::commit(connection).await?))
    }

    async fn write(self, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
        match self {
            Self::Write(sql) => connection.execute(sql).await,
            Self::Prune {
                before,
                now,
                at_most,
            } => prune::delete_old_rows(connection, before, now, at_most).await,
            Self::Import(calls) => import::import_calls(connection, &calls).await,
            Self::SettleProcess { process, now } => {
                settle::settle_calls(connection, Some(process), now).await
            }
            Self::ClaimHours(claim) => hours::claim(connection, claim).await,
            Self::StoreHours { claim, hours } => hours::store(connection, claim, hours).await,
            Self::Reset { tool, caller } => {
                let mut sql = Sql::new("delete from quota where (tool = ");
                sql.bind(tool).and("caller =", caller.clone()).push(")");
                if let Some(caller) = caller {
                    sql.push(" or (tool = '' and caller = ")
                        .bind(caller)
                        .push(")");
                }
                connection.execute(sql).await
            }
        }
    }
}
