//! The page behind the link of a webhook: it shows a waiting call, and its form decides once.
//!
//! The token in the link stands for a key. GET changes nothing, so a program that follows links
//! decides nothing. The page has no script.
//!
//! - `route.rs`: the routes
//! - `page.rs`: the page as HTML

mod page;
mod route;

pub(super) use self::route::routes;
