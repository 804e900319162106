//! Approvals in PostgreSQL. Each request and each change is one statement.

use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{PgPool, Postgres, QueryBuilder, Row as _};

use super::super::approval::{
    ApprovalChange, ApprovalMark, ApprovalQuery, ApprovalRow, ApprovalState,
};
use super::super::columns::{parse_approval_state, parse_time};
use super::commit::{storable, to_uuid};
use super::read::{Result, from_uuid};
use crate::call::InvocationId;

const SELECT: &str = "select id, tool, caller, state, idempotency_key, approvers, request, call, requested_at, expires_at, \
    decided_at, decided_by, note, changed, runner, done, notified from approval where true";
const INSERT: &str = "insert into approval (id, tool, caller, state, idempotency_key, approvers, request, call, requested_at, \
    expires_at, runner) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
    on conflict (idempotency_key, caller, tool) where idempotency_key is not null and not done do nothing";
/// `$2` is the expected state, `$3` the expected process, `$4` a time before the expiry.
const CHANGE: &str = "update approval set state = $5, runner = $6, decided_at = coalesce($7::bigint, decided_at), \
    decided_by = coalesce($8::text, decided_by), note = coalesce($9::text, note), changed = coalesce($10::text, changed), done = $11, \
    call = case when $11 then null else call end \
    where id = $1 and state = $2 and not done and ($3::text is null or runner = $3) and ($4::bigint is null or expires_at > $4)";

const MARK: &str = "update approval set notified = notified or $2, message = coalesce($3::text, message) where id = $1";

type Statement = sqlx::query::Query<'static, Postgres, PgArguments>;

/// The statement that stores a request. It changes no row if another call holds the key.
pub(super) fn insert(row: ApprovalRow) -> Statement {
    sqlx::query(INSERT)
        .bind(to_uuid(&row.invocation))
        .bind(storable(&row.tool).into_owned())
        .bind(storable(&row.caller).into_owned())
        .bind(row.state.as_str())
        .bind(
            row.idempotency_key
                .as_deref()
                .map(|key| storable(key).into_owned()),
        )
        .bind(storable(&row.approvers).into_owned())
        .bind(row.request.to_string())
        .bind(row.call.as_deref().map(str::to_owned))
        .bind(row.requested_at.as_millisecond())
        .bind(row.expires_at.as_millisecond())
        .bind(row.runner.to_string())
}

/// The statement that makes a change. It changes no row if the approval is not as expected.
pub(super) fn update(change: ApprovalChange) -> Statement {
    let decision = change.decision;
    let text = |text: Option<Arc<str>>| text.map(|text| storable(&text).into_owned());
    let (at, by, note, changed) = match decision {
        None => (None, None, None, None),
        Some(made) => (
            Some(made.at.as_millisecond()),
            Some(storable(&made.by).into_owned()),
            text(made.note),
            text(made.changed_arguments),
        ),
    };
    sqlx::query(CHANGE)
        .bind(to_uuid(&change.invocation))
        .bind(change.from.as_str())
        .bind(text(change.from_runner))
        .bind(change.unexpired_at.map(|at| at.as_millisecond()))
        .bind(change.to.as_str())
        .bind(change.runner.to_string())
        .bind(at)
        .bind(by)
        .bind(note)
        .bind(changed)
        .bind(change.done)
}

/// The statement that notes something about a call.
pub(super) fn mark(id: InvocationId, mark: ApprovalMark) -> Statement {
    let (notified, message) = match mark {
        ApprovalMark::Notified => (true, None),
        ApprovalMark::Message(message) => (false, Some(message.to_string())),
    };
    sqlx::query(MARK)
        .bind(to_uuid(&id))
        .bind(notified)
        .bind(message)
}

/// The waiting calls of a caller, and all.
pub(super) async fn count_waiting(pool: &PgPool, caller: &str) -> Result<(u64, u64)> {
    let count = "select count(*) filter (where caller = $1), count(*) from approval where not done and state = 'waiting'";
    let (own, all): (i64, i64) = sqlx::query_as(count)
        .bind(storable(caller).into_owned())
        .fetch_one(pool)
        .await?;
    Ok((own.unsigned_abs(), all.unsigned_abs()))
}

pub(super) async fn message(pool: &PgPool, id: InvocationId) -> Result<Option<Arc<str>>> {
    let text: Option<Option<String>> =
        sqlx::query_scalar("select message from approval where id = $1")
            .bind(to_uuid(&id))
            .fetch_optional(pool)
            .await?;
    Ok(text.flatten().map(Into::into))
}

pub(super) async fn find(pool: &PgPool, id: InvocationId) -> Result<Option<ApprovalRow>> {
    let mut query = QueryBuilder::<Postgres>::new(SELECT);
    query.push(" and id = ").push_bind(to_uuid(&id));
    let row = query.build().fetch_optional(pool).await?;
    row.as_ref().map(decode).transpose()
}

pub(super) async fn list(pool: &PgPool, wanted: &ApprovalQuery) -> Result<Vec<ApprovalRow>> {
    let mut query = QueryBuilder::<Postgres>::new(SELECT);
    match wanted.state {
        None => {}
        Some(ApprovalState::Waiting) => {
            query.push(" and not done and state = 'waiting'");
        }
        Some(ApprovalState::Approved) => {
            query.push(" and state in ('approved', 'started')");
        }
        Some(state) => {
            query.push(" and state = ").push_bind(state.as_str());
        }
    }
    if let Some(tool) = &wanted.tool {
        query
            .push(" and tool = ")
            .push_bind(storable(tool).into_owned());
    }
    if let Some(name) = &wanted.visible_to {
        query
            .push(" and (caller = ")
            .push_bind(storable(name).into_owned());
        query.push(" or position(chr(10) || ");
        query
            .push_bind(storable(name).into_owned())
            .push(" || chr(10) in approvers) > 0)");
    }
    if let Some(key) = &wanted.idempotency_key {
        query
            .push(" and not done and idempotency_key = ")
            .push_bind(storable(key).into_owned());
    }
    if let Some(now) = wanted.due_at {
        query.push(" and not done and (state <> 'waiting' or expires_at <= ");
        query.push_bind(now.as_millisecond()).push(")");
    }
    if wanted.unnotified {
        query.push(" and not notified");
    }
    if let Some(before) = wanted.before {
        query.push(" and id < ").push_bind(to_uuid(&before));
    }
    query
        .push(" order by id desc limit ")
        .push_bind(i64::from(wanted.limit));
    let rows = query.build().fetch_all(pool).await?;
    rows.iter().map(decode).collect()
}

fn decode(row: &PgRow) -> Result<ApprovalRow> {
    let text = |column: &str| {
        row.try_get::<Option<&str>, _>(column)
            .map(|text| text.map(Arc::<str>::from))
    };
    let required = |column: &str| row.try_get::<&str, _>(column).map(Arc::<str>::from);
    let time = |column: &str| {
        row.try_get::<Option<i64>, _>(column)?
            .map(parse_time)
            .transpose()
    };
    Ok(ApprovalRow {
        invocation: from_uuid(row.try_get("id")?),
        tool: required("tool")?,
        caller: required("caller")?,
        state: parse_approval_state(row.try_get("state")?)?,
        idempotency_key: text("idempotency_key")?,
        approvers: required("approvers")?,
        request: required("request")?,
        call: text("call")?,
        requested_at: parse_time(row.try_get("requested_at")?)?,
        expires_at: parse_time(row.try_get("expires_at")?)?,
        decided_at: time("decided_at")?,
        decided_by: text("decided_by")?,
        note: text("note")?,
        changed_arguments: text("changed")?,
        runner: required("runner")?,
        done: row.try_get("done")?,
        notified: row.try_get("notified")?,
    })
}
