//! Behaviour, through HTTP. One binary, so that it links once.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise, its helpers too")]
#![allow(missing_docs, reason = "tests say in their names what they hold")]
#![allow(clippy::allow_attributes, reason = "only some builds of the tests need the line above")]

mod support;

mod attribute; // functions that the attribute makes tools of
mod breaker;
mod browsers; // what pages of other sites may ask, and what browsers may do with answers
mod builtins; // stored answers read again, pictures
mod cache; // stored results, single flight, whose result is whose
mod calls; // what a tool gets and what its answer comes to
mod cancel; // the caller leaves
mod capture; // what the ledger keeps of what was said
mod context; // declared fields of a request's context, for each kind
mod examples; // every example manifest loads, and is called
mod formats;
mod grants; // schemas in the shapes of model APIs
mod idempotency; // asking again is not asking twice
mod library; // programs that call tools without a service
mod limits; // usage limits under a clock that we move
mod literals; // values that come by reference are text, also where a template stands
mod log; // the event of each call, and the ids of requests
mod long_work; // streams of events, calls that are looked up
mod mcp; // MCP without sessions: 2026-07-28
mod mcp_sessions; // MCP with sessions: 2025-03-26 to 2025-11-25
mod messages;
mod metrics; // what GET /metrics says after known traffic
mod model_pages; // a model's tool calls in, its results out
mod modules; // Python modules of the manifest: policies, reload, what is kept
mod names; // which names find which tool
mod openapi; // the committed document, and what is served to whom
mod order; // members of objects stand as their author wrote them
mod pages; // parts of long results, and what tools say as text
mod problems; // every kind of failure, in the reference and over the wire
mod refusals; // what is kept of refused calls
mod registration; // tools over HTTP
mod reload; // another manifest while the service runs
mod repeats; // the same call twice in a row within a run
mod schemas; // schemas and arguments that are made to cost
mod servers; // MCP servers of the manifest: names, policies, hints, pins
mod shares; // what one caller takes of a tool's concurrency
mod sources; // tools that come out of something else, which may be late, down or different
mod subcalls; // calls that tools make of other tools
mod tidy; // the invariants of docs/dev/architecture.md
mod trace; // whose trace goes on to whom
mod variables; // what tools and sources declare that they read from the environment
