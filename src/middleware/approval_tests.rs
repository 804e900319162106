//! Tests of many waiting calls.

use jiff::ToSpan;

use super::*;
use crate::call::{ApprovalPolicy, InvocationId};
use crate::ledger::{ApprovalRow, ApprovalState};

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
    tool.policy.approval = Some(ApprovalPolicy {
        when: None,
        by: Vec::new(),
        wait: ApprovalPolicy::DEFAULT_WAIT,
        expires: ApprovalPolicy::DEFAULT_EXPIRES,
        message: None,
    });
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
