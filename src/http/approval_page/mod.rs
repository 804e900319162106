//! The page behind the link of a webhook: it shows a waiting call, and its form decides once.
//!
//! The token in the link stands for a key. GET changes nothing, so a program that follows links
//! decides nothing. The page has no script.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment};
use serde::{Deserialize, Serialize};

use super::approval_view::{StateView, kept_arguments};
use super::approvals::{apply_decision, check_note};
use super::body::{FormBody, PathPart};
use super::problem::{ApiError, Problem};
use super::query::QueryParams;
use super::state::AppState;
use crate::call::{Effect, InvocationId};
use crate::ledger::{ApprovalRow, ApprovalState};
use crate::middleware::approval_request::ApprovalRequest;
use crate::registry::{Decision, Registry, Verdict};

const PAGE: &str = include_str!("page.html");
/// The page may send its form to this service, and nothing else. The style is in the page.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; \
    frame-ancestors 'none'; base-uri 'none'";

/// The route of the links.
pub(super) fn routes() -> Router<AppState> {
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

/// The values of the template.
#[derive(Default, Serialize)]
struct Page {
    title: String,
    text: String,
    call: Option<ShownCall>,
    can_decide: bool,
}

#[derive(Serialize)]
struct ShownCall {
    id: String,
    tool: Arc<str>,
    caller: Arc<str>,
    effect: Option<Effect>,
    run_id: Option<Arc<str>>,
    message: Option<Arc<str>>,
    arguments: String,
    requested_at: String,
    expires_at: String,
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
    FormBody(form): FormBody<Form>,
) -> Response {
    let (row, by) = match find(&registry, &id, &link).await {
        Ok(found) => found,
        Err(error) => return respond_error(error, None),
    };
    let note = Some(form.note.trim().to_owned()).filter(|note| !note.is_empty());
    let decision = Decision {
        verdict: match form.decision {
            Choice::Approve => Verdict::Approve(None),
            Choice::Deny => Verdict::Deny,
        },
        by,
        note: note.as_deref().map(Into::into),
    };
    let decided = match check_note(note.as_deref()) {
        Ok(()) => apply_decision(&registry, row.invocation, decision).await,
        Err(error) => Err(error),
    };
    if let Err(error) = decided {
        return respond_error(error, Some(Page::of(&registry, &row)));
    }
    let (title, text) = match form.decision {
        Choice::Approve => ("Approved", "The call starts now. You can close this page."),
        Choice::Deny => ("Denied", "The call does not run. You can close this page."),
    };
    Page {
        title: format!("{title}: {}", row.tool),
        text: text.into(),
        ..Page::default()
    }
    .respond()
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

impl Page {
    /// The page of a call.
    fn of(registry: &Registry, row: &ApprovalRow) -> Self {
        let request = ApprovalRequest::from_row(row);
        let shown = request.as_ref();
        let is_expired = row.expires_at <= registry.shared().clock.now();
        let can_decide = row.state == ApprovalState::Waiting && !is_expired;
        let state = match row.state {
            ApprovalState::Waiting if is_expired => ApprovalState::Expired,
            state => state,
        };
        let text = match (&row.decided_by, &row.note) {
            _ if can_decide => String::new(),
            (Some(by), Some(note)) => format!("By {by}. Reason: {note}"),
            (Some(by), None) => format!("By {by}."),
            (None, _) => "Nobody decided in time.".into(),
        };
        let title = match StateView::from(state) {
            StateView::Waiting => format!("Approve this call of {}?", row.tool),
            StateView::Approved => format!("The call of {} was approved", row.tool),
            StateView::Denied => format!("The call of {} was denied", row.tool),
            StateView::Expired => format!("The call of {} has expired", row.tool),
            StateView::Withdrawn => format!("The call of {} was cancelled", row.tool),
        };
        let arguments = shown
            .and_then(|request| request.arguments.clone())
            .or_else(|| kept_arguments(registry, row.invocation));
        Self {
            title,
            text,
            can_decide,
            call: Some(ShownCall {
                id: row.invocation.to_string(),
                tool: row.tool.clone(),
                caller: row.caller.clone(),
                effect: shown.map(|request| request.effect),
                run_id: shown.and_then(|request| request.run_id.clone()),
                message: shown.and_then(|request| request.message.clone()),
                arguments: arguments
                    .and_then(|arguments| serde_json::to_string_pretty(&arguments).ok())
                    .unwrap_or_else(|| "The arguments of this call are not kept.".into()),
                requested_at: row.requested_at.to_string(),
                expires_at: row.expires_at.to_string(),
            }),
        }
    }

    fn respond(&self) -> Response {
        let headers = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
            // Browsers keep no copy of the arguments, and tell no other site the token.
            (CACHE_CONTROL, "no-store"),
            (REFERRER_POLICY, "same-origin"),
        ];
        let mut environment = Environment::empty();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        match environment.render_str(PAGE, Value::from(Serde(self))) {
            Ok(page) => (headers, page).into_response(),
            Err(error) => {
                tracing::error!(%error, "the page of an approval could not be made");
                ApiError::Internal.into_response()
            }
        }
    }
}

/// The page of an error, with its status. The call is shown again, if there is one.
fn respond_error(error: ApiError, shown: Option<Page>) -> Response {
    let problem = Problem::from(error);
    let text = problem.detail.clone();
    let status = problem.into_response().status();
    let page = Page {
        title: "This has not changed anything".into(),
        text,
        can_decide: false,
        ..shown.unwrap_or_default()
    };
    let mut response = page.respond();
    *response.status_mut() = status;
    response
}
