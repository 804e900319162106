//! Approvals in the ledger. Each request and each change is one statement.

use std::sync::Arc;

use super::approval::{ApprovalChange, ApprovalMark, ApprovalQuery, ApprovalRow, ApprovalState};
use super::sql::{Sql, SqlRow, SqlValue, Store, Unreadable};
use super::{Error, SharedChange};
use crate::call::InvocationId;

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
    Ok(store.change(sql, NO_NEWS).await? > 0)
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
    Ok(store.change(sql, NO_NEWS).await? > 0)
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
    store.change(sql, NO_NEWS).await.map(drop)
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
