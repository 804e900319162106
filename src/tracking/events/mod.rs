//! Events of calls and approvals for the subscribers of `GET /events`.
//!
//! - `feed.rs`: the bounded channel from the calls to the subscribers
//! - `event.rs`: the events, and which caller may see which
//! - `cursor.rs`: the position in the ledger from which a subscriber continues

mod cursor;
mod event;
mod feed;

pub use cursor::Cursor;
pub use event::{ApprovalNotice, ApprovalState, MAX_ARGUMENTS, ServiceEvent};
pub use feed::{EventFeed, MAX_SUBSCRIBERS, Published, Received, Subscription};
