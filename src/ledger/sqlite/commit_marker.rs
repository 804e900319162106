//! Detects lost commits: a small file beside the database holds the ledger's id and the number of its commits.
//!
//! SQLite takes the first frame of its write-ahead log with a wrong checksum for the end of the log. That is correct
//! for a log that a crash has cut off. It is wrong for a log with a flipped bit: SQLite then silently drops all commits
//! after that frame. So every commit also counts itself in the database, and the number is written to the head file
//! before any reply. The file may lag behind (after a killed process, or with a second process), but is never ahead of
//! the commits.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::super::Error;

/// Makes a copy a ledger of its own with a new id. Otherwise later commits of the original would seem to be missing in
/// the copy.
pub(super) const ANEW: &str = "update ledger_head set id = randomblob(16), commits = 0";

/// Part of every transaction for which a caller may wait, as its last statement that returns a row.
pub(super) const COUNT: &str = "update ledger_head set commits = commits + 1 returning commits";

/// The number of commits that [`COUNT`] has returned.
pub(super) fn counted(rows: &[SqliteRow]) -> Result<u64, sqlx::Error> {
    let commits: i64 = rows.last().ok_or(sqlx::Error::RowNotFound)?.try_get("commits")?;
    Ok(commits.unsigned_abs())
}

/// The id of a ledger and the number of its commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommitMarker {
    id: [u8; 16],
    commits: u64,
}

/// Length of the text, the same for all marks. So a new mark overwrites the old one completely.
const LENGTH: usize = 103;

impl CommitMarker {
    /// The mark in the database; `None` before its table exists.
    pub(super) async fn of(connection: &mut SqliteConnection) -> Result<Option<Self>, sqlx::Error> {
        let there = "select 1 from sqlite_schema where name = 'ledger_head'";
        if sqlx::query(there).fetch_optional(&mut *connection).await?.is_none() {
            return Ok(None);
        }
        let row = sqlx::query("select id, commits from ledger_head").fetch_one(connection).await?;
        let (id, commits): (Vec<u8>, i64) = (row.try_get(0)?, row.try_get(1)?);
        let id = id.try_into().map_err(|_| sqlx::Error::Decode("the ledger's id is not 16 bytes".into()))?;
        Ok(Some(Self { id, commits: commits.unsigned_abs() }))
    }

    fn to_text(self) -> String {
        let said = format!("toolcrib ledger head 1\nid {}\ncommits {:020}\n", hex::encode(self.id), self.commits);
        format!("{said}crc32 {:08x}\n", crc32fast::hash(said.as_bytes()))
    }

    fn of_text(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut lines = text.lines().skip(1);
        let id: [u8; 16] = hex::decode(lines.next()?.strip_prefix("id ")?).ok()?.try_into().ok()?;
        let commits = lines.next()?.strip_prefix("commits ")?.parse().ok()?;
        let mark = Self { id, commits };
        // Compares the complete text, including the checksum.
        (mark.to_text() == text).then_some(mark)
    }
}

/// The path of the head file of `database`.
pub(super) fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".head");
    name.into()
}

/// The content of the head file at the start.
#[derive(Debug)]
pub(super) enum StoredMarker {
    Nothing,
    Unreadable(String),
    Mark(CommitMarker),
}

impl StoredMarker {
    pub(super) fn beside(database: &Path) -> Self {
        match std::fs::read(beside(database)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Nothing,
            Err(error) => Self::Unreadable(error.to_string()),
            Ok(text) => CommitMarker::of_text(&text).map_or(Self::Unreadable("it is damaged".into()), Self::Mark),
        }
    }

    /// Compares the head file with the mark of the database. `mark` is `None` if the database is empty, or older than
    /// head files. Logs what is unusual, and refuses a ledger that has lost commits, unless `accept_loss` is set.
    pub(super) fn check(
        &self,
        mark: Option<CommitMarker>,
        is_empty: bool,
        database: &Path,
        accept_loss: bool,
    ) -> Result<(), Error> {
        let (ledger, head) = (database.display(), beside(database));
        let head = head.display();
        match (self, mark) {
            (Self::Mark(head), Some(mark)) if head.id == mark.id && head.commits > mark.commits => {
                let missing = head.commits - mark.commits;
                if !accept_loss {
                    return Err(Error::Missing { place: ledger.to_string(), commits: missing });
                }
                tracing::warn!(%ledger, missing, "acknowledged commits are missing, and that was accepted");
            }
            (Self::Mark(head), Some(mark)) if head.id == mark.id => {}
            (Self::Mark(_), _) if is_empty => tracing::warn!(
                %ledger, %head, "there was a ledger here and it is gone: a new one is begun in its place"
            ),
            (Self::Mark(_), _) => tracing::warn!(
                %ledger, %head, "the file is not the ledger that was here before: restored or put in its place"
            ),
            (Self::Unreadable(reason), _) => tracing::warn!(
                %head, %reason, "the ledger's head cannot be read: commits that were lost before now are not noticed"
            ),
            (Self::Nothing, Some(mark)) if mark.commits > 0 => tracing::warn!(
                %head, "the ledger's head is not there: commits that were lost before now are not noticed"
            ),
            (Self::Nothing, _) => tracing::debug!(%ledger, "new: an empty file, a copy, or older than heads"),
        }
        Ok(())
    }
}

/// The head file, open for writing.
pub(super) struct Head {
    path: PathBuf,
    /// `None` if the file could not be opened. The ledger works without it.
    file: Option<Arc<File>>,
    mark: CommitMarker,
    fails: bool,
}

impl Head {
    /// Opens or creates the file, and writes the mark.
    pub(super) fn open(database: &Path, mark: CommitMarker) -> Self {
        Self::open_at(beside(database), mark)
    }

    fn open_at(path: PathBuf, mark: CommitMarker) -> Self {
        let made = || {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.set_len(LENGTH as u64)?;
            // Syncs the folder, so that the file's name survives a power cut.
            std::path::absolute(&path)?.parent().map_or(Ok(()), |at| File::open(at)?.sync_all())?;
            Ok(file)
        };
        let file: io::Result<File> = made();
        let mut head = Self { file: None, mark, fails: false, path: path.clone() };
        match file {
            Ok(file) => head.file = Some(Arc::new(file)),
            Err(error) => head.complain(&error),
        }
        head.acknowledge(mark.commits);
        head
    }

    /// Writes the number of commits, before any caller gets a reply. The page cache is enough, because it outlives the
    /// process. After a power cut the file may lag behind.
    pub(super) fn acknowledge(&mut self, commits: u64) {
        self.mark.commits = commits;
        let Some(file) = &self.file else { return };
        match file.write_all_at(self.mark.to_text().as_bytes(), 0) {
            Ok(()) => self.fails = false,
            // The database itself works. Only the detection of lost commits is missing.
            Err(error) => self.complain(&error),
        }
    }

    /// Syncs the file to disk. A removed file is created again.
    pub(super) async fn sync(&mut self) -> io::Result<()> {
        if self.file.is_some() && !self.path.exists() {
            tracing::warn!(head = %self.path.display(), "the ledger's head was removed; it is written again");
            *self = Self::open_at(self.path.clone(), self.mark);
        }
        let Some(file) = self.file.clone() else { return Ok(()) };
        tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)?
    }

    fn complain(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.fails, true) {
            tracing::warn!(
                head = %self.path.display(), %error,
                "the ledger's head cannot be written: if commits are lost from now on, the next start will not notice"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::captured::capture;

    #[test]
    fn a_mark_is_read_back_whole_or_not_at_all() {
        for commits in [0, 1, u64::MAX] {
            let mark = CommitMarker { id: *b"0123456789abcdef", commits };
            let text = mark.to_text();
            assert_eq!((text.len(), CommitMarker::of_text(text.as_bytes())), (LENGTH, Some(mark)));
            for at in 0..LENGTH * 8 {
                let mut flipped = text.clone().into_bytes();
                flipped[at / 8] ^= 1 << (at % 8);
                assert_eq!(CommitMarker::of_text(&flipped), None, "bit {at}");
            }
            assert_eq!(CommitMarker::of_text(&text.as_bytes()[..LENGTH - 1]), None);
        }
        assert_eq!(CommitMarker::of_text(b""), None);
    }

    #[test]
    fn one_lost_commit_is_missed() {
        let found = |commits| StoredMarker::Mark(CommitMarker { id: [7; 16], commits });
        let check =
            |head: StoredMarker, mark: CommitMarker, accept| head.check(Some(mark), false, Path::new("x.db"), accept);
        let mark = CommitMarker { id: [7; 16], commits: 41 };
        for missing in [1, 9] {
            let missed = check(found(41 + missing), mark, false);
            assert!(matches!(missed, Err(Error::Missing { commits, .. }) if commits == missing), "{missed:?}");
        }
        assert!(check(found(42), mark, true).is_ok());
        for commits in [0, 40, 41] {
            assert!(check(found(commits), mark, false).is_ok(), "{commits}: it may lag");
        }
        assert!(check(found(42), CommitMarker { id: [8; 16], commits: 1 }, false).is_ok(), "another ledger");
    }

    #[test]
    fn strange_heads_are_told_of() {
        let mark = |id, commits| CommitMarker { id: [id; 16], commits };
        let unreadable = || StoredMarker::Unreadable("noise".into());
        for (found, mark, is_empty, warning) in [
            (StoredMarker::Mark(mark(7, 4)), Some(mark(7, 4)), false, None),
            (StoredMarker::Mark(mark(7, 4)), Some(mark(8, 4)), false, Some("put in its place")),
            (StoredMarker::Mark(mark(7, 4)), None, false, Some("put in its place")),
            (StoredMarker::Mark(mark(7, 4)), None, true, Some("a new one is begun")),
            (unreadable(), Some(mark(7, 4)), false, Some("cannot be read")),
            (StoredMarker::Nothing, Some(mark(7, 1)), false, Some("is not there")),
            (StoredMarker::Nothing, Some(mark(7, 0)), false, None),
            (StoredMarker::Nothing, None, true, None),
        ] {
            let log = capture();
            found.check(mark, is_empty, Path::new("x.db"), false).unwrap();
            assert_eq!(log.count("WARN"), usize::from(warning.is_some()), "{found:?} {mark:?}");
            assert!(warning.is_none_or(|warning| log.has(warning)), "{found:?} {mark:?}");
        }
    }

    #[test]
    fn heads_that_cannot_be_read_are_told_from_none() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("x.db");
        assert!(matches!(StoredMarker::beside(&database), StoredMarker::Nothing));
        std::fs::create_dir(beside(&database)).unwrap();
        assert!(matches!(StoredMarker::beside(&database), StoredMarker::Unreadable(_)));
    }

    #[test]
    fn a_head_that_fails_is_told_of_once() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("x.db");
        let mut head = Head::open(&database, CommitMarker { id: [7; 16], commits: 1 });
        let writable = head.file.replace(Arc::new(File::open(beside(&database)).unwrap()));
        let log = capture();
        head.acknowledge(2);
        head.acknowledge(3);
        assert_eq!(log.count("the ledger's head cannot be written"), 1);
        head.file = writable;
        head.acknowledge(4);
        head.file = Some(Arc::new(File::open(beside(&database)).unwrap()));
        head.acknowledge(5);
        assert_eq!(log.count("the ledger's head cannot be written"), 2, "it went well in between");
    }

    #[tokio::test]
    async fn a_removed_head_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("x.db");
        let mut head = Head::open(&database, CommitMarker { id: [7; 16], commits: 1 });
        std::fs::remove_file(beside(&database)).unwrap();
        head.acknowledge(2);
        let log = capture();
        for _ in 0..2 {
            head.sync().await.unwrap();
        }
        assert_eq!(log.count("the ledger's head was removed"), 1);
        let read = || CommitMarker::of_text(&std::fs::read(beside(&database)).unwrap());
        assert_eq!(read(), Some(CommitMarker { id: [7; 16], commits: 2 }));
        head.acknowledge(3);
        assert_eq!(read(), Some(CommitMarker { id: [7; 16], commits: 3 }));
    }
}
