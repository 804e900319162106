//! Sends a batch to the database: one call of `commit_batch_1`, which is one transaction.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::Instant;

use serde::{Deserialize, Serialize, Serializer as _};
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::counts::{CounterKey, counter_key};
use super::super::latency::PendingDurations;
use super::super::{Reservation, ReserveError, Row};
use super::batch::{Batch, BlockChanges, End};
use super::lease::RECALL_TIME;
use crate::call::{Charge, Charged, InvocationId};

const COMMIT: &str = "select commit_batch_1($1, $2, $3, $4, $5::jsonb, $6::jsonb, $7::jsonb, $8::jsonb, $9, $10::jsonb, \
    $11::jsonb, $12::jsonb, $13::jsonb, $14::jsonb, $15, $16)::text";

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
    pub(super) reservations: Vec<StartDecision>,
    pub(super) unit_requests: Vec<StartDecision>,
    /// The counters of the batch.
    pub(super) counters: Vec<(CounterKey, CommittedCounter)>,
    /// Counter and window of blocks that no longer exist.
    pub(super) gone: Vec<(i64, i64)>,
    /// Counters whose free units other replicas need.
    pub(super) recalled: Vec<i64>,
    /// Ended calls that another replica has settled before.
    pub(super) lost: Vec<InvocationId>,
}

/// The decision on a starting call. `None`: it waits for free units.
pub(super) type StartDecision = Option<Result<Reservation, ReserveError>>;

/// The state of a counter after a commit.
pub(super) struct CommittedCounter {
    pub(super) id: i64,
    pub(super) window_start: i64,
    pub(super) used: u64,
    /// Free units that the commit has set aside.
    pub(super) added: u64,
    /// The limit of the calls of the batch.
    pub(super) limit: Option<u64>,
    /// Whether calls or this replica may have got units.
    pub(super) has_units: bool,
}

/// Commits a batch, or nothing.
pub(super) async fn commit(
    connection: &mut PgConnection,
    number: CommitNumber,
    running: u32,
    batch: &Batch,
    blocks: &BlockChanges,
    durations: Option<&PendingDurations>,
) -> Result<Decisions, sqlx::Error> {
    let counters = Counters::of(batch, blocks);
    let reservations = batch.reservations.iter().map(|one| StartedRow {
        row: &one.call.row,
        charges: counters.positions(&one.call.charges, one.call.row.started_at),
        is_final: has_waited(one.waits_since),
    });
    let unit_requests = batch.unit_requests.iter().map(|one| UnitColumns {
        id: one.call.invocation,
        at: one.call.started_at.as_millisecond(),
        charges: counters.positions(&one.call.charges, one.call.started_at),
        is_final: has_waited(one.waits_since),
    });
    let ends = batch.ends.iter().map(|end: &End| EndedRow {
        row: &end.row,
        settles: end.settles,
        refunds: end.refunds,
        held: match end.refunds {
            true => Vec::new(),
            false => end
                .held
                .iter()
                .filter(|unit| unit.instance.boot == number.boot)
                .map(|unit| (unit.instance.counter, unit.window_start))
                .collect(),
        },
    });
    let latencies = durations.map(PendingDurations::to_rows).unwrap_or_default();
    let voids: Vec<Uuid> = batch.voids.iter().map(to_uuid).collect();
    let answer: String = sqlx::query_scalar(COMMIT)
        .bind(number.boot)
        .bind(number.attachment)
        .bind(number.batch)
        .bind(i32::try_from(running).unwrap_or(i32::MAX))
        .bind(to_json(counters.columns.iter()))
        .bind(to_json(reservations))
        .bind(to_json(unit_requests))
        .bind(to_json(ends))
        .bind((!voids.is_empty()).then_some(voids))
        .bind(to_json(batch.attempts.iter()))
        .bind(to_json(batch.results.iter()))
        .bind(to_json(batch.shared_refusals.iter()))
        .bind(to_json(latencies.iter()))
        .bind(to_json(blocks.kept.iter()))
        .bind(blocks.is_complete)
        .bind(batch.is_empty())
        .fetch_one(connection)
        .await?;
    let answer: Answer =
        serde_json::from_str(&answer).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let reserved = batch.reservations.iter().map(|one| &one.call.charges);
    let requested = batch.unit_requests.iter().map(|one| &one.call.charges);
    let committed = counters.committed(&answer.counters);
    Ok(Decisions {
        counters: committed,
        gone: answer.gone,
        recalled: answer.recalled,
        reservations: decode(answer.reservations, reserved),
        unit_requests: decode(answer.units, requested),
        lost: answer.lost,
    })
}

fn decode<'a>(
    decisions: Vec<Decision>,
    charges: impl Iterator<Item = &'a Vec<Charge>>,
) -> Vec<StartDecision> {
    let decisions = decisions.into_iter().zip(charges);
    decisions
        .map(|(decision, charges)| decision.with(charges))
        .collect()
}

/// Whether a call has waited long enough for free units.
fn has_waited(since: Option<Instant>) -> bool {
    since.is_some_and(|since| since.elapsed() >= RECALL_TIME)
}

/// The id as the driver binds it.
pub(super) fn to_uuid(id: &InvocationId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

pub(super) fn from_uuid(id: Uuid) -> InvocationId {
    InvocationId::from_bytes(id.into_bytes())
}

/// Writes JSON whose texts PostgreSQL can store, as [`storable`] does.
struct Storable;

impl Formatter for Storable {
    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::AsciiControl(0) => writer.write_all(br"\ufffd"),
            other => CompactFormatter.write_char_escape(writer, other),
        }
    }
}

/// A JSON array; `None` if there are no elements.
fn to_json(rows: impl ExactSizeIterator<Item = impl Serialize>) -> Option<String> {
    if rows.len() == 0 {
        return None;
    }
    let mut json = Vec::with_capacity(1024 * rows.len());
    let mut serializer = serde_json::Serializer::with_formatter(&mut json, Storable);
    serializer.collect_seq(rows).ok()?;
    String::from_utf8(json).ok()
}

/// The counters of a commit, each once, in one order for all replicas: they are locked in this order.
struct Counters<'a> {
    columns: Vec<CounterColumns<'a>>,
    positions: HashMap<CounterName<'a>, usize>,
    calls: Vec<CounterCalls>,
}

/// Tool, caller, run and window.
type CounterName<'a> = (&'a str, &'a str, &'a str, &'static str);

/// Name, newest start of a window, wanted free units, limit.
type CounterColumns<'a> = (&'a str, &'a str, &'a str, &'static str, i64, u64, u64);

/// What a commit needs of a counter.
struct CounterCalls {
    key: CounterKey,
    newest_start: i64,
    wanted: u64,
    limit: u64,
    /// Whether calls of the batch are charged to it.
    has_calls: bool,
    /// Whether some of them take units without a row.
    has_unit_requests: bool,
}

impl<'a> Counters<'a> {
    fn of(batch: &'a Batch, blocks: &'a BlockChanges) -> Self {
        let mut counters = BTreeMap::<CounterName<'a>, CounterCalls>::new();
        let reserved = batch.reservations.iter().map(|one| &one.call);
        let reserved = reserved.map(|call| (&call.charges, call.row.started_at, false));
        let requested = batch.unit_requests.iter().map(|one| &one.call);
        let requested = requested.map(|call| (&call.charges, call.started_at, true));
        for (charges, at, is_unit_request) in reserved.chain(requested) {
            for charge in charges {
                let name = counter_name(charge);
                let calls = counters
                    .entry(name)
                    .or_insert_with(|| CounterCalls::new(counter_key(charge)));
                calls.newest_start = calls.newest_start.max(charge.per.window_start(at));
                calls.limit = calls.limit.min(charge.limit);
                calls.has_calls = true;
                calls.has_unit_requests |= is_unit_request;
            }
        }
        for wanted in &blocks.wanted {
            let (tool, caller, run, per) = &wanted.key;
            let name = (&**tool, &**caller, &**run, per.as_str());
            let calls = counters
                .entry(name)
                .or_insert_with(|| CounterCalls::new(wanted.key.clone()));
            calls.newest_start = calls.newest_start.max(wanted.window_start);
            calls.limit = calls.limit.min(wanted.limit);
            calls.wanted = wanted.units;
        }
        let names = counters.keys().enumerate();
        let positions = names.map(|(at, name)| (*name, at)).collect();
        let columns = counters.iter().map(|(&(tool, caller, run, per), calls)| {
            let (start, wanted, limit) = (calls.newest_start, calls.wanted, calls.limit);
            (tool, caller, run, per, start, wanted, storable_limit(limit))
        });
        Self {
            columns: columns.collect(),
            positions,
            calls: counters.into_values().collect(),
        }
    }

    /// The state of the counters, as the commit has returned it.
    fn committed(self, counters: &[(i64, i64, u64, u64)]) -> Vec<(CounterKey, CommittedCounter)> {
        let counters = self.calls.into_iter().zip(counters);
        let committed = |(calls, &(id, window_start, used, added)): (CounterCalls, &_)| {
            let counter = CommittedCounter {
                id,
                window_start,
                used,
                added,
                limit: calls.has_calls.then_some(calls.limit),
                has_units: added > 0 || calls.has_unit_requests,
            };
            (calls.key, counter)
        };
        counters.map(committed).collect()
    }

    /// The charges with the positions of their counters, the starts of their windows and limits.
    fn positions(&self, charges: &'a [Charge], at: jiff::Timestamp) -> Vec<(usize, i64, u64)> {
        let position = |charge: &'a Charge| {
            let counter = self.positions.get(&counter_name(charge)).copied();
            (
                counter.unwrap_or_default(),
                charge.per.window_start(at),
                storable_limit(charge.limit),
            )
        };
        charges.iter().map(position).collect()
    }
}

impl CounterCalls {
    fn new(key: CounterKey) -> Self {
        Self {
            key,
            newest_start: i64::MIN,
            wanted: 0,
            limit: u64::MAX,
            has_calls: false,
            has_unit_requests: false,
        }
    }
}

/// PostgreSQL's integers have a sign.
fn storable_limit(limit: u64) -> u64 {
    limit.min(i64::MAX.unsigned_abs())
}

fn counter_name(charge: &Charge) -> CounterName<'_> {
    (
        &charge.tool,
        &charge.caller,
        &charge.run,
        charge.per.as_str(),
    )
}

/// The text as PostgreSQL can store it: without U+0000, for which U+FFFD stands.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}").into()
    } else {
        text.into()
    }
}

#[derive(Serialize)]
struct StartedRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    charges: Vec<(usize, i64, u64)>,
    #[serde(rename = "final")]
    is_final: bool,
}

#[derive(Serialize)]
struct EndedRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    settles: bool,
    refunds: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held: Vec<(i64, i64)>,
}

#[derive(Serialize)]
struct UnitColumns {
    id: InvocationId,
    at: i64,
    charges: Vec<(usize, i64, u64)>,
    #[serde(rename = "final")]
    is_final: bool,
}

#[derive(Deserialize)]
struct Answer {
    reservations: Vec<Decision>,
    units: Vec<Decision>,
    lost: Vec<InvocationId>,
    /// Id, start of the window, used units and added units, in the order of the counters.
    counters: Vec<(i64, i64, u64, u64)>,
    gone: Vec<(i64, i64)>,
    recalled: Vec<i64>,
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
    /// Replicas have free units, and were asked for them.
    Waits {
        #[serde(rename = "wait")]
        _wait: bool,
    },
}

impl Decision {
    fn with(self, charges: &[Charge]) -> StartDecision {
        let charged = |charge: &Charge, window_start, used| Charged {
            charge: charge.clone(),
            window_start,
            used,
        };
        Some(match self {
            Self::Waits { .. } => return None,
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
        })
    }
}
