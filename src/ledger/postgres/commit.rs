//! Sends a batch to the database: one call of `commit_batch_1`, which is one transaction.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize, Serializer};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::pending_durations::PendingDurations;
use super::super::{Reservation, ReserveError, Row};
use super::batch::{Batch, End};
use crate::call::{Charge, Charged, InvocationId};

const COMMIT: &str = "select commit_batch_1($1, $2, $3, $4, $5::jsonb, $6::jsonb, $7::jsonb, $8::jsonb, $9, $10::jsonb, \
    $11::jsonb, $12::jsonb, $13::jsonb)::text";

/// The place of a commit among all commits.
#[derive(Clone, Copy)]
pub(super) struct CommitNumber {
    /// The replica.
    pub(super) boot: Uuid,
    /// The number of its connection.
    pub(super) attachment: i64,
    /// The number of the commit.
    pub(super) batch: i64,
}

/// What a commit decided, in the order of the batch.
#[derive(Default)]
pub(super) struct Decisions {
    pub(super) reservations: Vec<Result<Reservation, ReserveError>>,
    pub(super) unit_requests: Vec<Result<Reservation, ReserveError>>,
    /// Ended calls that another replica has settled before.
    pub(super) lost: Vec<InvocationId>,
}

/// Commits a batch, or nothing.
pub(super) async fn commit(
    connection: &mut PgConnection,
    number: CommitNumber,
    running: u32,
    batch: &Batch,
    durations: Option<&PendingDurations>,
) -> Result<Decisions, sqlx::Error> {
    let counters = Counters::of(batch);
    let reservations = batch.reservations.iter().map(|(row, charges)| StartedRow {
        row: RowColumns::of(row),
        charges: counters.positions(charges, row.started_at),
    });
    let unit_requests = batch.unit_requests.iter().map(|request| UnitColumns {
        id: request.invocation,
        at: request.started_at.as_millisecond(),
        charges: counters.positions(&request.charges, request.started_at),
    });
    let ends = batch.ends.iter().map(|end: &End| EndedRow {
        row: RowColumns::of(&end.row),
        settles: end.settles,
        refunds: end.refunds,
    });
    let attempts = batch.attempts.iter().map(|attempt| AttemptColumns {
        invocation: attempt.invocation,
        attempt: attempt.attempt,
        kind: attempt.kind.as_str(),
        message: Text(&attempt.message),
        duration_us: attempt.duration_us,
    });
    let results = batch.results.iter().map(|result| ResultColumns {
        key: hex::encode(result.key),
        tool: Text(&result.tool),
        origin: result.origin,
        result: Text(&result.result),
        stored_at: result.stored_at.as_millisecond(),
        expires_at: result.expires_at.as_millisecond(),
    });
    let refusals = batch.shared_refusals.iter().map(|refusal| RefusalColumns {
        id: refusal.row,
        caller: Text(&refusal.caller),
        tool: Text(&refusal.tool),
        count: refusal.count,
        added: refusal.added,
    });
    let latencies = durations.map(PendingDurations::to_rows).unwrap_or_default();
    let latencies = latencies
        .iter()
        .map(|(caller, tool, bucket, calls)| LatencyColumns {
            caller: Text(caller),
            tool: Text(tool),
            bucket: *bucket,
            calls: *calls,
        });
    let voids: Vec<Uuid> = batch.voids.iter().map(to_uuid).collect();
    let answer: String = sqlx::query_scalar(COMMIT)
        .bind(number.boot)
        .bind(number.attachment)
        .bind(number.batch)
        .bind(i32::try_from(running).unwrap_or(i32::MAX))
        .bind(to_json(counters.names.iter()))
        .bind(to_json(reservations))
        .bind(to_json(unit_requests))
        .bind(to_json(ends))
        .bind((!voids.is_empty()).then_some(voids))
        .bind(to_json(attempts))
        .bind(to_json(results))
        .bind(to_json(refusals))
        .bind(to_json(latencies))
        .fetch_one(connection)
        .await?;
    let answer: Answer =
        serde_json::from_str(&answer).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let reserved = batch.reservations.iter().map(|(_, charges)| charges);
    let requested = batch.unit_requests.iter().map(|request| &request.charges);
    Ok(Decisions {
        reservations: decode(answer.reservations, reserved),
        unit_requests: decode(answer.units, requested),
        lost: answer.lost,
    })
}

fn decode<'a>(
    decisions: Vec<Decision>,
    charges: impl Iterator<Item = &'a Vec<Charge>>,
) -> Vec<Result<Reservation, ReserveError>> {
    let decisions = decisions.into_iter().zip(charges);
    decisions
        .map(|(decision, charges)| decision.with(charges))
        .collect()
}

/// The id as the driver binds it.
pub(super) fn to_uuid(id: &InvocationId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// A JSON array; `None` if there are no elements.
fn to_json(rows: impl ExactSizeIterator<Item = impl Serialize>) -> Option<String> {
    if rows.len() == 0 {
        return None;
    }
    let mut json = Vec::with_capacity(1024 * rows.len());
    let mut serializer = serde_json::Serializer::new(&mut json);
    serializer.collect_seq(rows).ok()?;
    String::from_utf8(json).ok()
}

/// The counters of a batch, each once, in one order for all replicas: they are locked in this order.
struct Counters<'a> {
    names: Vec<CounterName<'a>>,
    positions: HashMap<CounterName<'a>, usize>,
}

/// Tool, caller, run and window.
type CounterName<'a> = (Text<'a>, Text<'a>, Text<'a>, &'static str);

impl<'a> Counters<'a> {
    fn of(batch: &'a Batch) -> Self {
        let reserved = batch.reservations.iter().flat_map(|(_, charges)| charges);
        let requested = batch
            .unit_requests
            .iter()
            .flat_map(|request| &request.charges);
        let mut names: Vec<_> = reserved.chain(requested).map(counter_name).collect();
        names.sort_unstable();
        names.dedup();
        let positions = names
            .iter()
            .enumerate()
            .map(|(at, name)| (*name, at))
            .collect();
        Self { names, positions }
    }

    /// The charges with the positions of their counters, the starts of their windows and limits.
    fn positions(&self, charges: &'a [Charge], at: jiff::Timestamp) -> Vec<(usize, i64, u64)> {
        let position = |charge: &'a Charge| {
            let counter = self.positions.get(&counter_name(charge)).copied();
            // PostgreSQL's integers have a sign.
            let limit = charge.limit.min(i64::MAX.unsigned_abs());
            (
                counter.unwrap_or_default(),
                charge.per.window_start(at),
                limit,
            )
        };
        charges.iter().map(position).collect()
    }
}

fn counter_name(charge: &Charge) -> CounterName<'_> {
    (
        Text(&charge.tool),
        Text(&charge.caller),
        Text(&charge.run),
        charge.per.as_str(),
    )
}

/// A text of a column. PostgreSQL has no U+0000; U+FFFD stands for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Text<'a>(&'a str);

/// The text as PostgreSQL can store it.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}").into()
    } else {
        text.into()
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&storable(self.0))
    }
}

#[derive(Serialize)]
struct RowColumns<'a> {
    id: InvocationId,
    tool: Text<'a>,
    caller: Text<'a>,
    run_id: Option<Text<'a>>,
    tool_use_id: Option<Text<'a>>,
    state: &'static str,
    kind: Option<&'static str>,
    effect: &'static str,
    cache: &'static str,
    attempts: u32,
    started_at: i64,
    duration_us: Option<i64>,
    arguments: Text<'a>,
    result: Option<Text<'a>>,
    origin: Option<InvocationId>,
    meta: Option<Text<'a>>,
    idempotency_key: Option<Text<'a>>,
    fingerprint: Option<Text<'a>>,
    key_until: Option<i64>,
    parent: Option<InvocationId>,
    count: u64,
    detail: Option<Text<'a>>,
}

impl<'a> RowColumns<'a> {
    fn of(row: &'a Row) -> Self {
        Self {
            id: row.id,
            tool: Text(&row.tool),
            caller: Text(&row.caller),
            run_id: row.run_id.as_deref().map(Text),
            tool_use_id: row.tool_use_id.as_deref().map(Text),
            state: row.state.as_str(),
            kind: row.kind.map(|kind| kind.as_str()),
            effect: row.effect.as_str(),
            cache: row.cache.as_str(),
            attempts: row.attempts,
            started_at: row.started_at.as_millisecond(),
            duration_us: row.duration_us,
            arguments: Text(&row.arguments),
            result: row.result.as_deref().map(Text),
            origin: row.origin,
            meta: row.meta.as_deref().map(Text),
            idempotency_key: row.idempotency_key.as_deref().map(Text),
            fingerprint: row.fingerprint.as_deref().map(Text),
            key_until: row.key_until.map(|until| until.as_millisecond()),
            parent: row.parent,
            count: row.count,
            detail: row.detail.as_deref().map(Text),
        }
    }
}

#[derive(Serialize)]
struct StartedRow<'a> {
    #[serde(flatten)]
    row: RowColumns<'a>,
    charges: Vec<(usize, i64, u64)>,
}

#[derive(Serialize)]
struct EndedRow<'a> {
    #[serde(flatten)]
    row: RowColumns<'a>,
    settles: bool,
    refunds: bool,
}

#[derive(Serialize)]
struct UnitColumns {
    id: InvocationId,
    at: i64,
    charges: Vec<(usize, i64, u64)>,
}

#[derive(Serialize)]
struct AttemptColumns<'a> {
    invocation: InvocationId,
    attempt: u32,
    kind: &'static str,
    message: Text<'a>,
    duration_us: i64,
}

#[derive(Serialize)]
struct ResultColumns<'a> {
    key: String,
    tool: Text<'a>,
    origin: InvocationId,
    result: Text<'a>,
    stored_at: i64,
    expires_at: i64,
}

#[derive(Serialize)]
struct RefusalColumns<'a> {
    id: InvocationId,
    caller: Text<'a>,
    tool: Text<'a>,
    count: u64,
    added: u64,
}

#[derive(Serialize)]
struct LatencyColumns<'a> {
    caller: Text<'a>,
    tool: Text<'a>,
    bucket: i64,
    calls: u64,
}

#[derive(Deserialize)]
struct Answer {
    reservations: Vec<Decision>,
    units: Vec<Decision>,
    lost: Vec<InvocationId>,
}

/// The decision on one call, as `commit_batch_1` writes it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Decision {
    /// Start of the window and used units of each counter, in the order of the charges.
    Admitted(Vec<(i64, u64)>),
    /// This charge's limit is reached.
    Full { full: usize, start: i64, used: u64 },
    /// This call holds the key.
    Claimed { holder: InvocationId },
}

impl Decision {
    fn with(self, charges: &[Charge]) -> Result<Reservation, ReserveError> {
        let charged = |charge: &Charge, window_start, used| Charged {
            charge: charge.clone(),
            window_start,
            used,
        };
        match self {
            Self::Admitted(counted) => Ok(Reservation {
                charged: charges
                    .iter()
                    .zip(counted)
                    .map(|(charge, (start, used))| charged(charge, start, used))
                    .collect(),
            }),
            Self::Full { full, start, used } => Err(match charges.get(full) {
                Some(charge) => ReserveError::LimitReached(charged(charge, start, used)),
                None => super::super::Error::Failed("an unknown limit is reached".into()).into(),
            }),
            Self::Claimed { holder } => Err(ReserveError::KeyClaimed(holder)),
        }
    }
}
