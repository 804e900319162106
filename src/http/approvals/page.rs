//! The page as HTML.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::{IntoResponse, Response};
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment};
use serde::Serialize;
use serde_json::json;

use super::view::{StateView, kept_arguments, shown_context};
use crate::approval::request::ApprovalRequest;
use crate::call::JsonObject;
use crate::catalog::registry::Registry;
use crate::http::problem::{ApiError, Problem};
use crate::ledger::{ApprovalRow, ApprovalState};
use crate::text::sanitize::escape_invisible;

const PAGE: &str = include_str!("page.html");
/// The page may send its form to this service, and nothing else. The style is in the page.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; \
    frame-ancestors 'none'; base-uri 'none'";

/// The values of the template.
#[derive(Default, Serialize)]
pub(super) struct Page {
    title: String,
    text: String,
    call: Option<serde_json::Value>,
    can_decide: bool,
}

impl Page {
    /// The page after a decision.
    pub(super) fn decided(title: String, text: &str) -> Self {
        Self {
            title,
            text: text.into(),
            ..Self::default()
        }
    }

    /// The page of a call.
    pub(super) fn of(registry: &Registry, row: &ApprovalRow) -> Self {
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
            // A link tells nothing about a call after its decision.
            call: can_decide.then(|| {
                json!({
                    "id": row.invocation,
                    "tool": row.tool,
                    "caller": row.caller,
                    "effect": shown.map(|request| request.effect),
                    "run_id": shown.and_then(|request| request.run_id.as_deref()),
                    "message": shown.and_then(|request| request.message.as_deref()),
                    "arguments": arguments.as_ref().and_then(shown_json)
                        .unwrap_or_else(|| "The arguments of this call are not kept.".into()),
                    "context": shown_context(registry, row.invocation, shown)
                        .as_ref()
                        .and_then(shown_json),
                    "requested_at": row.requested_at.to_string(),
                    "expires_at": row.expires_at.to_string(),
                })
            }),
        }
    }

    pub(super) fn respond(&self) -> Response {
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

fn shown_json(fields: &JsonObject) -> Option<String> {
    let text = serde_json::to_string_pretty(fields).ok()?;
    Some(escape_invisible(&text))
}

/// The page of an error, with its status. The call is shown again, if there is one.
pub(super) fn respond_error(error: ApiError, shown: Option<Page>) -> Response {
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
