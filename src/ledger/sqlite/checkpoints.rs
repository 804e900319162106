//! When the writer copies the write-ahead log into the database.

use super::fault::Fault;
use super::wal::{self, CHECK_INTERVAL_COMMITS};
use super::writer::WriterTask;

/// For [`CHECK_INTERVAL_COMMITS`], each amount of this many bytes counts as one more commit,
/// because long rows make the log long.
const LOG_BYTES_PER_COMMIT: usize = 512 << 10;

impl WriterTask {
    /// Every few commits, after the replies: copies the log into the database if it is long.
    pub(super) async fn checkpoint_long_log(&mut self, written: usize) {
        self.commits_since_check +=
            1 + u32::try_from(written / LOG_BYTES_PER_COMMIT).unwrap_or(CHECK_INTERVAL_COMMITS);
        if self.commits_since_check < CHECK_INTERVAL_COMMITS {
            return;
        }
        self.commits_since_check = 0;
        match wal::log_pages(&mut self.connection).await {
            Ok(pages) if pages < wal::CHECKPOINT_PAGES => {}
            Ok(_) => self.checkpoint().await,
            Err(error) => self.handle_checkpoint_error(error).await,
        }
    }

    pub(super) async fn checkpoint(&mut self) {
        let copied = match wal::checkpoint(&mut self.connection).await {
            Ok(()) => self.head.sync().await.map_err(sqlx::Error::Io),
            Err(error) => Err(error),
        };
        if let Err(error) = copied {
            self.handle_checkpoint_error(error).await;
        }
    }

    /// Reports that the log could not be copied. Commits that are only in the log are still valid,
    /// so a full disk is no reason to stop.
    async fn handle_checkpoint_error(&mut self, error: sqlx::Error) {
        let fault = Fault::classify(&error, &self.file);
        if fault.is_final {
            self.handle_failure(error).await;
        } else {
            tracing::debug!(
                reason = fault.reason,
                "the write-ahead log could not be copied"
            );
        }
    }
}
