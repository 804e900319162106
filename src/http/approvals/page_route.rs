//! The routes of the links.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::page::{Page, respond_error};
use super::route::{apply_decision, check_note};
use crate::approval::deciding::{Decision, Verdict};
use crate::call::InvocationId;
use crate::catalog::registry::Registry;
use crate::http::edge::body::{FormBody, PathPart};
use crate::http::problem::ApiError;
use crate::http::query::QueryParams;
use crate::http::state::AppState;
use crate::ledger::ApprovalRow;

/// The route of the links.
pub(in crate::http) fn routes() -> Router<AppState> {
    Router::new().route("/approvals/{id}/decide", get(show).post(decide))
}

/// The part of a link that permits a decision.
#[derive(Deserialize)]
struct Link {
    /// Name of the receiver.
    link: String,
    token: String,
}

/// What the form sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    decision: Choice,
    #[serde(default)]
    note: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Choice {
    Approve,
    Deny,
}

async fn show(
    State(registry): State<Arc<Registry>>,
    PathPart(id): PathPart,
    QueryParams(link): QueryParams<Link>,
) -> Response {
    match find(&registry, &id, &link).await {
        Ok((row, _)) => Page::of(&registry, &row).respond(),
        Err(error) => respond_error(error, None),
    }
}

async fn decide(
    State(registry): State<Arc<Registry>>,
    PathPart(id): PathPart,
    QueryParams(link): QueryParams<Link>,
    form: Result<FormBody<Form>, ApiError>,
) -> Response {
    let (row, by) = match find(&registry, &id, &link).await {
        Ok(found) => found,
        Err(error) => return respond_error(error, None),
    };
    let decided = async {
        let FormBody(form) = form?;
        let note = Some(form.note.trim()).filter(|note| !note.is_empty());
        check_note(note)?;
        let (verdict, title, text) = match form.decision {
            Choice::Approve => (Verdict::Approve(None), "Approved", "The call starts now."),
            Choice::Deny => (Verdict::Deny, "Denied", "The call does not run."),
        };
        let note = note.map(Into::into);
        apply_decision(&registry, row.invocation, Decision { verdict, by, note }).await?;
        let title = format!("{title}: {}", row.tool);
        Ok(Page::decided(
            title,
            &format!("{text} You can close this page."),
        ))
    };
    match decided.await {
        Ok(page) => page.respond(),
        Err(error) => respond_error(error, Some(Page::of(&registry, &row))),
    }
}

/// The call of a link, and the author of decisions that the ledger records.
async fn find(
    registry: &Registry,
    id: &str,
    link: &Link,
) -> Result<(ApprovalRow, Arc<str>), ApiError> {
    // One answer for all, so that it tells nothing about calls.
    let invalid = || ApiError::NotFound("This link is not valid. Nothing was changed.".into());
    let shared = registry.shared();
    let notices = shared.approval_notices.as_ref().ok_or_else(invalid)?;
    let id: InvocationId = id.parse().map_err(|_| invalid())?;
    let receiver = notices.find_receiver(&link.link, &link.token, id);
    let receiver = receiver.ok_or_else(invalid)?;
    let row = shared.ledger.find_approval(id).await?;
    Ok((
        row.ok_or_else(invalid)?,
        format!("link:{}", receiver.name).into(),
    ))
}
