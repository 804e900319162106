//! Rare changes, each in a commit of its own: an admin's decisions, and deletions.

use jiff::Timestamp;
use sqlx::{SqliteConnection, query};

use super::super::{
    ApprovalChange, ApprovalMark, ApprovalRow, RecordedCall, RegisteredTool, Switch,
};
use super::hours::{self, Claim};
use super::set_aside::SetAside;
use super::{approvals, commit_marker, import, prune, settle};
use crate::call::InvocationId;

/// The changes of the ledger's trait.
pub(super) enum Change {
    Reset {
        tool: String,
        caller: Option<String>,
    },
    Purge {
        tool: Option<String>,
    },
    Switch(Switch),
    Prune {
        before: Timestamp,
        now: Timestamp,
        at_most: u32,
    },
    RequestApproval(Box<ApprovalRow>),
    Approval(Box<ApprovalChange>),
    MarkApproval(InvocationId, ApprovalMark),
    Register(RegisteredTool),
    Unregister {
        name: String,
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
        let query = match self {
            Self::Prune { before, now, at_most } => {
                return prune::delete_old_rows(connection, before, now, at_most).await;
            }
            Self::Import(calls) => return import::import_calls(connection, calls).await,
            Self::SettleProcess { process, now } => {
                return settle::settle_calls(connection, Some(process), now).await;
            }
            Self::ClaimHours(claim) => return hours::claim(connection, claim).await,
            Self::StoreHours { claim, hours } => {
                return hours::store(connection, claim, hours).await;
            }
            Self::Reset { tool, caller } => query(
                "delete from quota where (tool = ?1 and (?2 is null or caller = ?2)) or (tool = '' and caller = ?2)",
            )
            .bind(tool)
            .bind(caller),
            Self::Purge { tool } => query("delete from stored_result where ?1 is null or tool = ?1").bind(tool),
            Self::Switch(switch) => query(
                "insert into tool_switch (tool, enabled) values (?, ?) \
                 on conflict (tool) do update set enabled = excluded.enabled",
            )
            .bind(switch.tool)
            .bind(switch.enabled),
            Self::RequestApproval(row) => approvals::insert(*row),
            Self::Approval(change) => approvals::update(*change),
            Self::MarkApproval(id, mark) => approvals::mark(id, mark),
            Self::Register(tool) => query(
                "insert into registered_tool (name, definition, registered_by, registered_at) values (?, ?, ?, ?) \
                 on conflict (name) do update set definition = excluded.definition, \
                 registered_by = excluded.registered_by, registered_at = excluded.registered_at",
            )
            .bind(tool.name)
            .bind(tool.definition)
            .bind(tool.registered_by)
            .bind(tool.registered_at.as_millisecond()),
            Self::Unregister { name } => query("delete from registered_tool where name = ?").bind(name),
        };
        Ok(query.execute(connection).await?.rows_affected())
    }
}
