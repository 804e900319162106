//! The files of a ledger whose process was killed, after damage. The ledger refuses to open, or it
//! has every acknowledged row, or it says that a row is damaged.

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use toolcrib::call::{Caller, Effect, Invocation, ToolName};
use toolcrib::ledger::{Error, Ledger, Query, Row, Settings, State, open};

const FILES: [&str; 3] = ["test.db", "test.db-wal", "test.db.head"];
const ROWS: usize = 12;

#[derive(Debug, Arbitrary)]
pub(crate) enum Damage {
    Flip {
        file: u8,
        at: u32,
        bits: u8,
    },
    Overwrite {
        file: u8,
        at: u32,
        bytes: Vec<u8>,
    },
    Copy {
        file: u8,
        from: u32,
        to: u32,
        length: u16,
    },
    Cut {
        file: u8,
        length: u32,
    },
    Remove {
        file: u8,
    },
}

struct Killed {
    files: [Vec<u8>; 3],
    rows: Vec<Arc<Row>>,
}

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().unwrap());
static KILLED: LazyLock<Killed> = LazyLock::new(|| RUNTIME.block_on(make_killed()));

fn now() -> Timestamp {
    "2026-06-15T12:00:30Z".parse().unwrap()
}

fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => TempDir::new_in(memory),
        false => TempDir::new(),
    }
    .unwrap()
}

fn settings(folder: &Path) -> Settings {
    Settings {
        url: "test.db".into(),
        base: folder.to_owned(),
        durability: Default::default(),
        when_down: Default::default(),
        retention: None,
        max_bytes: None,
        accept_loss: false,
    }
}

async fn make_killed() -> Killed {
    let folder = folder();
    let ledger = open(&settings(folder.path()), now()).await.unwrap();
    let mut rows = Vec::new();
    for number in 0..ROWS {
        let (tool, caller) = (ToolName::parse("t").unwrap(), Arc::new(Caller::anonymous()));
        let arguments = json!({"number": number}).as_object().unwrap().clone();
        let invocation = Invocation::new(tool, arguments, caller, now());
        let row = Arc::new(Row {
            duration_us: Some(1500),
            attempts: 1,
            result: Some(format!(r#"{{"content":[{{"type":"text","text":"{number}"}}]}}"#).into()),
            meta: Some("{}".into()),
            ..Row::from_invocation(&invocation, Effect::Write, State::Succeeded)
        });
        ledger.record(row.clone()).await.unwrap();
        rows.push(row);
    }
    let files = FILES.map(|name| fs::read(folder.path().join(name)).unwrap());
    ledger.close().await;
    Killed { files, rows }
}

/// The place in a file of this length.
fn place(at: u32, length: usize) -> usize {
    at as usize % length.max(1)
}

/// Whether a loss can be noticed: the head file is as it was, and the database is still there.
fn is_noticeable(files: &[Option<Vec<u8>>; 3]) -> bool {
    let is_there = files[0]
        .as_ref()
        .is_some_and(|database| !database.is_empty());
    is_there && files[2].as_ref() == Some(&KILLED.files[2])
}

pub(crate) fn check(damages: Vec<Damage>) {
    let mut files = KILLED.files.clone().map(Some);
    for damage in damages.into_iter().take(8) {
        let (Damage::Flip { file, .. }
        | Damage::Overwrite { file, .. }
        | Damage::Copy { file, .. }
        | Damage::Cut { file, .. }
        | Damage::Remove { file }) = damage;
        let slot = &mut files[usize::from(file) % 3];
        let Some(bytes) = slot else { continue };
        let length = bytes.len();
        match damage {
            Damage::Flip { at, bits, .. } if length > 0 => bytes[place(at, length)] ^= bits,
            Damage::Overwrite { at, bytes: new, .. } => {
                let at = place(at, length);
                let end = (at + new.len()).min(length);
                bytes[at..end].copy_from_slice(&new[..end - at]);
            }
            Damage::Copy {
                from,
                to,
                length: part,
                ..
            } => {
                let (from, to) = (place(from, length), place(to, length));
                let end = from + usize::from(part).min(length - from).min(length - to);
                bytes.copy_within(from..end, to);
            }
            Damage::Cut { length: kept, .. } => bytes.truncate(place(kept, length)),
            Damage::Remove { .. } => *slot = None,
            Damage::Flip { .. } => {}
        }
    }
    RUNTIME.block_on(recover(&files));
}

async fn recover(files: &[Option<Vec<u8>>; 3]) {
    let folder = folder();
    for (name, bytes) in FILES.iter().zip(files) {
        if let Some(bytes) = bytes {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
    }
    let ledger = match open(&settings(folder.path()), now()).await {
        Ok(ledger) => ledger,
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("test.db"), "{message}");
            return;
        }
    };
    check_rows(&*ledger, is_noticeable(files)).await;
    ledger.close().await;
}

async fn check_rows(ledger: &dyn Ledger, is_noticeable: bool) {
    let listed = ledger
        .list_calls(&Query {
            limit: 500,
            ..Query::default()
        })
        .await;
    for row in &KILLED.rows {
        match ledger.get(row.id).await {
            Ok(Some(found)) => {
                let found = found.row;
                assert_eq!((found.state, &found.result), (row.state, &row.result));
                assert_eq!((&found.arguments, &found.meta), (&row.arguments, &row.meta));
                if let (Ok(listed), true) = (&listed, is_noticeable) {
                    assert!(
                        listed.iter().any(|other| other.id == row.id),
                        "a row is in no list"
                    );
                }
            }
            Ok(None) => assert!(!is_noticeable, "an acknowledged row is lost: {:?}", row.id),
            Err(Error::DamagedRow(id)) => assert_eq!(id, row.id),
            Err(other) => assert!(!other.to_string().is_empty()),
        }
    }
}
