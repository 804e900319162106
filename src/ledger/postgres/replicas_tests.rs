//! Tests: what replicas know of each other.

use super::*;
use crate::call::ErrorKind;

#[tokio::test]
async fn changes_reach_other_replicas() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let (first, second) = (fixture.replica().await, fixture.replica().await);
    let mut own = first.watch_shared_changes().unwrap();
    let mut other = second.watch_shared_changes().unwrap();
    let switch = Switch {
        tool: "t".into(),
        enabled: false,
    };
    first.set_switch(switch, None).await.unwrap();
    assert_eq!(other.recv().await.unwrap(), SharedChange::Tools);
    first.purge_results(Some("t"), None).await.unwrap();
    let purged = SharedChange::Purged(Some("t".into()));
    assert_eq!(other.recv().await.unwrap(), purged);
    let call = InvocationId::new();
    first.request_cancel(call, Some("a")).await.unwrap();
    let caller = Some("a".into());
    let cancel = SharedChange::Cancel { call, caller };
    assert_eq!(other.recv().await.unwrap(), cancel);
    assert!(own.try_recv().is_err(), "a replica knows its own changes");
    // A change whose notification is lost.
    fixture
        .run("insert into announcement (sender, change) values (gen_random_uuid(), '\"tools\"')")
        .await;
    assert_eq!(other.recv().await.unwrap(), SharedChange::Tools);
}

#[tokio::test]
async fn new_replica_is_not_told_of_changes_before_its_start() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let first = fixture.replica().await;
    let switch = Switch {
        tool: "t".into(),
        enabled: false,
    };
    first.set_switch(switch, None).await.unwrap();
    let second = fixture.replica().await;
    let mut changes = second.watch_shared_changes().unwrap();
    first.purge_results(Some("t"), None).await.unwrap();
    let purged = SharedChange::Purged(Some("t".into()));
    assert_eq!(changes.recv().await.unwrap(), purged);
}

#[tokio::test]
async fn replicas_are_listed() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let (first, second) = (fixture.replica().await, fixture.replica().await);
    let listed = first.replicas().await.unwrap();
    let ids: Vec<_> = listed.iter().map(|row| row.replica.clone()).collect();
    assert_eq!(ids, [first.replica().unwrap(), second.replica().unwrap()]);
    assert_eq!(first.living_processes().await.unwrap(), ids);
    let call = row("t", "a", now());
    second.reserve(call.clone(), vec![]).await.unwrap();
    let found = first.get(call.id).await.unwrap().unwrap().row;
    assert_eq!(found.replica, second.replica());
    second.close().await;
    assert_eq!(first.replicas().await.unwrap().len(), 1);
}

#[tokio::test]
async fn running_calls_are_shown_to_other_replicas() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let (here, there) = (fixture.replica().await, fixture.replica().await);
    let call = || {
        Arc::new(Row {
            state: State::Running,
            ..row("t", "a", now())
        })
    };
    let (first, second) = (call(), call());
    here.show_running(&[first.id, second.id], &[first.clone(), second.clone()])
        .await
        .unwrap();
    let all = Query {
        limit: 10,
        ..Query::default()
    };
    let seen = async |query: &Query| {
        let rows = there.list_running_elsewhere(query).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(seen(&all).await, [second.id, first.id]);
    let own = here.list_running_elsewhere(&all).await.unwrap();
    assert_eq!(own.len(), 0, "its own table knows more");
    let found = there.find_running_elsewhere(first.id).await.unwrap();
    let found = found.unwrap();
    assert_eq!(
        (found.state, found.replica),
        (State::Running, here.replica())
    );
    assert_eq!(
        (found.arguments, found.run_id),
        (first.arguments.clone(), first.run_id.clone())
    );

    let of = |caller: &str, state| Query {
        caller: Some(caller.into()),
        states: vec![state],
        ..all.clone()
    };
    assert_eq!(seen(&of("a", State::Running)).await.len(), 2);
    assert_eq!(seen(&of("b", State::Running)).await.len(), 0);
    assert_eq!(seen(&of("a", State::Reserved)).await.len(), 0);
    let failed = Query {
        kind: Some(ErrorKind::UpstreamFailed),
        ..all.clone()
    };
    assert_eq!(seen(&failed).await.len(), 0);

    // A call with a row is in the ledger, even if its replica still shows it.
    here.record(ended_row(&first, State::Succeeded))
        .await
        .unwrap();
    assert_eq!(seen(&all).await, [second.id]);
    here.show_running(&[second.id], std::slice::from_ref(&second))
        .await
        .unwrap();
    assert_eq!(fixture.number("select count(*) from running_call").await, 1);

    // The calls of a replica that has ended are gone.
    here.close().await;
    assert_eq!(seen(&all).await, []);
    there.show_running(&[], &[]).await.unwrap();
    assert_eq!(fixture.number("select count(*) from running_call").await, 0);
}

#[tokio::test]
async fn replicas_are_told_the_last_answered_calls() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let (here, there) = (fixture.replica().await, fixture.replica().await);
    let (mut own, mut received) = (
        here.watch_answered().unwrap(),
        there.watch_answered().unwrap(),
    );
    let calls: Vec<AnsweredCall> = (0..200)
        .map(|n| AnsweredCall {
            run: [n; 32],
            call: [1; 32],
            invocation: InvocationId::new(),
            age: Duration::from_millis(n.into()),
        })
        .collect();
    // The listener may connect after the first message.
    let found = loop {
        here.tell_answered(&calls).await.unwrap();
        let wait = tokio::time::timeout(Duration::from_millis(100), received.recv());
        if let Ok(found) = wait.await {
            break found.unwrap();
        }
    };
    let mut found = found;
    while found.len() < calls.len() {
        found.extend(received.recv().await.unwrap());
    }
    assert_eq!(found[..calls.len()], calls[..]);
    assert!(own.try_recv().is_err(), "a replica knows its own calls");
}

#[tokio::test]
async fn replica_settles_the_calls_of_one_that_has_crashed() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let crashed = fixture.replica().await;
    let call = row("t", "a", now());
    crashed.reserve(call.clone(), vec![]).await.unwrap();
    fixture.cut_writers().await;
    drop(crashed);
    fixture.age_replicas(11).await;
    let ledger = fixture.replica().await;
    let own = row("t", "a", now());
    ledger.reserve(own.clone(), vec![]).await.unwrap();
    let state = async |id| ledger.get(id).await.unwrap().unwrap().row.state;
    while state(call.id).await == State::Reserved {}
    assert_eq!(state(call.id).await, State::Unknown);
    assert_eq!(state(own.id).await, State::Reserved);
}

#[tokio::test]
async fn idle_replica_shows_once_a_second_that_it_lives() {
    let Some(mut fixture) = Fixture::new().await else {
        return;
    };
    let _ledger = fixture.replica().await;
    let commits = "select last_batch from replica";
    let (began, before) = (Instant::now(), fixture.number(commits).await);
    while fixture.number(commits).await < before + 2 {}
    // The first of them may have come at once.
    assert!(began.elapsed() >= Duration::from_millis(900));
}
