//! The routes of approval.
//!
//! - `route.rs`: `/approvals`; `view.rs`: a waiting call as JSON
//! - `page_route.rs`: the page behind the link of a webhook: it shows a waiting call, and its form
//!   decides once. The token in the link stands for a key. GET changes nothing, so a program that
//!   follows links decides nothing. The page has no script.
//! - `page.rs`: the page as HTML

mod page;
mod page_route;
pub(super) mod route;
pub(super) mod view;

pub(super) use self::page_route::routes;
