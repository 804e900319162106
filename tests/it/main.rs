//! Behaviour, through HTTP. One binary, so that it links once.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise, its helpers too"
)]
#![allow(missing_docs, reason = "tests say in their names what they hold")]
#![allow(
    clippy::allow_attributes,
    reason = "only some builds of the tests need the line above"
)]

mod support;

mod approvals; // calls that wait for a person, and rules that deny calls
mod attribute; // functions that become tools by the attribute
mod breaker;
mod browsers; // which requests of other sites are allowed, and what browsers may do with answers
mod builtins; // stored answers read again
mod cache; // stored results, single flight, separation of callers
mod calls; // the input of a tool and the forms of its answer
mod cancel; // disconnects and cancellation
mod capture; // what the ledger keeps of arguments and results
mod context; // declared fields of a request's context
mod credentials; // credentials of callers, in nested calls and shared results
mod details; // why a call failed, in lists of calls
mod discovery; // lists that have only the tools that find the others
mod events; // GET /events
mod examples; // every example manifest loads, and is called
mod find_tools; // search_tools, call_tool and GET /tools?query=
mod fuzz_corpora; // the committed inputs of the fuzz targets
mod grants; // allow and deny lists
mod idempotency; // a repeated request does not run twice
mod import_circles; // imports between files
mod imports; // the imports of a file, as text
mod incomplete; // results of which the tool itself left out a part
mod library; // programs that call tools without a service
mod limits; // usage limits under a controlled clock
mod literals; // values from references are text, also inside templates
mod log; // the event of each call, in a program
mod long_work; // streams of events, calls that are looked up
mod mcp; // MCP without sessions: 2026-07-28
mod mcp_approvals; // calls that wait for a person, asked for through the MCP client
mod mcp_sessions; // MCP with sessions: 2025-03-26 to 2025-11-25
mod messages;
mod metrics; // GET /metrics while calls run
mod model_pages; // a model's tool calls in, its results out
mod modules; // Python modules of the manifest: faults, restarts, stored results
mod openapi; // the committed document, and what is served to whom
mod order; // members of objects stand as their author wrote them
mod pages; // parts of long results, and text output of tools
mod problems; // every kind of failure, in the reference and over the wire
mod questions; // questions of tools to those who called them
mod redis; // cached results that services share through Redis
mod refusals; // the records of refused calls
mod registration; // tools over HTTP, and a ledger that fails or has a limit
mod reload; // another manifest while the service runs
mod repeats; // the same call twice in a row within a run
mod resume; // results of calls that waited for approval, for the conversation
mod runs; // the run of a call: in the body, in a header, or the session of MCP
mod schemas; // expensive schemas and arguments
mod scripts; // scripts that call tools: what they can do, what they cannot, and how they end
mod servers; // MCP servers of the manifest: names and pins through changes
mod shares; // one caller's share of a tool's concurrency
mod sources; // tools of sources, which may be slow, unavailable or changed
mod subcalls; // calls that tools make of other tools
mod tidy; // the invariants of docs/dev/architecture.md
mod toolbox; // the API of MCP Toolbox, and MCP as its clients speak it
mod toolsets; // toolsets: lists, MCP clients, callers
mod trace; // propagation of trace context
mod usage; // GET /usage by time
