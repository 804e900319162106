//! Tests of many waiting calls.

use jiff::ToSpan;

use super::*;
use crate::approval::deciding::{Decision, Verdict};
use crate::call::{ApprovalPolicy, InvocationId};
use crate::ledger::memory::ReservationFault;
use crate::ledger::{ApprovalQuery, ApprovalRow, ApprovalState};

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
    assert_eq!(found.unwrap().unwrap().state, ApprovalState::Expired);
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
