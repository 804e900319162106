//! What was acknowledged, written down outside the database: a small file beside it that says which ledger it is and how many
//! commits it has made.
//!
//! SQLite takes the first frame of its write-ahead log whose checksum does not fit for the log's end. That is right for
//! a log that was torn by a crash, and wrong for one with a flipped bit: everything behind it is gone without a word. So
//! every commit counts itself in the database, and before anybody is answered the number is written here. It may lag (a
//! process that was killed in between, a second process); it is never ahead of what is committed.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::super::Error;

/// Makes a copy a ledger of its own: what the original does from then on is not missing here.
pub(super) const ANEW: &str = "update ledger_head set id = randomblob(16), commits = 0";

/// Stands in every transaction that somebody may wait for, as the last statement that has a row.
pub(super) const COUNT: &str = "update ledger_head set commits = commits + 1 returning commits";

/// The number that [`COUNT`] has come to.
pub(super) fn counted(rows: &[SqliteRow]) -> Result<u64, sqlx::Error> {
    let commits: i64 = rows.last().ok_or(sqlx::Error::RowNotFound)?.try_get("commits")?;
    Ok(commits.unsigned_abs())
}

/// A ledger and how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    id: [u8; 16],
    commits: u64,
}

/// All marks are this long, so that each covers the one before.
const LENGTH: usize = 103;

impl Mark {
    /// What the database says of itself; `None` before it has the table.
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
        // Which holds all of it against what it should be, the checksum too.
        (mark.to_text() == text).then_some(mark)
    }
}

/// The name of the file beside `database`.
pub(super) fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".head");
    name.into()
}

/// What the file beside the database said at the start.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Unreadable(String),
    Mark(Mark),
}

impl Found {
    pub(super) fn beside(database: &Path) -> Self {
        match std::fs::read(beside(database)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Nothing,
            Err(error) => Self::Unreadable(error.to_string()),
            Ok(text) => Mark::of_text(&text).map_or(Self::Unreadable("it is damaged".into()), Self::Mark),
        }
    }

    /// Holds the file against a database that has come to `mark`; `None`: it is empty, or older than these marks. Says
    /// what is strange, and refuses a ledger that has lost commits unless that is accepted.
    pub(super) fn check(
        &self,
        mark: Option<Mark>,
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

/// The file, to be written.
pub(super) struct Head {
    path: PathBuf,
    /// `None`: it could not be opened; the ledger works without.
    file: Option<Arc<File>>,
    mark: Mark,
    fails: bool,
}

impl Head {
    /// Opens or makes the file, and writes the mark.
    pub(super) fn open(database: &Path, mark: Mark) -> Self {
        Self::open_at(beside(database), mark)
    }

    fn open_at(path: PathBuf, mark: Mark) -> Self {
        let made = || {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.set_len(LENGTH as u64)?;
            // So that its name lasts too.
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

    /// So many commits are made. To be written before anybody hears of it; the page cache is enough, since it outlives
    /// the process, and after a power cut the file may lag.
    pub(super) fn acknowledge(&mut self, commits: u64) {
        self.mark.commits = commits;
        let Some(file) = &self.file else { return };
        match file.write_all_at(self.mark.to_text().as_bytes(), 0) {
            Ok(()) => self.fails = false,
            // The database itself is well: what is lost is the notice of a loss.
            Err(error) => self.complain(&error),
        }
    }

    /// Brings what was written to the disk. A file that was taken away is made again.
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
            let mark = Mark { id: *b"0123456789abcdef", commits };
            let text = mark.to_text();
            assert_eq!((text.len(), Mark::of_text(text.as_bytes())), (LENGTH, Some(mark)));
            for at in 0..LENGTH * 8 {
                let mut flipped = text.clone().into_bytes();
                flipped[at / 8] ^= 1 << (at % 8);
                assert_eq!(Mark::of_text(&flipped), None, "bit {at}");
            }
            assert_eq!(Mark::of_text(&text.as_bytes()[..LENGTH - 1]), None);
        }
        assert_eq!(Mark::of_text(b""), None);
    }

    #[test]
    fn one_lost_commit_is_missed() {
        let found = |commits| Found::Mark(Mark { id: [7; 16], commits });
        let check = |head: Found, mark: Mark, accept| head.check(Some(mark), false, Path::new("x.db"), accept);
        let mark = Mark { id: [7; 16], commits: 41 };
        for missing in [1, 9] {
            let missed = check(found(41 + missing), mark, false);
            assert!(matches!(missed, Err(Error::Missing { commits, .. }) if commits == missing), "{missed:?}");
        }
        assert!(check(found(42), mark, true).is_ok());
        for commits in [0, 40, 41] {
            assert!(check(found(commits), mark, false).is_ok(), "{commits}: it may lag");
        }
        assert!(check(found(42), Mark { id: [8; 16], commits: 1 }, false).is_ok(), "another ledger");
    }

    #[test]
    fn strange_heads_are_told_of() {
        let mark = |id, commits| Mark { id: [id; 16], commits };
        let unreadable = || Found::Unreadable("noise".into());
        for (found, mark, is_empty, warning) in [
            (Found::Mark(mark(7, 4)), Some(mark(7, 4)), false, None),
            (Found::Mark(mark(7, 4)), Some(mark(8, 4)), false, Some("put in its place")),
            (Found::Mark(mark(7, 4)), None, false, Some("put in its place")),
            (Found::Mark(mark(7, 4)), None, true, Some("a new one is begun")),
            (unreadable(), Some(mark(7, 4)), false, Some("cannot be read")),
            (Found::Nothing, Some(mark(7, 1)), false, Some("is not there")),
            (Found::Nothing, Some(mark(7, 0)), false, None),
            (Found::Nothing, None, true, None),
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
        assert!(matches!(Found::beside(&database), Found::Nothing));
        std::fs::create_dir(beside(&database)).unwrap();
        assert!(matches!(Found::beside(&database), Found::Unreadable(_)));
    }

    #[test]
    fn a_head_that_fails_is_told_of_once() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("x.db");
        let mut head = Head::open(&database, Mark { id: [7; 16], commits: 1 });
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
        let mut head = Head::open(&database, Mark { id: [7; 16], commits: 1 });
        std::fs::remove_file(beside(&database)).unwrap();
        head.acknowledge(2);
        let log = capture();
        for _ in 0..2 {
            head.sync().await.unwrap();
        }
        assert_eq!(log.count("the ledger's head was removed"), 1);
        let read = || Mark::of_text(&std::fs::read(beside(&database)).unwrap());
        assert_eq!(read(), Some(Mark { id: [7; 16], commits: 2 }));
        head.acknowledge(3);
        assert_eq!(read(), Some(Mark { id: [7; 16], commits: 3 }));
    }
}
