//! Declares the problems of each route for the OpenAPI document.
//!
//! A route does not list statuses, but what it does (`Always, Keyed, Naming`). This file lists the statuses of each
//! such property once. `problem.rs` decides which failure has which status, and the test below compares this table with
//! it.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr, Response, ResponseBuilder};

/// Status, name in the document, and description: first the error kinds, then the meaning.
const PROBLEMS: [(u16, &str, &str); 16] = [
    (400, "Malformed", "invalid_request: not JSON, or of the wrong shape; the detail says what would be right."),
    (401, "Unauthenticated", "unauthenticated: no key, or a bad one."),
    (
        403,
        "Forbidden",
        "forbidden, tool_disabled: not for this caller, switched off, or a Host, an Origin or a page of another site that is not answered.",
    ),
    (404, "NotFound", "unknown_tool, invalid_request: nothing of that name is there."),
    (408, "SlowBody", "invalid_request: the body did not arrive in time."),
    (
        409,
        "Conflict",
        "invalid_request, idempotency_in_progress, repeated_call, outcome_unknown: the name is another tool's; the call has ended, or has not yet; a further page of a result that is not stored; the key's first call still runs or was interrupted; the call was the last one of its run already.",
    ),
    (413, "TooLarge", "invalid_request: the body is too large."),
    (415, "MediaType", "invalid_request: the body is no JSON by its own word."),
    (
        422,
        "InvalidArguments",
        "invalid_arguments, idempotency_mismatch: every place where the arguments break the tool's schema, or a key that belongs to another call.",
    ),
    (429, "UsageLimitReached", "usage_limit_reached: nothing ran and nothing was charged."),
    (431, "LargeHeader", "invalid_request: the header block is too large."),
    (499, "Cancelled", "cancelled: stopped by its caller."),
    (500, "Internal", "internal: a fault of the service."),
    (502, "ToolFailed", "upstream_failed, bad_output, tool_unavailable: the tool could not do its work."),
    (503, "Unavailable", "definition_changed, overloaded, draining, ledger_unavailable, tool_unavailable: not now."),
    (504, "TimedOut", "deadline_exceeded, attempt_timed_out: it took too long."),
];

/// Statuses whose answers have `Retry-After` when a time is known.
const WAITING: [u16; 2] = [429, 503];

/// Every problem response under its name, for the document's components.
pub(super) fn components() -> impl Iterator<Item = (String, RefOr<Response>)> {
    PROBLEMS.into_iter().map(|(status, name, description)| {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let mut response = ResponseBuilder::new().description(description).content("application/problem+json", problem);
        if WAITING.contains(&status) {
            let seconds = HeaderBuilder::new()
                .schema(Some(<u64 as utoipa::PartialSchema>::schema()))
                .description(Some("Seconds worth waiting first, when that is known."));
            response = response.header("Retry-After", seconds.build());
        }
        (name.to_owned(), response.build().into())
    })
}

/// Declares properties of routes, each with its statuses.
macro_rules! doing {
    ($($(#[$doc:meta])* $name:ident: $($status:literal)+;)+) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                referring(&[$($status),+])
            }
        }
    )+};
}

doing! {
    /// Any route: Host and Origin are checked, the header block is bounded, a handler may panic.
    Always: 403 431 500;
    /// It needs a caller's key.
    Keyed: 401;
    /// It reads a query, or a part of the path.
    Asking: 400;
    /// It looks up the name in the path.
    Naming: 400 404;
    /// It reads a JSON body.
    Reading: 400 408 413 415 503;
    /// It registers or removes a tool name.
    Claiming: 409;
    /// It cancels a call that may have ended already.
    Stopping: 409;
    /// It checks arguments against a schema.
    Fitting: 422;
    /// It is about an MCP session, or opens one.
    Sitting: 404 503;
    /// It reads or writes the ledger.
    Recording: 503;
    /// It runs a tool.
    Running: 409 422 429 499 502 503 504;
}

fn referring(statuses: &[u16]) -> BTreeMap<String, RefOr<Response>> {
    let known = PROBLEMS.iter().filter(|(status, ..)| statuses.contains(status));
    known.map(|(status, name, _)| (status.to_string(), Ref::from_response_name(*name).into())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::problem::status_of;
    use super::*;
    use crate::call::ErrorKind;

    /// Each kind stands under each status that it can have, and under no other.
    #[test]
    fn the_table_says_what_the_problems_do() {
        // Its other statuses belong to requests that are no calls: problem.rs, `From<ApiError>`.
        let of_requests = [404, 408, 409, 413, 415, 431];
        for kind in ErrorKind::ALL {
            let real = [false, true].map(|started| status_of(kind, started).as_u16());
            for (status, _, description) in PROBLEMS {
                let kinds = description.split(':').next().unwrap();
                let named = kinds.split(", ").any(|word| word == kind.as_str());
                let of_request = kind == ErrorKind::InvalidRequest && of_requests.contains(&status);
                assert_eq!(named, real.contains(&status) || of_request, "{} and {status}", kind.as_str());
            }
        }
    }
}
