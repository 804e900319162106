//! Detects lost commits: a small file beside the database holds the ledger's id and the number of
//! its commits.
//!
//! SQLite takes the first frame of its write-ahead log with a wrong checksum for the end of the
//! log. That is correct for a log that a crash has cut off. It is wrong for a log with a flipped
//! bit: SQLite then silently drops all commits after that frame. So every commit also counts itself
//! in the database, and the number is written to the head file before any reply. The file may lag
//! behind (after a killed process, or with a second process), but is never ahead of the commits.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::{Row, SqliteConnection};

use super::super::Error;

/// Makes a copy a ledger of its own with a new id. Otherwise later commits of the original would
/// seem to be missing in the copy.
pub(super) const RESET_MARKER: &str = "update ledger_head set id = randomblob(16), commits = 0";

/// Part of every transaction for which a caller may wait. With `returning`, SQLite would open and close
/// two temporary tables.
pub(super) const COUNT_COMMIT: &str = "update ledger_head set commits = commits + 1 where one = 1";
/// The number of commits, after [`COUNT_COMMIT`].
pub(super) const READ_COMMITS: &str = "select commits from ledger_head where one = 1";

/// Counts and commits the transaction of a connection of sqlx. Returns the number of commits.
pub(super) async fn commit(connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    sqlx::query(COUNT_COMMIT).execute(&mut *connection).await?;
    let commits = sqlx::query_scalar::<_, i64>(READ_COMMITS);
    let commits = commits.fetch_one(&mut *connection).await?;
    sqlx::query("commit").execute(connection).await?;
    Ok(commits.unsigned_abs())
}

/// The id of a ledger and the number of its commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommitMarker {
    id: [u8; 16],
    commits: u64,
}

/// Length of the text, the same for all markers. So a new marker overwrites the old one completely.
const TEXT_LENGTH: usize = 103;

impl CommitMarker {
    /// The marker in the database; `None` before its table exists.
    pub(super) async fn read_from(
        connection: &mut SqliteConnection,
    ) -> Result<Option<Self>, sqlx::Error> {
        let table = "select 1 from sqlite_schema where name = 'ledger_head'";
        if sqlx::query(table)
            .fetch_optional(&mut *connection)
            .await?
            .is_none()
        {
            return Ok(None);
        }
        let row = sqlx::query("select id, commits from ledger_head")
            .fetch_one(connection)
            .await?;
        let (id, commits): (Vec<u8>, i64) = (row.try_get(0)?, row.try_get(1)?);
        let id = id
            .try_into()
            .map_err(|_| sqlx::Error::Decode("the ledger's id is not 16 bytes".into()))?;
        Ok(Some(Self {
            id,
            commits: commits.unsigned_abs(),
        }))
    }

    fn to_text(self) -> String {
        let text = format!(
            "toolcrib ledger head 1\nid {}\ncommits {:020}\n",
            hex::encode(self.id),
            self.commits
        );
        format!("{text}crc32 {:08x}\n", crc32fast::hash(text.as_bytes()))
    }

    fn from_text(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut lines = text.lines().skip(1);
        let id: [u8; 16] = hex::decode(lines.next()?.strip_prefix("id ")?)
            .ok()?
            .try_into()
            .ok()?;
        let commits = lines.next()?.strip_prefix("commits ")?.parse().ok()?;
        let marker = Self { id, commits };
        // Compares the complete text, including the checksum.
        (marker.to_text() == text).then_some(marker)
    }
}

/// The path of a file beside `database`.
pub(super) fn with_suffix(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The path of the head file of `database`.
pub(super) fn head_path(database: &Path) -> PathBuf {
    with_suffix(database, ".head")
}

/// The content of the head file at the start.
#[derive(Debug)]
pub(super) enum StoredMarker {
    Missing,
    Unreadable(String),
    Found(CommitMarker),
}

impl StoredMarker {
    pub(super) fn read(database: &Path) -> Self {
        match std::fs::read(head_path(database)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::Unreadable(error.to_string()),
            Ok(text) => CommitMarker::from_text(&text)
                .map_or(Self::Unreadable("it is damaged".into()), Self::Found),
        }
    }

    /// Compares the head file with the marker of the database. `marker` is `None` if the database
    /// is empty, or older than head files. Logs what is unusual, and refuses a ledger that has lost
    /// commits, unless `accept_loss` is set.
    pub(super) fn check(
        &self,
        marker: Option<CommitMarker>,
        is_empty: bool,
        database: &Path,
        accept_loss: bool,
    ) -> Result<(), Error> {
        let (ledger, head) = (database.display(), head_path(database));
        let head = head.display();
        match (self, marker) {
            (Self::Found(head), Some(marker))
                if head.id == marker.id && head.commits > marker.commits =>
            {
                let missing = head.commits - marker.commits;
                if !accept_loss {
                    return Err(Error::MissingCommits {
                        place: ledger.to_string(),
                        commits: missing,
                    });
                }
                tracing::warn!(%ledger, missing, "acknowledged commits are missing, and --accept-loss permits that");
            }
            (Self::Found(head), Some(marker)) if head.id == marker.id => {}
            (Self::Found(_), _) if is_empty => tracing::warn!(
                %ledger, %head, "the ledger that was here is gone: a new ledger is created"
            ),
            (Self::Found(_), _) => tracing::warn!(
                %ledger, %head, "the file is not the ledger that was here before: it was restored or replaced"
            ),
            (Self::Unreadable(reason), _) => tracing::warn!(
                %head, %reason, "the head file of the ledger cannot be read: commits that were lost before now cannot be detected"
            ),
            (Self::Missing, Some(marker)) if marker.commits > 0 => tracing::warn!(
                %head, "the head file of the ledger is missing: commits that were lost before now cannot be detected"
            ),
            (Self::Missing, _) => {
                tracing::debug!(%ledger, "no head file: the ledger is new, a copy, or from an older release");
            }
        }
        Ok(())
    }
}

/// The head file, open for writing.
pub(super) struct HeadFile {
    path: PathBuf,
    /// `None` if the file could not be opened. The ledger works without it.
    file: Option<Arc<File>>,
    marker: CommitMarker,
    is_failing: bool,
}

impl HeadFile {
    /// Opens or creates the file, and writes the marker.
    pub(super) fn open(database: &Path, marker: CommitMarker) -> Self {
        Self::open_at(head_path(database), marker)
    }

    fn open_at(path: PathBuf, marker: CommitMarker) -> Self {
        let open = || {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            file.set_len(TEXT_LENGTH as u64)?;
            // Syncs the folder, so that the file's name survives a power cut.
            std::path::absolute(&path)?
                .parent()
                .map_or(Ok(()), |at| File::open(at)?.sync_all())?;
            Ok(file)
        };
        let file: io::Result<File> = open();
        let mut head = Self {
            file: None,
            marker,
            is_failing: false,
            path: path.clone(),
        };
        match file {
            Ok(file) => head.file = Some(Arc::new(file)),
            Err(error) => head.warn_once(&error),
        }
        head.record_commits(marker.commits);
        head
    }

    /// Writes the number of commits, before any caller gets a reply. The page cache is enough,
    /// because it outlives the process. After a power cut the file may lag behind.
    pub(super) fn record_commits(&mut self, commits: u64) {
        self.marker.commits = commits;
        let Some(file) = &self.file else { return };
        match file.write_all_at(self.marker.to_text().as_bytes(), 0) {
            Ok(()) => self.is_failing = false,
            // The database itself works. Only the detection of lost commits is missing.
            Err(error) => self.warn_once(&error),
        }
    }

    /// Syncs the file to disk. A removed file is created again.
    pub(super) async fn sync(&mut self) -> io::Result<()> {
        if self.file.is_some() && !self.path.exists() {
            tracing::warn!(head = %self.path.display(), "the head file of the ledger was removed; it is created again");
            *self = Self::open_at(self.path.clone(), self.marker);
        }
        let Some(file) = self.file.clone() else {
            return Ok(());
        };
        tokio::task::spawn_blocking(move || file.sync_data())
            .await
            .map_err(io::Error::other)?
    }

    fn warn_once(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                head = %self.path.display(), %error,
                "the head file of the ledger cannot be written: the next start cannot detect commits that are lost from now on"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::captured_log::capture_log;

    #[test]
    fn marker_text_detects_every_flipped_bit() {
        for commits in [0, 1, u64::MAX] {
            let mark = CommitMarker {
                id: *b"0123456789abcdef",
                commits,
            };
            let text = mark.to_text();
            assert_eq!(
                (text.len(), CommitMarker::from_text(text.as_bytes())),
                (TEXT_LENGTH, Some(mark))
            );
            for at in 0..TEXT_LENGTH * 8 {
                let mut flipped = text.clone().into_bytes();
                flipped[at / 8] ^= 1 << (at % 8);
                assert_eq!(CommitMarker::from_text(&flipped), None, "bit {at}");
            }
            assert_eq!(
                CommitMarker::from_text(&text.as_bytes()[..TEXT_LENGTH - 1]),
                None
            );
        }
        assert_eq!(CommitMarker::from_text(b""), None);
    }

    #[test]
    fn one_lost_commit_is_detected() {
        let found = |commits| {
            StoredMarker::Found(CommitMarker {
                id: [7; 16],
                commits,
            })
        };
        let check = |head: StoredMarker, mark: CommitMarker, accept| {
            head.check(Some(mark), false, Path::new("x.db"), accept)
        };
        let mark = CommitMarker {
            id: [7; 16],
            commits: 41,
        };
        for missing in [1, 9] {
            let missed = check(found(41 + missing), mark, false);
            assert!(
                matches!(missed, Err(Error::MissingCommits { commits, .. }) if commits == missing),
                "{missed:?}"
            );
        }
        assert!(check(found(42), mark, true).is_ok());
        for commits in [0, 40, 41] {
            assert!(
                check(found(commits), mark, false).is_ok(),
                "{commits}: it may lag"
            );
        }
        assert!(
            check(
                found(42),
                CommitMarker {
                    id: [8; 16],
                    commits: 1
                },
                false
            )
            .is_ok(),
            "another ledger"
        );
    }

    #[test]
    fn unusual_head_files_are_logged() {
        let mark = |id, commits| CommitMarker {
            id: [id; 16],
            commits,
        };
        let unreadable = || StoredMarker::Unreadable("noise".into());
        for (found, mark, is_empty, warning) in [
            (
                StoredMarker::Found(mark(7, 4)),
                Some(mark(7, 4)),
                false,
                None,
            ),
            (
                StoredMarker::Found(mark(7, 4)),
                Some(mark(8, 4)),
                false,
                Some("restored or replaced"),
            ),
            (
                StoredMarker::Found(mark(7, 4)),
                None,
                false,
                Some("restored or replaced"),
            ),
            (
                StoredMarker::Found(mark(7, 4)),
                None,
                true,
                Some("a new ledger is created"),
            ),
            (
                unreadable(),
                Some(mark(7, 4)),
                false,
                Some("cannot be read"),
            ),
            (
                StoredMarker::Missing,
                Some(mark(7, 1)),
                false,
                Some("is missing"),
            ),
            (StoredMarker::Missing, Some(mark(7, 0)), false, None),
            (StoredMarker::Missing, None, true, None),
        ] {
            let log = capture_log();
            found
                .check(mark, is_empty, Path::new("x.db"), false)
                .unwrap();
            assert_eq!(
                log.count_lines("WARN"),
                usize::from(warning.is_some()),
                "{found:?} {mark:?}"
            );
            assert!(
                warning.is_none_or(|warning| log.has_line(warning)),
                "{found:?} {mark:?}"
            );
        }
    }

    #[test]
    fn unreadable_head_file_differs_from_missing() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("x.db");
        assert!(matches!(
            StoredMarker::read(&database),
            StoredMarker::Missing
        ));
        std::fs::create_dir(head_path(&database)).unwrap();
        assert!(matches!(
            StoredMarker::read(&database),
            StoredMarker::Unreadable(_)
        ));
    }

    #[test]
    fn head_file_failure_is_logged_once() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("x.db");
        let mut head = HeadFile::open(
            &database,
            CommitMarker {
                id: [7; 16],
                commits: 1,
            },
        );
        let writable = head
            .file
            .replace(Arc::new(File::open(head_path(&database)).unwrap()));
        let log = capture_log();
        head.record_commits(2);
        head.record_commits(3);
        assert_eq!(
            log.count_lines("the head file of the ledger cannot be written"),
            1
        );
        head.file = writable;
        head.record_commits(4);
        head.file = Some(Arc::new(File::open(head_path(&database)).unwrap()));
        head.record_commits(5);
        assert_eq!(
            log.count_lines("the head file of the ledger cannot be written"),
            2,
            "it succeeded in between"
        );
    }

    #[tokio::test]
    async fn removed_head_file_is_recreated() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("x.db");
        let mut head = HeadFile::open(
            &database,
            CommitMarker {
                id: [7; 16],
                commits: 1,
            },
        );
        std::fs::remove_file(head_path(&database)).unwrap();
        head.record_commits(2);
        let log = capture_log();
        for _ in 0..2 {
            head.sync().await.unwrap();
        }
        assert_eq!(
            log.count_lines("the head file of the ledger was removed"),
            1
        );
        let read = || CommitMarker::from_text(&std::fs::read(head_path(&database)).unwrap());
        assert_eq!(
            read(),
            Some(CommitMarker {
                id: [7; 16],
                commits: 2
            })
        );
        head.record_commits(3);
        assert_eq!(
            read(),
            Some(CommitMarker {
                id: [7; 16],
                commits: 3
            })
        );
    }
}
