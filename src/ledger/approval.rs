//! The calls that wait for a person, and the decisions about them. In the ledger, each request and each
//! change is one statement.

use std::sync::Arc;

use jiff::Timestamp;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::sql::{Sql, SqlRow, SqlValue, Store, Unreadable};
use super::{Error, SharedChange};
use crate::audit::NewEntry;
use crate::call::InvocationId;

/// How far a call is that needs an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, EnumString, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalState {
    /// No person has decided.
    Waiting,
    /// A person has approved the call, and it has not started.
    Approved,
    /// The approval is used: the call has started.
    Started,
    /// A person has denied the call.
    Denied,
    /// The time for the decision is over, or the approved call can no longer start.
    Expired,
    /// The caller or an admin has cancelled the call.
    Withdrawn,
}

impl ApprovalState {
    /// The states that may follow. `docs/dev/states.md` has the same table.
    pub const fn next(self) -> &'static [Self] {
        match self {
            Self::Waiting => &[Self::Approved, Self::Denied, Self::Expired, Self::Withdrawn],
            Self::Approved => &[Self::Started, Self::Expired],
            Self::Started => &[Self::Approved],
            Self::Denied | Self::Expired | Self::Withdrawn => &[],
        }
    }

    /// The name used in the ledger.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One call that needs an approval. The ledger keeps it apart from the rows of calls: the call's own
/// row is written when the call starts, or when it can no longer start.
#[derive(Debug, Clone)]
pub struct ApprovalRow {
    /// The id of the call.
    pub invocation: InvocationId,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Name of the caller.
    pub caller: Arc<str>,
    /// How far the call is.
    pub state: ApprovalState,
    /// The idempotency key of the call.
    pub idempotency_key: Option<Arc<str>>,
    /// The callers that may decide, each between line feeds.
    pub approvers: Arc<str>,
    /// What a person sees, as JSON.
    pub request: Arc<str>,
    /// What is needed to run the call, as JSON. `None`: only the memory of the process `runner` has
    /// that, or the call is done.
    pub call: Option<Arc<str>>,
    /// Time of the request.
    pub requested_at: Timestamp,
    /// When the call expires.
    pub expires_at: Timestamp,
    /// Time of the decision.
    pub decided_at: Option<Timestamp>,
    /// The caller or the rule that decided.
    pub decided_by: Option<Arc<str>>,
    /// The reason for the decision.
    pub note: Option<Arc<str>>,
    /// The arguments that were approved instead, as JSON.
    pub changed_arguments: Option<Arc<str>>,
    /// The process that acts on the state: it keeps the call in memory, runs it, or writes its row.
    pub runner: Arc<str>,
    /// Whether the call has its own row, so that nothing is left to do.
    pub done: bool,
    /// Whether the receivers of webhooks know of the call.
    pub notified: bool,
}

/// What is noted about a call, whatever its state.
#[derive(Debug, Clone)]
pub enum ApprovalMark {
    /// The receivers of webhooks know of the call.
    Notified,
    /// The model's message with the call, and the results of its other calls, as JSON.
    Message(Arc<str>),
}

impl ApprovalRow {
    /// Lists names for the column `approvers`.
    pub fn join_approvers<'a>(names: impl IntoIterator<Item = &'a str>) -> Arc<str> {
        let mut text = String::from("\n");
        for name in names {
            text.push_str(name);
            text.push('\n');
        }
        text.into()
    }

    /// Finds the call that holds the idempotency key of this one.
    pub fn key_query(&self) -> ApprovalQuery {
        ApprovalQuery {
            tool: Some(self.tool.to_string()),
            visible_to: Some(self.caller.to_string()),
            idempotency_key: self.idempotency_key.as_deref().map(str::to_owned),
            limit: 1,
            ..ApprovalQuery::default()
        }
    }

    /// The callers that may decide, besides admins.
    pub fn approvers(&self) -> impl Iterator<Item = &str> {
        self.approvers.split('\n').filter(|name| !name.is_empty())
    }
}

/// Selects approvals, newest first. Each given filter must match.
#[derive(Debug, Clone, Default)]
pub struct ApprovalQuery {
    /// In this state. [`ApprovalState::Approved`] includes approved calls that have started.
    pub state: Option<ApprovalState>,
    /// Of this tool.
    pub tool: Option<String>,
    /// Calls of this caller, or calls that this caller may decide.
    pub visible_to: Option<String>,
    /// Calls with this idempotency key.
    pub idempotency_key: Option<String>,
    /// Only calls that need some action: expired at this time, or decided and without their own
    /// row.
    pub due_at: Option<Timestamp>,
    /// Only calls of which the receivers of webhooks do not know.
    pub unnotified: bool,
    /// Calls older than this one, which is the last of the page before.
    pub before: Option<InvocationId>,
    /// Maximum number.
    pub limit: u32,
}

/// A change of one approval. It happens only if the approval is still as expected.
#[derive(Debug, Clone)]
pub struct ApprovalChange {
    /// The call.
    pub invocation: InvocationId,
    /// The expected state.
    pub from: ApprovalState,
    /// The expected process; `None`: any.
    pub from_runner: Option<Arc<str>>,
    /// The call must not have expired at this time.
    pub unexpired_at: Option<Timestamp>,
    /// The new state.
    pub to: ApprovalState,
    /// The new process.
    pub runner: Arc<str>,
    /// The decision, if the change is one.
    pub decision: Option<ApprovalDecision>,
    /// Whether the call has its own row from here on. Then `call` is deleted.
    pub done: bool,
    /// What is recorded in the same commit, if the approval changes.
    pub entry: Option<NewEntry>,
}

/// The author of a decision, its time and its reason.
#[derive(Debug, Clone)]
pub struct ApprovalDecision {
    /// Time of the decision.
    pub at: Timestamp,
    /// The caller or the rule that decided.
    pub by: Arc<str>,
    /// The reason.
    pub note: Option<Arc<str>>,
    /// The arguments that were approved instead, as JSON.
    pub changed_arguments: Option<Arc<str>>,
}

impl ApprovalChange {
    /// A change from this state of the approval to another one, by this process.
    pub fn new(
        invocation: InvocationId,
        from: ApprovalState,
        to: ApprovalState,
        by: Arc<str>,
    ) -> Self {
        debug_assert!(
            from == to || from.next().contains(&to),
            "{from:?} to {to:?}"
        );
        Self {
            invocation,
            from,
            from_runner: None,
            unexpired_at: None,
            to,
            runner: by,
            decision: None,
            done: false,
            entry: None,
        }
    }
}

const SELECT: &str = "select id, tool, caller, state, idempotency_key, approvers, request, call, requested_at, expires_at, \
    decided_at, decided_by, note, changed, runner, done, notified from approval where true";
const INSERT: &str = "insert into approval (id, tool, caller, state, idempotency_key, approvers, request, call, requested_at, \
    expires_at, runner) values ";
const NO_NEWS: Option<SharedChange> = None;

/// The condition of the partial indexes.
fn is_open(store: &dyn Store) -> &'static str {
    store.dialect().pick("done = 0", "not done")
}

/// Stores a request. Returns whether no other call holds the key.
async fn insert(store: &dyn Store, row: ApprovalRow) -> Result<bool, Error> {
    let mut sql = Sql::new(INSERT);
    sql.bind_list([
        row.invocation.into(),
        row.tool.into(),
        row.caller.into(),
        SqlValue::Word(row.state.as_str()),
        row.idempotency_key.into(),
        row.approvers.into(),
        row.request.into(),
        row.call.into(),
        row.requested_at.into(),
        row.expires_at.into(),
        row.runner.into(),
    ]);
    sql.push(" on conflict (idempotency_key, caller, tool) where idempotency_key is not null and ")
        .push(is_open(store))
        .push(" do nothing");
    Ok(store.change(sql, NO_NEWS, None).await? > 0)
}

pub(super) async fn request(
    store: &dyn Store,
    row: ApprovalRow,
) -> Result<Option<InvocationId>, Error> {
    let taken = row.key_query();
    if insert(store, row).await? {
        return Ok(None);
    }
    let holder = list(store, &taken).await?;
    Ok(holder.first().map(|row| row.invocation))
}

/// Makes a change, if the approval is as expected.
pub(super) async fn change(store: &dyn Store, change: ApprovalChange) -> Result<bool, Error> {
    let mut sql = Sql::new("update approval set state = ");
    sql.bind(SqlValue::Word(change.to.as_str()))
        .push(", runner = ")
        .bind(change.runner)
        .push(", done = ")
        .bind(change.done);
    if change.done {
        sql.push(", call = null");
    }
    if let Some(made) = change.decision {
        let decided = [
            ("decided_at", made.at.into()),
            ("decided_by", made.by.into()),
            ("note", made.note.into()),
            ("changed", SqlValue::from(made.changed_arguments)),
        ];
        for (column, value) in decided {
            sql.push(", ").push(column).push(" = coalesce(").bind(value);
            sql.push(", ").push(column).push(")");
        }
    }
    sql.push(" where ")
        .push(is_open(store))
        .and("id =", Some(change.invocation))
        .and("state =", Some(change.from.as_str()))
        .and("runner =", change.from_runner)
        .and("expires_at >", change.unexpired_at);
    let entry = change.entry;
    Ok(store.change(sql, NO_NEWS, entry).await? > 0)
}

/// Notes something about a call.
pub(super) async fn mark(
    store: &dyn Store,
    id: InvocationId,
    mark: ApprovalMark,
) -> Result<(), Error> {
    let mut sql = Sql::new("update approval set ");
    match mark {
        ApprovalMark::Notified => sql.push("notified = true"),
        ApprovalMark::Message(message) => sql.push("message = ").bind(message),
    };
    sql.push(" where id = ").bind(id);
    store.change(sql, NO_NEWS, None).await.map(drop)
}

/// The waiting calls of a caller, and all.
pub(super) async fn count_waiting(store: &dyn Store, caller: &str) -> Result<(u64, u64), Error> {
    let mut sql = Sql::new("select count(*) filter (where caller = ");
    sql.bind(caller)
        .push("), count(*) from approval where state = 'waiting' and ")
        .push(is_open(store));
    let rows = store.fetch(sql).await?;
    let row = rows.first().ok_or(Unreadable(0))?;
    Ok((row.get(0)?, row.get(1)?))
}

pub(super) async fn message(
    store: &dyn Store,
    id: InvocationId,
) -> Result<Option<Arc<str>>, Error> {
    let mut sql = Sql::new("select message from approval where id = ");
    sql.bind(id);
    let rows = store.fetch(sql).await?;
    let text = rows.first().map(|row| row.get(0)).transpose()?;
    Ok(text.flatten())
}

pub(super) async fn find(
    store: &dyn Store,
    id: InvocationId,
) -> Result<Option<ApprovalRow>, Error> {
    let mut sql = Sql::new(SELECT);
    sql.and("id =", Some(id));
    let rows = store.fetch(sql).await?;
    Ok(rows.first().map(decode).transpose()?)
}

pub(super) async fn list(
    store: &dyn Store,
    wanted: &ApprovalQuery,
) -> Result<Vec<ApprovalRow>, Error> {
    let mut sql = Sql::new(SELECT);
    let is_waiting = wanted.state == Some(ApprovalState::Waiting);
    if is_waiting || wanted.idempotency_key.is_some() || wanted.due_at.is_some() {
        sql.push(" and ").push(is_open(store));
    }
    match wanted.state {
        None => &mut sql,
        Some(ApprovalState::Approved) => sql.push(" and state in ('approved', 'started')"),
        Some(state) => sql.and("state =", Some(state.as_str())),
    };
    sql.and("tool =", wanted.tool.as_deref());
    if let Some(name) = &wanted.visible_to {
        let position = store.dialect().pick("instr", "strpos");
        sql.push(" and (caller = ").bind(&**name);
        sql.push(" or ").push(position).push("(approvers, ");
        sql.bind(format!("\n{name}\n")).push(") > 0)");
    }
    sql.and("idempotency_key =", wanted.idempotency_key.as_deref());
    if let Some(now) = wanted.due_at {
        sql.push(" and (state <> 'waiting' or expires_at <= ");
        sql.bind(now).push(")");
    }
    if wanted.unnotified {
        sql.push(" and not notified");
    }
    sql.and("id <", wanted.before).newest(wanted.limit);
    let rows = store.fetch(sql).await?;
    Ok(rows.iter().map(decode).collect::<Result<_, _>>()?)
}

fn decode(row: &SqlRow) -> Result<ApprovalRow, Unreadable> {
    let state: Arc<str> = row.get(3)?;
    Ok(ApprovalRow {
        invocation: row.get(0)?,
        tool: row.get(1)?,
        caller: row.get(2)?,
        state: state.parse().map_err(|_| Unreadable(3))?,
        idempotency_key: row.get(4)?,
        approvers: row.get(5)?,
        request: row.get(6)?,
        call: row.get(7)?,
        requested_at: row.get(8)?,
        expires_at: row.get(9)?,
        decided_at: row.get(10)?,
        decided_by: row.get(11)?,
        note: row.get(12)?,
        changed_arguments: row.get(13)?,
        runner: row.get(14)?,
        done: row.get(15)?,
        notified: row.get(16)?,
    })
}
