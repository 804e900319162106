//! Notices the end of a process from which no task reads.

use std::io;

use rustix::process::Pid;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Calls `on_exit` when the process has ended, unless the returned task is dropped before. The
/// process must be a child of ours that has not been reaped yet.
pub(super) fn watch_exit(
    runtime: &Handle,
    process: Pid,
    on_exit: impl FnOnce() + Send + 'static,
) -> AbortOnDropHandle<()> {
    let ended = wait_for_exit(process);
    AbortOnDropHandle::new(runtime.spawn(async move {
        if ended.await.is_ok() {
            on_exit();
        }
    }))
}

/// A process id descriptor (Linux 5.3) costs nothing until the end. Without it, the next call
/// notices the end.
#[cfg(target_os = "linux")]
fn wait_for_exit(process: Pid) -> impl Future<Output = io::Result<()>> + Send {
    use rustix::process::{PidfdFlags, pidfd_open};
    use tokio::io::{Interest, unix::AsyncFd};

    let process = pidfd_open(process, PidfdFlags::NONBLOCK);
    async move {
        #[expect(
            deprecated,
            reason = "unsound for descriptors that others close; an OwnedFd is nobody else's"
        )]
        let process = AsyncFd::with_interest(process?, Interest::READABLE)?;
        let _readable = process.readable().await?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
async fn wait_for_exit(_: Pid) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
