//! Fixed bounds of the server.

use std::time::Duration;

use crate::runtime::file_handles;

/// Longest time for a header block, against slow-loris clients. It starts with the connection, or
/// with the first byte of a later request.
pub(crate) const HEADER_TIME: Duration = Duration::from_secs(10);
/// Largest header block. hyper answers 431 beyond it.
pub(crate) const HEADER_BYTES: usize = 32 << 10;
/// Most header fields in a request.
pub(crate) const HEADER_FIELDS: usize = 64;
/// How long a connection stays open between two requests, unless its slot is needed. The value is
/// nginx's default.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(75);
/// A connection that has been idle for this time frees its buffers. A client with requests in a row
/// never waits for new ones.
pub(crate) const IDLE_BUFFERS_TIME: Duration = Duration::from_secs(1);
/// A client that has read nothing of its answer for this time is disconnected.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(30);
/// How long a client has to close its side after we have closed ours. Until then, the rest of a
/// body that was refused is read and discarded.
pub(crate) const CLOSING_TIME: Duration = Duration::from_secs(1);
/// Longest time for a whole body.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(30);
/// Longest time without a byte of a body.
pub(crate) const BODY_IDLE_TIME: Duration = Duration::from_secs(10);

/// The connections that may be open at once, if the settings ask for `wanted`. They may take half of
/// the file handles. The ledger, tools and their programs need the others.
pub(crate) fn possible_connections(wanted: usize) -> usize {
    file_handles::current_limit().map_or(wanted, |handles| wanted.min((handles / 2).max(8)))
}

/// Warns if the system's limit of open files permits fewer connections than the settings ask for.
pub(crate) fn warn_of_fewer_connections(wanted: usize) {
    let possible = possible_connections(wanted);
    if possible < wanted {
        tracing::warn!(
            possible,
            wanted,
            "fewer connections are possible than server.max_connections: the limit of open files must be twice that number"
        );
    }
}
