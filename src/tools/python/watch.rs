//! Notices the end of a process that nobody reads from.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Waits for a process's end. Dropped, it does so no more.
pub(super) struct Watch(Option<AbortOnDropHandle<()>>);

impl Watch {
    /// Calls `then` when the process has ended. A process id descriptor (Linux 5.3) costs nothing until then; where there
    /// is none, the end is noticed by the next call.
    pub(super) fn new(runtime: &Handle, process: Pid, then: impl FnOnce() + Send + 'static) -> Self {
        let Ok(process) = pidfd_open(process, PidfdFlags::NONBLOCK) else { return Self(None) };
        let task = runtime.spawn(async move {
            if ended(process).await.is_ok() {
                then();
            }
        });
        Self(Some(AbortOnDropHandle::new(task)))
    }

    /// Whether the end was noticed.
    pub(super) fn has_seen_the_end(&self) -> bool {
        self.0.as_ref().is_some_and(AbortOnDropHandle::is_finished)
    }
}

async fn ended(process: OwnedFd) -> std::io::Result<()> {
    #[expect(deprecated, reason = "unsound for descriptors that others close; an OwnedFd is nobody else's")]
    let process = AsyncFd::with_interest(process, Interest::READABLE)?;
    let _readable = process.readable().await?;
    Ok(())
}
