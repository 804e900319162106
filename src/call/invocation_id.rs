//! The id of a call.

use std::str::FromStr;

use derive_more::{Debug, Display};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a call and the key of its row: a UUIDv7 (RFC 9562), so ids sort by the start of the
/// calls.
#[derive(
    Debug, Display, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[debug("{_0}")]
pub struct InvocationId(Uuid);

impl InvocationId {
    /// A new id. The ids of one process never go backward.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The smallest possible id of a call that started at `at`: a lower bound for time filters.
    pub fn lower_bound(at: Timestamp) -> Self {
        let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
        Self(Uuid::from_u128(u128::from(millis) << 80))
    }

    /// When the id was made, to the millisecond; `None` if it is not a UUIDv7.
    pub fn created_at(&self) -> Option<Timestamp> {
        let (seconds, nanos) = self
            .0
            .get_timestamp()
            .filter(|_| self.0.get_version_num() == 7)?
            .to_unix();
        Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
    }

    /// The time for which the id is a lower bound, to the millisecond. Calls with this id or a later
    /// one started then or later.
    pub fn bounds(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(i64::try_from(self.0.as_u128() >> 80).ok()?).ok()
    }

    /// The sixteen bytes, in sort order.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

impl FromStr for InvocationId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::from_str(text).map(Self)
    }
}

impl Default for InvocationId {
    fn default() -> Self {
        Self::new()
    }
}
