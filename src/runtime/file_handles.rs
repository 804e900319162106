//! The number of files and sockets that the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for the default number of connections, and for the pipes and sockets of a thousand calls.
/// It is not higher because a new program has it for a moment, until its own limit is set, and some
/// close every handle up to the limit at their start.
const WANTED_LIMIT: u64 = 8192;

/// Raises the process's limit if it is lower and the system allows it. Many systems begin with
/// 1,024 because of select(2). Call it in a program's `main`; a library should not change limits.
pub fn raise_limit() {
    raise_limit_to(WANTED_LIMIT);
}

/// As [`raise_limit`], for a service with this many connections at once.
pub fn raise_limit_for(max_connections: usize) {
    let handles = u64::try_from(max_connections).unwrap_or(u64::MAX);
    raise_limit_to(handles.saturating_mul(2).max(WANTED_LIMIT));
}

fn raise_limit_to(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(wanted, |most| most.min(wanted));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(wanted),
                maximum: limit.maximum,
            },
        );
        if let Err(error) = raised {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
    }
    tracing::debug!(limit = self::current_limit(), "files that may be open");
}

/// The number of open files and sockets that the process may have. `None` if there is no limit.
pub fn current_limit() -> Option<usize> {
    getrlimit(Resource::Nofile)
        .current
        .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
