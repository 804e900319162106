//! Refuses statements that would change the state of the shared connection. SQLite's authorizer
//! reports what a statement would do. So no spelling bypasses the check, such as a byte order mark,
//! a comment, or a preceding `explain`. (Some pragmas act while they are prepared.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};
use rusqlite::{CachedStatement, Connection};

use super::faults::{self, AttemptError};
use crate::kinds::sql::faults::Finding;
use crate::kinds::sql::statement::connection_command_message;

/// The authorizer of one connection.
pub(super) struct ConnectionCommandGuard {
    state: Arc<GuardState>,
}

#[derive(Default)]
struct GuardState {
    /// Whether a tool's statement is being prepared. While it runs, SQLite itself prepares
    /// statements, for example for `pragma_table_info(…)`, and these must not be refused.
    is_active: AtomicBool,
    /// The command that was refused last.
    refused: Mutex<Option<&'static str>>,
}

impl ConnectionCommandGuard {
    pub(super) fn install(connection: &Connection) -> Result<Self, rusqlite::Error> {
        let state = Arc::new(GuardState::default());
        let hook_state = state.clone();
        connection.authorizer(Some(
            move |context: AuthContext<'_>| match connection_command(&context)
                .filter(|_| hook_state.is_active.load(Ordering::Relaxed))
            {
                Some(word) => {
                    *hook_state.refused.lock() = Some(word);
                    Authorization::Deny
                }
                None => Authorization::Allow,
            },
        ))?;
        Ok(Self { state })
    }

    /// Prepares a tool's statement, with the authorizer active.
    pub(super) fn prepare_guarded<'c>(
        &self,
        prepare: impl FnOnce() -> Result<CachedStatement<'c>, rusqlite::Error>,
    ) -> Result<CachedStatement<'c>, AttemptError> {
        self.state.is_active.store(true, Ordering::Relaxed);
        let prepared = prepare();
        self.state.is_active.store(false, Ordering::Relaxed);
        let refused = self.state.refused.lock().take();
        prepared.map_err(
            |error| match refused.filter(|_| faults::is_denied(&error)) {
                Some(word) => {
                    AttemptError::Statement(Finding::permanent(connection_command_message(word)))
                }
                None => error.into(),
            },
        )
    }
}

/// The name of the command, if the action is a command to the connection. Temporary tables belong
/// to the connection, so the next call would find them.
fn connection_command(context: &AuthContext<'_>) -> Option<&'static str> {
    use AuthAction as A;
    Some(match &context.action {
        A::Pragma { .. } => "pragma",
        A::Attach { .. } => "attach",
        A::Detach { .. } => "detach",
        A::Savepoint { .. } => "savepoint",
        A::Transaction {
            operation: TransactionOperation::Begin,
        } => "begin",
        A::Transaction {
            operation: TransactionOperation::Rollback,
        } => "rollback",
        A::Transaction { .. } => "commit",
        A::CreateTempIndex { .. }
        | A::CreateTempTable { .. }
        | A::CreateTempTrigger { .. }
        | A::CreateTempView { .. } => "create temp",
        A::DropTempIndex { .. }
        | A::DropTempTable { .. }
        | A::DropTempTrigger { .. }
        | A::DropTempView { .. } => "drop temp",
        A::Read { .. } | A::Select | A::Function { .. } => return None,
        // `create table temp.name` has another action, so its database is checked.
        _ if context.database_name == Some("temp") => "create temp",
        _ => return None,
    })
}
