//! The random operations.

use proptest::prelude::*;

use super::super::State;
use crate::call::Per;

pub(super) const CALLERS: [&str; 2] = ["a", "b"];
pub(super) const TOOLS: [&str; 2] = ["t", "u"];
pub(super) const PERS: [Per; 4] = [Per::Minute, Per::Day, Per::Run, Per::Lifetime];
pub(super) const ENDS: [State; 6] = [
    State::Succeeded,
    State::Failed,
    State::TimedOut,
    State::Cancelled,
    State::Refused,
    State::Unknown,
];

/// A call that starts: caller, tool, effect, key, the limits that it is charged to, and the seconds
/// since the call before.
#[derive(Debug, Clone)]
pub(super) struct StartedCall {
    pub(super) caller: usize,
    pub(super) tool: usize,
    pub(super) write: bool,
    pub(super) key: Option<u8>,
    pub(super) limits: Vec<(usize, u64)>,
    pub(super) seconds_later: i32,
}

/// An operation of one of the processes that share the ledger. An operation on an existing call is
/// done by the process of that call.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) replica: usize,
    pub(super) operation: Operation,
}

/// A random operation.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    /// Calls start so close together that one commit reserves all of them.
    Reserve(Vec<StartedCall>),
    /// A limited read takes its units, and gets its row when it ends.
    Read(StartedCall),
    /// One of the existing calls ends, or ends a second time, with or without a refund of its
    /// units.
    Settle {
        which: prop::sample::Index,
        state: State,
        refunds: bool,
    },
    /// A refused call is recorded.
    Refuse {
        caller: usize,
        tool: usize,
        key: Option<u8>,
    },
    /// Many calls are refused within a moment.
    Flood {
        caller: usize,
        tool: usize,
        calls: u16,
    },
    /// Rows that no guarantee covers are deleted, as if the file were full.
    Trim { at_most: u8 },
    /// The wall clock moves forward or back by this number of seconds.
    Clock(i32),
    /// An admin resets counters.
    Reset { tool: usize, caller: Option<usize> },
    /// Calls that started this number of seconds ago or earlier are deleted.
    Prune { age_seconds: u16 },
    /// The caller of a starting call goes away at once. `refused`: the call is recorded as refused.
    Abandon { call: StartedCall, refused: bool },
    /// The process ends without closing its ledger, and another one opens it.
    Crash,
    /// The process loses its connection.
    Disconnect,
}

fn operation_strategy() -> impl Strategy<Value = Operation> {
    let (caller, tool, key) = (
        0..CALLERS.len(),
        0..TOOLS.len(),
        proptest::option::of(0..3u8),
    );
    let limit = prop_oneof![1..5u64, 9..60u64];
    let limits = proptest::collection::vec((0..PERS.len(), limit), 0..3);
    let started_call = (
        caller.clone(),
        tool.clone(),
        any::<bool>(),
        key.clone(),
        limits,
        -40..40i32,
    )
        .prop_map(
            |(caller, tool, write, key, limits, seconds_later)| StartedCall {
                caller,
                tool,
                write,
                key,
                limits,
                seconds_later,
            },
        );
    prop_oneof![
        6 => proptest::collection::vec(started_call.clone(), 1..4).prop_map(Operation::Reserve),
        8 => started_call.clone().prop_map(Operation::Read),
        8 => (any::<prop::sample::Index>(), proptest::sample::select(ENDS.to_vec()), any::<bool>())
            .prop_map(|(which, state, refunds)| Operation::Settle { which, state, refunds }),
        2 => (caller.clone(), tool.clone(), key).prop_map(|(caller, tool, key)| Operation::Refuse { caller, tool, key }),
        1 => (caller.clone(), tool.clone(), 0..150u16).prop_map(|(caller, tool, calls)| Operation::Flood { caller, tool, calls }),
        1 => (1..9u8).prop_map(|at_most| Operation::Trim { at_most }),
        3 => prop_oneof![-90..90i32, -90_000..90_000i32].prop_map(Operation::Clock),
        2 => (tool, proptest::option::of(caller)).prop_map(|(tool, caller)| Operation::Reset { tool, caller }),
        1 => (0..200_000u32).prop_map(|quarters| Operation::Prune { age_seconds: u16::try_from(quarters / 4).unwrap_or(0) }),
        2 => (started_call, any::<bool>()).prop_map(|(call, refused)| Operation::Abandon { call, refused }),
        2 => Just(Operation::Crash),
        1 => Just(Operation::Disconnect),
    ]
}

pub(super) fn step_strategy() -> impl Strategy<Value = Step> {
    (0..2usize, operation_strategy()).prop_map(|(replica, operation)| Step { replica, operation })
}
