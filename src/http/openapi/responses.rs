//! Declares the problems of each route for the OpenAPI document.
//!
//! A route does not list statuses, but what it does
//! (`CommonResponses, AuthResponses, LookupResponses`). This file lists the statuses of each such
//! property once. `problem.rs` decides which failure has which status, and the test below compares
//! this table with it.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr, Response, ResponseBuilder};

/// Status, name in the document, and description: first the error kinds, then the meaning.
const PROBLEMS: [(u16, &str, &str); 16] = [
    (
        400,
        "Malformed",
        "invalid_request: not JSON, or of the wrong shape; the detail says what would be right.",
    ),
    (
        401,
        "Unauthenticated",
        "unauthenticated: no key, or a bad one.",
    ),
    (
        403,
        "Forbidden",
        "forbidden, tool_disabled, approval_denied, approval_expired: the caller may not use the tool, the tool is disabled, a person has denied the call or did not decide in time, or the Host, the Origin or the other site is not allowed.",
    ),
    (
        404,
        "NotFound",
        "unknown_tool, invalid_request: nothing has this name.",
    ),
    (
        408,
        "SlowBody",
        "invalid_request: the body did not arrive in time.",
    ),
    (
        409,
        "Conflict",
        "invalid_request, idempotency_in_progress, repeated_call, outcome_unknown: another tool has the name; the call has ended already, or still runs; a further page of a result that is not stored; the first call with the key still runs or was interrupted; the call repeats the previous call of its run.",
    ),
    (413, "TooLarge", "invalid_request: the body is too large."),
    (
        415,
        "MediaType",
        "invalid_request: the Content-Type of the body is not JSON.",
    ),
    (
        422,
        "InvalidArguments",
        "invalid_arguments, idempotency_mismatch: every position where the arguments violate the tool's schema, or a key that belongs to another call.",
    ),
    (
        429,
        "UsageLimitReached",
        "usage_limit_reached: nothing ran and nothing was charged.",
    ),
    (
        431,
        "LargeHeader",
        "invalid_request: the header block is too large.",
    ),
    (
        499,
        "Cancelled",
        "cancelled: the caller, an admin or a shutdown cancelled the call.",
    ),
    (500, "Internal", "internal: a fault of the service."),
    (
        502,
        "ToolFailed",
        "upstream_failed, bad_output, tool_unavailable: the tool could not do its work.",
    ),
    (
        503,
        "Unavailable",
        "definition_changed, overloaded, draining, ledger_unavailable, tool_unavailable: temporarily unavailable.",
    ),
    (
        504,
        "TimedOut",
        "deadline_exceeded, attempt_timed_out: it took too long.",
    ),
];

/// Statuses whose answers have `Retry-After` when a time is known.
const RETRY_AFTER_STATUSES: [u16; 2] = [429, 503];

/// Every problem response under its name, for the document's components.
pub(crate) fn problem_components() -> impl Iterator<Item = (String, RefOr<Response>)> {
    PROBLEMS.into_iter().map(|(status, name, description)| {
        let problem = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name("Problem")))
            .build();
        let mut response = ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", problem);
        if RETRY_AFTER_STATUSES.contains(&status) {
            let seconds = HeaderBuilder::new()
                .schema(Some(<u64 as utoipa::PartialSchema>::schema()))
                .description(Some("Seconds to wait before the next attempt, if known."));
            response = response.header("Retry-After", seconds.build());
        }
        (name.to_owned(), response.build().into())
    })
}

/// Declares properties of routes, each with its statuses.
macro_rules! response_sets {
    ($($(#[$doc:meta])* $name:ident: $($status:literal)+;)+) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                problem_refs(&[$($status),+])
            }
        }
    )+};
}

response_sets! {
    /// Any route: Host and Origin are checked, the header block is bounded, a handler may panic.
    CommonResponses: 403 431 500;
    /// It needs a caller's key.
    AuthResponses: 401;
    /// It reads a query, or a part of the path.
    QueryResponses: 400;
    /// It looks up the name in the path.
    LookupResponses: 400 404;
    /// It reads a JSON body.
    BodyResponses: 400 408 413 415 503;
    /// It registers or removes a tool name.
    RegistrationResponses: 409;
    /// It cancels a call that may have ended already.
    CancelResponses: 409;
    /// It checks arguments against a schema.
    ValidationResponses: 422;
    /// It is about an MCP session, or opens one.
    McpSessionResponses: 404 503;
    /// It reads or writes the ledger.
    LedgerResponses: 503;
    /// It runs a tool.
    CallResponses: 409 422 429 499 502 503 504;
}

fn problem_refs(statuses: &[u16]) -> BTreeMap<String, RefOr<Response>> {
    let known = PROBLEMS
        .iter()
        .filter(|(status, ..)| statuses.contains(status));
    known
        .map(|(status, name, _)| (status.to_string(), Ref::from_response_name(*name).into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::ErrorKind;
    use crate::http::problem::status_of_kind;

    /// Each kind stands under each status that it can have, and under no other.
    #[test]
    fn table_matches_the_problem_statuses() {
        // Its other statuses belong to requests that are no calls: problem.rs, `From<ApiError>`.
        let of_requests = [404, 408, 409, 413, 415, 431];
        for kind in ErrorKind::ALL.iter().copied() {
            let real = [false, true].map(|started| status_of_kind(kind, started).as_u16());
            for (status, _, description) in PROBLEMS {
                let kinds = description.split(':').next().unwrap();
                let named = kinds.split(", ").any(|word| word == kind.as_str());
                let of_request = kind == ErrorKind::InvalidRequest && of_requests.contains(&status);
                assert_eq!(
                    named,
                    real.contains(&status) || of_request,
                    "{} and {status}",
                    kind.as_str()
                );
            }
        }
    }
}
