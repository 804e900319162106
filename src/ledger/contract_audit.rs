//! The record of administration, on every engine that keeps it.

use std::sync::Arc;

use jiff::ToSpan;
use serde_json::Value;
use tempfile::TempDir;

use super::contract::sqlite::settings;
use super::contract::{approval, now};
use super::sql::Sql;
use super::test_server::TestServer;
use super::*;
use crate::audit::{self, Action, Entry, Fault, NewEntry, Verdict, first_hash};

/// Where the ledgers of a test are.
enum Place {
    File(TempDir),
    Server(Arc<TestServer>),
}

impl Place {
    /// The settings of a new ledger.
    async fn settings(&self, name: &str) -> Settings {
        let url = match self {
            Self::File(folder) => folder.path().join(name).display().to_string(),
            Self::Server(server) => server.create_ledger_database().await,
        };
        Settings { url, ..settings() }
    }

    async fn open(&self, name: &str) -> Arc<dyn Ledger> {
        open(&self.settings(name).await, now()).await.unwrap()
    }
}

fn entry(action: Action, subject: &str) -> NewEntry {
    NewEntry::new(now(), "root", action, Some(subject))
}

async fn append(ledger: &dyn Ledger, count: usize) {
    for number in 0..count {
        let at = now() + i64::try_from(number).unwrap().seconds();
        let entry = NewEntry::new(at, "root", Action::CachePurged, Some("t"));
        let entry = entry.with("text", "it's \"quoted\" ☃").with("n", number);
        ledger.append_audit(entry).await.unwrap();
    }
}

async fn edit(ledger: &dyn Ledger, sql: &str) -> u64 {
    ledger
        .store()
        .change(Sql::new(sql), None, None)
        .await
        .unwrap()
}

async fn verify(ledger: &dyn Ledger) -> Verdict {
    audit::verify(&all(ledger).await, None)
}

async fn verify_with(ledger: &dyn Ledger, expected: &Option<String>) -> Verdict {
    audit::verify(&all(ledger).await, expected.as_deref())
}

/// The entries, the oldest first.
async fn all(ledger: &dyn Ledger) -> Vec<Entry> {
    let query = AuditQuery {
        limit: 1000,
        ..AuditQuery::default()
    };
    let mut entries = ledger.list_audit(&query).await.unwrap();
    entries.reverse();
    entries
}

/// Action and subject of each entry.
async fn told(ledger: &dyn Ledger) -> Vec<(String, String)> {
    let entries = all(ledger).await.into_iter();
    let pair = |entry: Entry| (entry.action, entry.subject.unwrap_or_default());
    entries.map(pair).collect()
}

async fn each_hash_covers_the_one_before(place: Place) {
    let ledger = place.open("a.db").await;
    let empty = verify(&*ledger).await;
    assert_eq!(
        (empty.valid, empty.entries, empty.last_hash),
        (true, 0, Some(first_hash()))
    );
    append(&*ledger, 3).await;
    let entries = all(&*ledger).await;
    let mut last = first_hash();
    for (entry, seq) in entries.iter().zip(1..) {
        assert_eq!((entry.seq, &entry.hash), (seq, &entry.hash_after(&last)));
        last.clone_from(&entry.hash);
    }
    assert_eq!(&*entries[1].actor, "root");
    let detail: Value = serde_json::from_str(entries[1].detail.get()).unwrap();
    assert_eq!(
        detail,
        serde_json::json!({"n": 1, "text": "it's \"quoted\" ☃"})
    );
    let verdict = verify(&*ledger).await;
    assert_eq!(
        (verdict.valid, verdict.entries, verdict.last_hash),
        (true, 3, Some(last))
    );
}

async fn entries_are_filtered_and_paged(place: Place) {
    let ledger = place.open("a.db").await;
    append(&*ledger, 3).await;
    let other = NewEntry::new(now() + 1.hour(), "ann", Action::ToolDisabled, Some("u"));
    ledger.append_audit(other).await.unwrap();
    let found = async |query: AuditQuery| {
        let query = AuditQuery {
            limit: query.limit.max(2),
            ..query
        };
        let entries = ledger.list_audit(&query).await.unwrap();
        entries.iter().map(|entry| entry.seq).collect::<Vec<_>>()
    };
    let any = AuditQuery::default;
    assert_eq!(found(any()).await, [4, 3]);
    assert_eq!(
        found(AuditQuery {
            before: Some(3),
            ..any()
        })
        .await,
        [2, 1]
    );
    assert_eq!(
        found(AuditQuery {
            actor: Some("ann".into()),
            ..any()
        })
        .await,
        [4]
    );
    assert_eq!(
        found(AuditQuery {
            subject: Some("t".into()),
            ..any()
        })
        .await,
        [3, 2]
    );
    assert_eq!(
        found(AuditQuery {
            action: Some(Action::ToolDisabled),
            ..any()
        })
        .await,
        [4]
    );
    let since = Some(now() + 2.seconds());
    assert_eq!(found(AuditQuery { since, ..any() }).await, [4, 3]);
    assert_eq!(
        found(AuditQuery {
            until: since,
            limit: 9,
            ..any()
        })
        .await,
        [2, 1]
    );
}

async fn actions_are_recorded_with_their_changes(place: Place) {
    let ledger = place.open("a.db").await;
    let switch = Switch {
        tool: "t".into(),
        enabled: false,
    };
    let disabled = entry(Action::ToolDisabled, "t");
    ledger.set_switch(switch, Some(disabled)).await.unwrap();
    let purged = NewEntry::new(now(), "root", Action::CachePurged, None);
    ledger.purge_results(None, Some(purged)).await.unwrap();
    let reset = Some(entry(Action::LimitsReset, "t"));
    ledger.reset_counters("t", None, reset).await.unwrap();
    let tool = RegisteredTool {
        name: "r".into(),
        definition: "{}".into(),
        registered_by: "ann".into(),
        registered_at: now(),
    };
    ledger.register_tool(tool).await.unwrap();
    for is_there in [true, false] {
        let removed = Some(entry(Action::ToolUnregistered, "r"));
        assert_eq!(
            ledger.unregister_tool("r", removed).await.unwrap(),
            is_there
        );
    }
    let waiting = approval("t", "a", None);
    let id = waiting.invocation;
    ledger.request_approval(waiting).await.unwrap();
    for is_first in [true, false] {
        let (from, to) = (ApprovalState::Waiting, ApprovalState::Denied);
        let change = ApprovalChange {
            entry: Some(entry(Action::CallDenied, &id.to_string())),
            ..ApprovalChange::new(id, from, to, "one".into())
        };
        assert_eq!(ledger.change_approval(change).await.unwrap(), is_first);
    }
    let id = id.to_string();
    let told = told(&*ledger).await;
    let told: Vec<_> = told
        .iter()
        .map(|(action, subject)| (&**action, &**subject))
        .collect();
    let expected = [
        ("tool_disabled", "t"),
        ("cache_purged", ""),
        ("limits_reset", "t"),
        ("tool_registered", "r"),
        ("tool_unregistered", "r"),
        ("call_denied", &*id),
    ];
    assert_eq!(told, expected);
    assert!(verify(&*ledger).await.valid);
}

async fn an_action_whose_entry_fails_does_not_happen(place: Place) {
    let ledger = place.open("a.db").await;
    edit(&*ledger, "alter table audit rename to gone").await;
    let switch = Switch {
        tool: "t".into(),
        enabled: false,
    };
    let disabled = Some(entry(Action::ToolDisabled, "t"));
    assert!(ledger.set_switch(switch, disabled).await.is_err());
    assert!(ledger.list_switches().await.unwrap().is_empty());
    let reset = Some(entry(Action::LimitsReset, "t"));
    assert!(ledger.reset_counters("t", None, reset).await.is_err());
    edit(&*ledger, "alter table gone rename to audit").await;
    assert!(told(&*ledger).await.is_empty());
}

async fn what_is_noted_once_is_not_repeated(place: Place) {
    let ledger = place.open("a.db").await;
    let used = |key: &str| entry(Action::KeyFirstUsed, "ann").with("key", key);
    let pinned = |hash: &str| entry(Action::ServerPinned, "s").with("sha256", hash);
    for key in ["1", "1", "2"] {
        ledger.append_audit(used(key)).await.unwrap();
    }
    for hash in ["a", "a", "b", "a"] {
        ledger.append_audit(pinned(hash)).await.unwrap();
    }
    let details: Vec<_> = all(&*ledger)
        .await
        .iter()
        .map(|one| one.detail.to_string())
        .collect();
    let [a, b] = [r#"{"sha256":"a"}"#, r#"{"sha256":"b"}"#];
    assert_eq!(details, [r#"{"key":"1"}"#, r#"{"key":"2"}"#, a, b, a]);
}

/// Each change of a chain with nine entries, with what is found, and where.
const CHANGES: [(&str, Fault, u64); 17] = [
    (
        "update audit set at = at + 1 where seq = 5",
        Fault::Edited,
        5,
    ),
    (
        "update audit set actor = 'ann' where seq = 5",
        Fault::Edited,
        5,
    ),
    (
        "update audit set action = 'tool_enabled' where seq = 5",
        Fault::Edited,
        5,
    ),
    (
        "update audit set subject = 'u' where seq = 5",
        Fault::Edited,
        5,
    ),
    (
        "update audit set subject = null where seq = 5",
        Fault::Edited,
        5,
    ),
    (
        "update audit set detail = '{}' where seq = 5",
        Fault::Edited,
        5,
    ),
    (
        "update audit set detail = 'no JSON' where seq = 5",
        Fault::Edited,
        5,
    ),
    (
        "update audit set hash = 'x' where seq = 5",
        Fault::Edited,
        5,
    ),
    // Whoever edits an entry with its hash must edit all that follow.
    (
        "update audit set hash = (select hash from audit where seq = 4) where seq = 9",
        Fault::Edited,
        9,
    ),
    ("delete from audit where seq = 1", Fault::Deleted, 1),
    ("delete from audit where seq = 5", Fault::Deleted, 5),
    (
        "delete from audit where seq between 3 and 7",
        Fault::Deleted,
        3,
    ),
    (
        "update audit set seq = 10 where seq = 5",
        Fault::Reordered,
        5,
    ),
    (
        "update audit set seq = case seq when 5 then -6 else -5 end where seq in (5, 6); SWAP",
        Fault::Reordered,
        5,
    ),
    (
        "update audit set seq = case seq when 2 then -8 else -2 end where seq in (2, 8); SWAP",
        Fault::Reordered,
        2,
    ),
    // The contents change places, and the hashes stay.
    (
        "update audit set at = other.at, detail = other.detail from (select seq, at, detail from audit) as other \
         where other.seq = 11 - audit.seq and audit.seq in (5, 6)",
        Fault::Reordered,
        5,
    ),
    (
        "update audit set seq = seq + 100 where seq > 4; RENUMBER",
        Fault::Edited,
        5,
    ),
];

async fn changed_entries_are_found(place: Place) {
    for (number, (change, fault, seq)) in CHANGES.into_iter().enumerate() {
        let ledger = place.open(&format!("{number}.db")).await;
        append(&*ledger, 9).await;
        let first = change.split("; ").next().unwrap();
        assert!(edit(&*ledger, first).await > 0, "{change}");
        match change.split("; ").nth(1) {
            Some("SWAP") => drop(edit(&*ledger, "update audit set seq = -seq where seq < 0").await),
            // An entry is deleted, and the others are numbered anew.
            Some("RENUMBER") => {
                edit(&*ledger, "delete from audit where seq = 105").await;
                edit(&*ledger, "update audit set seq = seq - 101 where seq > 100").await;
            }
            _ => {}
        }
        let verdict = verify(&*ledger).await;
        let broken = verdict.broken.expect(change);
        assert_eq!((broken.fault, broken.seq), (fault, seq), "{change}");
        assert_eq!(
            (verdict.valid, verdict.last_hash),
            (false, None),
            "{change}"
        );
        ledger.close().await;
    }
}

async fn a_cut_end_shows_if_its_hash_is_known(place: Place) {
    let ledger = place.open("a.db").await;
    append(&*ledger, 3).await;
    let known = verify(&*ledger).await.last_hash;
    append(&*ledger, 2).await;
    let later = verify(&*ledger).await.last_hash;
    for expected in [&known, &later] {
        assert!(verify_with(&*ledger, expected).await.valid);
    }
    edit(&*ledger, "delete from audit where seq > 3").await;
    let verdict = verify(&*ledger).await;
    assert!(verdict.valid, "the chain alone does not show it");
    assert!(verify_with(&*ledger, &known).await.valid);
    let verdict = verify_with(&*ledger, &later).await;
    assert_eq!(
        verdict.broken.map(|one| (one.fault, one.seq)),
        Some((Fault::CutOff, 4))
    );
    edit(&*ledger, "delete from audit").await;
    let verdict = verify_with(&*ledger, &known).await;
    assert_eq!(
        verdict.broken.map(|one| (one.fault, one.seq)),
        Some((Fault::CutOff, 1))
    );
}

async fn processes_append_to_one_chain(place: Place) {
    let settings = place.settings("a.db").await;
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(open(&settings, now()).await.unwrap());
    }
    let appending = processes.iter().cloned().map(|ledger| {
        tokio::spawn(async move {
            for number in 0..20 {
                let switch = Switch {
                    tool: format!("t{number}"),
                    enabled: true,
                };
                let enabled = entry(Action::ToolEnabled, &switch.tool);
                ledger.set_switch(switch, Some(enabled)).await.unwrap();
                let used = entry(Action::KeyFirstUsed, "ann").with("key", "1");
                ledger.append_audit(used).await.unwrap();
            }
        })
    });
    for task in appending.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let verdict = verify(&*processes[0]).await;
    // The first use is noted by one of the three.
    assert_eq!((verdict.broken, verdict.entries), (None, 61));
    for ledger in processes {
        ledger.close().await;
    }
}

async fn imported_entries_continue_the_chain(place: Place) {
    let (source, target) = (place.open("a.db").await, place.open("b.db").await);
    append(&*source, 5).await;
    let entries = all(&*source).await;
    let first_three = entries[..3].to_vec();
    assert_eq!(target.import_audit(first_three).await.unwrap(), 3);
    assert_eq!(target.import_audit(entries.clone()).await.unwrap(), 2);
    assert_eq!(target.import_audit(entries[1..].to_vec()).await.unwrap(), 0);
    assert_eq!(verify(&*target).await, verify(&*source).await);
    let own = entry(Action::CachePurged, "own");
    target.append_audit(own).await.unwrap();
    assert!(verify(&*target).await.valid);

    // What does not fit is refused as a whole.
    append(&*source, 2).await;
    let diverged = all(&*source).await;
    let mut edited = diverged.clone();
    edited[6].actor = "ann".into();
    let fresh = place.open("c.db").await;
    for (ledger, misfit, seq) in [
        (&target, diverged, 6),
        (&fresh, edited, 7),
        (&fresh, entries[1..].to_vec(), 2),
    ] {
        let before = verify(&**ledger).await;
        let error = ledger.import_audit(misfit).await.unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("entry {seq} ")),
            "{error}"
        );
        assert_eq!(verify(&**ledger).await, before);
    }
}

async fn retention_keeps_entries(place: Place) {
    let ledger = place.open("a.db").await;
    append(&*ledger, 3).await;
    let later = now() + 10_000.hours();
    ledger.prune(later, later, 1000).await.unwrap();
    ledger.trim(later, 1000).await.unwrap();
    assert_eq!(verify(&*ledger).await.entries, 3);
}

macro_rules! contract {
    ($place:expr, $($test:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            if let Some(place) = $place {
                super::$test(place).await;
            }
        })*
    };
    ($place:expr) => {
        contract!($place, each_hash_covers_the_one_before, entries_are_filtered_and_paged, actions_are_recorded_with_their_changes,
            an_action_whose_entry_fails_does_not_happen, what_is_noted_once_is_not_repeated, changed_entries_are_found,
            a_cut_end_shows_if_its_hash_is_known, processes_append_to_one_chain, imported_entries_continue_the_chain,
            retention_keeps_entries);
    };
}

mod sqlite {
    contract!(Some(super::Place::File(tempfile::tempdir().unwrap())));
}

mod postgres {
    contract!(super::TestServer::shared().map(super::Place::Server));
}
