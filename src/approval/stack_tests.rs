//! Tests of many waiting calls.

use jiff::ToSpan;

use super::*;
use crate::approval::deciding::{DecideError, Decision, Verdict};
use crate::approval::request::waiting_row;
use crate::approval::table::KeptCall;
use crate::call::{ApprovalPolicy, InvocationId};
use crate::ledger::memory::ReservationFault;
use crate::ledger::{ApprovalChange, ApprovalDecision, ApprovalQuery, ApprovalRow, ApprovalState};

fn waiting(caller: &str, expires_at: Timestamp) -> ApprovalRow {
    ApprovalRow {
        invocation: InvocationId::new(),
        tool: "pay".into(),
        caller: caller.into(),
        state: ApprovalState::Waiting,
        idempotency_key: None,
        approvers: ApprovalRow::join_approvers([]),
        request: "{}".into(),
        call: None,
        requested_at: Timestamp::UNIX_EPOCH,
        expires_at,
        decided_at: None,
        decided_by: None,
        note: None,
        changed_arguments: None,
        runner: "one".into(),
        done: false,
        notified: false,
    }
}

/// Every call waits.
fn always() -> ApprovalPolicy {
    ApprovalPolicy {
        when: None,
        by: Vec::new(),
        wait: ApprovalPolicy::DEFAULT_WAIT,
        expires: ApprovalPolicy::DEFAULT_EXPIRES,
        message: None,
    }
}

#[tokio::test(start_paused = true)]
async fn sweep_finds_an_expired_call_behind_many_that_others_handle() {
    let registry = registry([endless_tool("pay").call(|_, _| async { Ok("paid") })], 10);
    let shared = registry.shared();
    let oldest = waiting("ann", Timestamp::UNIX_EPOCH);
    shared
        .ledger
        .request_approval(oldest.clone())
        .await
        .unwrap();
    let mut handled = Vec::new();
    for _ in 0..500 {
        let row = waiting("ann", Timestamp::UNIX_EPOCH);
        handled.extend(shared.waiting_calls.activate(row.invocation));
        shared.ledger.request_approval(row).await.unwrap();
    }
    tokio::spawn(registry.clone().sweep_approvals());
    tokio::time::sleep(SECOND).await;
    let found = shared.ledger.find_approval(oldest.invocation).await;
    let found = found.unwrap().unwrap();
    assert_eq!(found.state, ApprovalState::Expired);
    assert_eq!(found.decided_by.as_deref(), Some("toolcrib"));
    assert_eq!(found.decided_at, Some(Timestamp::UNIX_EPOCH));
}

#[tokio::test(start_paused = true)]
async fn caller_with_too_many_waiting_calls_is_refused() {
    let mut tool = Tool::new("pay", "Pays.").call(|_, _| async { Ok("paid") });
    tool.policy.approval = Some(always());
    let registry = registry([tool], 10);
    let ledger = &registry.shared().ledger;
    let later = Timestamp::UNIX_EPOCH + 1.hour();
    for number in 0..2000 {
        let caller = if number < 1999 {
            Caller::ANONYMOUS
        } else {
            "ann"
        };
        ledger
            .request_approval(waiting(caller, later))
            .await
            .unwrap();
    }
    let answer = call(&registry, "pay", Some(SECOND)).await.unwrap();
    assert!(answer.waiting, "there is room for one");
    let error = call(&registry, "pay", Some(SECOND)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(
        error
            .to_string()
            .starts_with("2000 calls of this caller wait"),
        "{error}"
    );
}

/// A tool whose calls wait for a person, over a ledger with faults, and the number of its runs.
fn paying() -> (Arc<Registry>, Arc<MemoryLedger>, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let mut tool = Tool::new("pay", "Pays.")
        .effect(Effect::Write)
        .call(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok("paid") }
        });
    tool.policy.approval = Some(always());
    let ledger = Arc::new(MemoryLedger::default());
    let registry = registry_over([tool], 10, |shared| SharedParts {
        ledger: ledger.clone(),
        ..shared
    });
    tokio::spawn(registry.clone().sweep_approvals());
    (registry, ledger, runs)
}

fn approve() -> Decision {
    Decision {
        verdict: Verdict::Approve(None),
        by: "boss".into(),
        note: None,
    }
}

#[tokio::test(start_paused = true)]
async fn approved_call_that_cannot_be_reserved_starts_later() {
    for fault in [ReservationFault::Refused, ReservationFault::LeaseEnds] {
        let (registry, ledger, runs) = paying();
        let call = call(&registry, "pay", None).await.unwrap();
        assert!(call.waiting);
        ledger.set_fault(fault);
        let decided = registry.decide_and_run(call.invocation, approve()).await;
        assert!(decided.unwrap().unwrap().unwrap().waiting, "{fault:?}");
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(runs.load(Ordering::SeqCst), 0);
        assert!(ledger.get(call.invocation).await.unwrap().is_none());
        ledger.set_fault(ReservationFault::None);
        tokio::time::sleep(SECOND * 2).await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        let row = ledger.get(call.invocation).await.unwrap().unwrap().row;
        assert_eq!(row.state, State::Succeeded);
        let approval = ledger
            .find_approval(call.invocation)
            .await
            .unwrap()
            .unwrap();
        assert!(approval.done);
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(
            runs.load(Ordering::SeqCst),
            1,
            "an approval permits one start"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn approved_call_runs_while_the_circuit_is_open() {
    let (registry, script, ran) = scripted_registry(|mut tool| {
        tool.policy.approval = Some(always());
        tool.effect(Effect::Write)
    });
    script.lock().extend((0..5).map(|_| backend_down()));
    let mut waiting = Vec::new();
    for _ in 0..6 {
        waiting.push(call(&registry, "t", None).await.unwrap().invocation);
    }
    let approved = async |id| {
        let decided = registry.decide_and_run(id, approve()).await;
        decided.unwrap().unwrap()
    };
    for id in &waiting[..5] {
        assert!(approved(*id).await.is_err());
    }
    assert_eq!(breaker(&registry), ("open", 5));
    assert!(!approved(waiting[5]).await.unwrap().waiting);
    assert_eq!(
        (ran.load(Ordering::SeqCst), breaker(&registry)),
        (6, ("open", 5))
    );
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_hears_that_its_approved_call_starts_later() {
    let (registry, ledger, runs) = paying();
    let waiting = tokio::spawn({
        let registry = registry.clone();
        async move { call(&registry, "pay", None).await }
    });
    tokio::time::sleep(SECOND).await;
    let query = ApprovalQuery {
        limit: 1,
        ..ApprovalQuery::default()
    };
    let id = ledger.list_approvals(&query).await.unwrap()[0].invocation;
    ledger.set_fault(ReservationFault::Refused);
    registry.decide(id, approve()).await.unwrap();
    assert!(waiting.await.unwrap().unwrap().waiting);
    ledger.set_fault(ReservationFault::None);
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn approved_call_runs_although_its_client_leaves() {
    let (registry, ledger, runs) = paying();
    let waiting = tokio::spawn({
        let registry = registry.clone();
        async move { call(&registry, "pay", None).await }
    });
    tokio::time::sleep(SECOND).await;
    let query = ApprovalQuery {
        limit: 1,
        ..ApprovalQuery::default()
    };
    let id = ledger.list_approvals(&query).await.unwrap()[0].invocation;
    registry.decide(id, approve()).await.unwrap();
    // The request has the decision, and may be anywhere in its second pass.
    waiting.abort();
    tokio::time::sleep(SECOND * 3).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let row = ledger.get(id).await.unwrap().unwrap().row;
    assert_eq!(row.state, State::Succeeded);
}

/// A call that waits, and on which a process that has ended was to act: in these states, one after
/// the other.
async fn left_behind(
    registry: &Arc<Registry>,
    ledger: &MemoryLedger,
    states: &[ApprovalState],
) -> InvocationId {
    let id = call(registry, "pay", None).await.unwrap().invocation;
    let mut from = ApprovalState::Waiting;
    for to in states {
        let change = ApprovalChange {
            decision: Some(ApprovalDecision {
                at: Timestamp::UNIX_EPOCH,
                by: "boss".into(),
                note: Some("as agreed".into()),
                changed_arguments: None,
            }),
            ..ApprovalChange::new(id, from, *to, "gone".into())
        };
        assert!(ledger.change_approval(change).await.unwrap());
        from = *to;
    }
    id
}

#[tokio::test(start_paused = true)]
async fn decisions_of_an_ended_process_are_carried_out_once() {
    use ApprovalState::{Approved, Denied, Expired, Started, Withdrawn};
    let cases: [(&[ApprovalState], State, Option<ErrorKind>); 5] = [
        (&[Approved], State::Succeeded, None),
        // Without a row, the tool has not started.
        (&[Approved, Started], State::Succeeded, None),
        (&[Denied], State::Refused, Some(ErrorKind::ApprovalDenied)),
        (&[Expired], State::Refused, Some(ErrorKind::ApprovalExpired)),
        (&[Withdrawn], State::Cancelled, Some(ErrorKind::Cancelled)),
    ];
    for (states, state, kind) in cases {
        let (registry, ledger, runs) = paying();
        let id = left_behind(&registry, &ledger, states).await;
        tokio::time::sleep(SECOND * 5).await;
        let row = ledger.get(id).await.unwrap().unwrap().row;
        assert_eq!((row.state, row.kind), (state, kind), "{states:?}");
        let is_run = usize::from(state == State::Succeeded);
        assert_eq!(runs.load(Ordering::SeqCst), is_run, "{states:?}");
        let approval = ledger.find_approval(id).await.unwrap().unwrap();
        assert!(approval.done, "{states:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn approval_of_a_call_with_its_own_row_is_closed_and_runs_nothing() {
    for state in [ApprovalState::Approved, ApprovalState::Started] {
        let (registry, ledger, runs) = paying();
        let id = left_behind(&registry, &ledger, &[ApprovalState::Approved]).await;
        let row = ledger.find_approval(id).await.unwrap().unwrap();
        let mut reserved = waiting_row(&row);
        reserved.state = State::Reserved;
        ledger.record(Arc::new(reserved.clone())).await.unwrap();
        if state == ApprovalState::Started {
            let start = ApprovalChange::new(id, ApprovalState::Approved, state, "gone".into());
            assert!(ledger.change_approval(start).await.unwrap());
        }
        tokio::time::sleep(SECOND * 5).await;
        let approval = ledger.find_approval(id).await.unwrap().unwrap();
        assert!(!approval.done, "the call runs");
        reserved.state = State::Unknown;
        ledger.settle(Arc::new(reserved), vec![]).await.unwrap();
        tokio::time::sleep(SECOND * 5).await;
        let approval = ledger.find_approval(id).await.unwrap().unwrap();
        assert_eq!((approval.done, approval.state), (true, state));
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_expire_early_only_if_the_process_that_had_them_has_ended() {
    let (registry, ledger, _) = paying();
    let later = Timestamp::UNIX_EPOCH + 1.hour();
    let lost = waiting("ann", later);
    let kept = ApprovalRow {
        runner: registry.shared().waiting_calls.process(&*ledger),
        ..waiting("ann", later)
    };
    let stored = ApprovalRow {
        call: Some("{}".into()),
        ..waiting("ann", later)
    };
    for row in [&lost, &kept, &stored] {
        ledger.request_approval(row.clone()).await.unwrap();
    }
    tokio::time::sleep(SECOND * 65).await;
    for (row, state) in [
        (lost, ApprovalState::Expired),
        (kept, ApprovalState::Waiting),
        (stored, ApprovalState::Waiting),
    ] {
        let found = ledger.find_approval(row.invocation).await.unwrap().unwrap();
        assert_eq!(found.state, state, "{}", row.runner);
    }
}

#[tokio::test(start_paused = true)]
async fn decided_call_without_its_tool_ends_as_it_was_decided() {
    let verdicts = [
        (Verdict::Approve(None), State::Refused),
        (Verdict::Deny, State::Refused),
        (Verdict::Withdraw, State::Cancelled),
    ];
    for (verdict, state) in verdicts {
        let (registry, ledger, runs) = paying();
        let id = call(&registry, "pay", None).await.unwrap().invocation;
        registry.clear();
        let decision = Decision {
            verdict,
            ..approve()
        };
        registry.decide(id, decision).await.unwrap();
        tokio::time::sleep(SECOND).await;
        let row = ledger.get(id).await.unwrap().unwrap().row;
        assert_eq!(row.state, state);
        let approval = ledger.find_approval(id).await.unwrap().unwrap();
        assert!(approval.done);
        assert_ne!(approval.state, ApprovalState::Approved);
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_was_cancelled_while_it_was_stored_cannot_be_decided() {
    let (registry, ledger, runs) = paying();
    let id = call(&registry, "pay", None).await.unwrap().invocation;
    let row = ledger.find_approval(id).await.unwrap().unwrap();
    let mut cancelled = waiting_row(&row);
    cancelled.state = State::Cancelled;
    ledger.record(Arc::new(cancelled)).await.unwrap();
    let error = registry.decide(id, approve()).await.unwrap_err();
    assert!(
        matches!(error, DecideError::Decided(ApprovalState::Withdrawn)),
        "{error}"
    );
    let approval = ledger.find_approval(id).await.unwrap().unwrap();
    assert_eq!(
        (approval.done, approval.state),
        (true, ApprovalState::Withdrawn)
    );
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn call_is_refused_if_too_many_of_all_callers_wait() {
    let mut tool = Tool::new("pay", "Pays.").call(|_, _| async { Ok("paid") });
    tool.policy.approval = Some(always());
    let registry = registry([tool], 10);
    let ledger = &registry.shared().ledger;
    let later = Timestamp::UNIX_EPOCH + 1.hour();
    for number in 0..9_999 {
        let row = waiting(&format!("caller-{}", number % 9), later);
        ledger.request_approval(row).await.unwrap();
    }
    assert!(call(&registry, "pay", None).await.unwrap().waiting);
    let error = call(&registry, "pay", None).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::TooManyWaiting {
                most: 10_000,
                of_caller: false
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn calls_that_wait_in_memory_are_bounded() {
    let (registry, ..) = paying();
    let table = WaitingCalls::default();
    let keep = |caller: &str| {
        let mut invocation = invocation_of(&registry, "pay");
        invocation.caller = Arc::new(Caller::new(caller, false));
        let call = KeptCall {
            invocation: Box::new(invocation),
            shown: JsonObject::new(),
            shown_context: JsonObject::new(),
            hash: [0; 32],
        };
        match table.keep(InvocationId::new(), call) {
            Ok(()) => None,
            Err(CallError::TooManyWaiting { most, of_caller }) => Some((most, of_caller)),
            Err(error) => panic!("{error}"),
        }
    };
    for _ in 0..200 {
        assert_eq!(keep("ann"), None);
    }
    assert_eq!(keep("ann"), Some((200, true)));
    for number in 0..800 {
        assert_eq!(keep(&format!("caller-{number}")), None);
    }
    assert_eq!(keep("bob"), Some((1000, false)));
}

#[tokio::test]
async fn request_that_ends_no_longer_waits() {
    let table = WaitingCalls::default();
    let waiter = table.wait_for(InvocationId::new());
    assert_eq!(table.count_requests(), 1);
    drop(waiter);
    assert_eq!(table.count_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_hears_of_a_decision_elsewhere() {
    for is_done in [true, false] {
        let (registry, ledger, runs) = paying();
        let request = tokio::spawn({
            let registry = registry.clone();
            async move { call(&registry, "pay", None).await }
        });
        tokio::time::sleep(SECOND / 2).await;
        let query = ApprovalQuery {
            limit: 1,
            ..ApprovalQuery::default()
        };
        let row = ledger.list_approvals(&query).await.unwrap().remove(0);
        let mut ended = waiting_row(&row);
        ended.state = State::Succeeded;
        let result = ToolResult::text("paid elsewhere");
        ended.result = Some(serde_json::to_string(&result).unwrap().into());
        ledger.record(Arc::new(ended)).await.unwrap();
        // A decision that is done, or one on which another process acts.
        let runner = match is_done {
            true => row.runner.clone(),
            false => "other".into(),
        };
        let (from, to) = (ApprovalState::Waiting, ApprovalState::Approved);
        let change = ApprovalChange {
            done: is_done,
            ..ApprovalChange::new(row.invocation, from, to, runner)
        };
        assert!(ledger.change_approval(change).await.unwrap());
        let answer = request.await.unwrap().unwrap();
        assert!(!answer.waiting);
        assert_eq!(answer.result.as_text(), "paid elsewhere");
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn expired_call_cannot_be_approved() {
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let mut tool = Tool::new("pay", "Pays.").call(|_, _| async { Ok("paid") });
    tool.policy.approval = Some(always());
    let registry = registry_over([tool], 10, |shared| SharedParts { clock, ..shared });
    let id = call(&registry, "pay", None).await.unwrap().invocation;
    let late = ApprovalPolicy::DEFAULT_EXPIRES + SECOND;
    hand.store(late.as_millis() as i64, Ordering::SeqCst);
    // The sweep has not found it yet.
    let error = registry.decide(id, approve()).await.unwrap_err();
    assert!(
        matches!(error, DecideError::Decided(ApprovalState::Expired)),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_of_a_call_in_memory_are_not_stored() {
    for (capture, is_stored) in [(Capture::Full, true), (Capture::Digest, false)] {
        let mut tool = Tool::new("pay", "Pays.")
            .effect(Effect::Write)
            .call(|_, _| async { Ok("paid") });
        tool.policy.approval = Some(always());
        let registry = registry_over([tool], 10, |shared| SharedParts { capture, ..shared });
        let id = call(&registry, "pay", None).await.unwrap().invocation;
        let decision = Decision {
            verdict: Verdict::Approve(Some(JsonObject::new())),
            ..approve()
        };
        let outcome = registry.decide_and_run(id, decision).await.unwrap();
        assert!(!outcome.unwrap().unwrap().waiting);
        let approval = registry.shared().ledger.find_approval(id).await;
        let approval = approval.unwrap().unwrap();
        assert_eq!(approval.changed_arguments.is_some(), is_stored);
    }
}

#[tokio::test(start_paused = true)]
async fn decision_on_which_another_process_acts_first_is_left_to_it() {
    let (registry, ledger, runs) = paying();
    let id = left_behind(&registry, &ledger, &[ApprovalState::Approved]).await;
    let is_taken = Arc::new(AtomicBool::new(false));
    ledger.before_next_change({
        let is_taken = is_taken.clone();
        move |row| {
            row.runner = "faster".into();
            is_taken.store(true, Ordering::SeqCst);
        }
    });
    while !is_taken.load(Ordering::SeqCst) {
        tokio::time::sleep(SECOND / 10).await;
    }
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    let approval = ledger.find_approval(id).await.unwrap().unwrap();
    assert_eq!((&*approval.runner, approval.done), ("faster", false));
}

#[tokio::test(start_paused = true)]
async fn approved_call_that_another_process_takes_over_does_not_start_here() {
    let (registry, ledger, runs) = paying();
    let id = call(&registry, "pay", None).await.unwrap().invocation;
    registry.decide(id, approve()).await.unwrap();
    // The decision is committed, and the call is about to start.
    ledger.before_next_change(|row| row.runner = "other".into());
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    let approval = ledger.find_approval(id).await.unwrap().unwrap();
    assert_eq!(approval.state, ApprovalState::Approved);
    assert_eq!(&*approval.runner, "other");
}

#[tokio::test(start_paused = true)]
async fn calls_of_ended_processes_are_looked_for_twice_a_minute() {
    let (_registry, ledger, _) = paying();
    // The first sweeps are at the start, and then each second.
    tokio::time::sleep(SECOND / 2).await;
    for _ in 0..2 {
        let lost = waiting("ann", Timestamp::UNIX_EPOCH + 1.hour());
        ledger.request_approval(lost.clone()).await.unwrap();
        let state = async || {
            let found = ledger.find_approval(lost.invocation).await;
            found.unwrap().unwrap().state
        };
        tokio::time::sleep(SECOND * 28).await;
        assert_eq!(state().await, ApprovalState::Waiting);
        tokio::time::sleep(SECOND * 2).await;
        assert_eq!(state().await, ApprovalState::Expired);
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_is_answered_as_soon_as_its_call_has_run() {
    let (registry, ledger, runs) = paying();
    let request = tokio::spawn({
        let registry = registry.clone();
        async move { call(&registry, "pay", None).await }
    });
    tokio::time::sleep(SECOND * 3 / 2).await;
    let query = ApprovalQuery {
        limit: 1,
        ..ApprovalQuery::default()
    };
    let id = ledger.list_approvals(&query).await.unwrap()[0].invocation;
    let decided = Instant::now();
    registry.decide(id, approve()).await.unwrap();
    assert_eq!(request.await.unwrap().unwrap().result.as_text(), "paid");
    assert!(decided.elapsed() < SECOND / 10);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn approval_stays_open_until_the_end_of_its_call_is_committed() {
    let (registry, ledger, runs) = paying();
    let id = call(&registry, "pay", None).await.unwrap().invocation;
    ledger.set_fault(ReservationFault::EndsFail);
    let outcome = registry.decide_and_run(id, approve()).await.unwrap();
    let error = outcome.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LedgerUnavailable);
    let is_done = async || ledger.find_approval(id).await.unwrap().unwrap().done;
    tokio::time::sleep(SECOND * 3).await;
    assert!(!is_done().await);
    // The row comes later.
    ledger.set_fault(ReservationFault::None);
    let mut row = ledger.get(id).await.unwrap().unwrap().row;
    row.state = State::Succeeded;
    ledger.settle(Arc::new(row), vec![]).await.unwrap();
    tokio::time::sleep(SECOND * 3).await;
    assert!(is_done().await);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn call_that_is_cancelled_while_it_is_stored_waits_no_longer() {
    let (registry, ledger, runs) = paying();
    ledger.delay_requests(SECOND);
    let request = tokio::spawn({
        let registry = registry.clone();
        async move { call(&registry, "pay", None).await }
    });
    tokio::time::sleep(SECOND / 2).await;
    let query = ApprovalQuery {
        limit: 1,
        ..ApprovalQuery::default()
    };
    let id = ledger.list_approvals(&query).await.unwrap()[0].invocation;
    assert!(registry.shared().in_flight_calls.cancel(id).is_some());
    let error = request.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let approval = ledger.find_approval(id).await.unwrap().unwrap();
    assert_eq!(
        (approval.state, approval.done),
        (ApprovalState::Withdrawn, true)
    );
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn processes_have_different_names() {
    let ledger = MemoryLedger::default();
    let (one, other) = (WaitingCalls::default(), WaitingCalls::default());
    let name = one.process(&ledger);
    assert!(!name.is_empty());
    assert_eq!(name, one.clone().process(&ledger));
    assert_ne!(name, other.process(&ledger));
}

#[tokio::test(start_paused = true)]
async fn request_waits_no_longer_for_a_call_elsewhere_than_for_a_decision() {
    for is_closed in [false, true] {
        let (registry, ledger, runs) = paying();
        ledger.set_living(&["other"]);
        let request = tokio::spawn({
            let registry = registry.clone();
            async move { call(&registry, "pay", None).await }
        });
        tokio::time::sleep(SECOND / 2).await;
        let query = ApprovalQuery {
            limit: 1,
            ..ApprovalQuery::default()
        };
        let id = ledger.list_approvals(&query).await.unwrap()[0].invocation;
        let (from, to) = (ApprovalState::Waiting, ApprovalState::Approved);
        let change = ApprovalChange::new(id, from, to, "other".into());
        assert!(ledger.change_approval(change).await.unwrap());
        tokio::time::sleep(SECOND * 2).await;
        let began = Instant::now();
        if is_closed {
            registry.shared().in_flight_calls.close();
        }
        let answer = tokio::time::timeout(SECOND * 60, request).await;
        assert!(answer.unwrap().unwrap().unwrap().waiting);
        assert_eq!(began.elapsed() < SECOND, is_closed);
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    }
}
