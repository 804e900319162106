//! Tool kinds. A kind is a [`Runner`] in a file or folder of its own; [`kinds`] is the one place that knows all.

pub mod agent;
#[doc(hidden)]
pub mod attribute;
mod blocking;
pub mod builtin;
pub mod command;
mod config;
mod health;
pub mod http;
pub(crate) mod introductions;
pub mod kinds;
pub(crate) mod literal;
pub mod mcp;
mod media;
pub mod native;
mod placeholder;
mod process;
pub mod python;
mod source;
mod sources;
pub mod sql;
mod stand_in;
mod surroundings;
pub mod template;
mod tool;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use agent::builder::Agent;
pub use config::{BuildContext, ConfigFault, ParameterUse};
pub use http::{Clients, OwnPorts};
pub use placeholder::{Fault, Placeholder, Values};
pub use source::{Listed, Offer, Prints, Said, Source, SourceFault, SourceStatus, Told};
pub use sources::SourceSettings;
pub use sql::Databases;
pub use stand_in::{StandIn, Why};
pub use surroundings::{Ends, Surroundings};
pub(crate) use tool::Settings;
pub use tool::{BuildError, Tool};

use crate::call::{Definition, JsonObject, ToolContext, ToolError, ToolResult};

/// Runs a tool. One per tool, shared by all its calls.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// One try. Dropping the future must stop whatever it started.
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError>;

    /// Faults of values that a JSON Schema cannot express; asked before anything is spent.
    fn faults(&self, _values: Values<'_>) -> Vec<Fault> {
        Vec::new()
    }

    /// Whether all calls depend on the same thing, so that the failures of some say what others will meet. A tool whose
    /// arguments say where to go has no circuit breaker: one bad address must not close the good ones.
    fn has_one_target(&self) -> bool {
        true
    }

    /// The longest result that it gives, in bytes, if the operator raised that above its default: then texts of that
    /// length are what he wants to see. `None` leaves it to the answer how much of a text it shows.
    fn max_output(&self) -> Option<usize> {
        None
    }

    /// Whether a call can be tried at all just now; when not, a try says why.
    fn is_available(&self) -> bool {
        true
    }

    /// Whether it is handed the caller's whole `context` when the tool declares no fields of it. The results of such a tool may
    /// depend on anything in it, so they are cached only by named fields.
    fn takes_context(&self) -> bool {
        false
    }

    /// Whether it is told which agent makes a call, so that its results may depend on that.
    fn sees_agent(&self) -> bool {
        self.takes_context()
    }

    /// Whether fields of the caller's `context` that the tool declares can reach it.
    fn takes_fields(&self) -> bool {
        self.takes_context()
    }

    /// Whether it calls other tools, so that its results may depend on what the request denies.
    fn calls_tools(&self) -> bool {
        false
    }

    /// Whether it hands work to this agent when a model asks for that. Then its description says what the agent is for.
    fn hands_work_to(&self, _agent: &Definition) -> bool {
        false
    }

    /// Time for one try, where the kind knows better than the general default.
    fn own_timeout(&self) -> Option<Duration> {
        None
    }

    /// Whether it reads on in results that are on record, so that a model may be sent to it for the rest of one.
    fn reads_results(&self) -> bool {
        false
    }

    /// Whether results may be stored at all. What a tool says of other stored results is theirs: it ends with them, and
    /// is for nobody else.
    fn keeps(&self) -> bool {
        true
    }
}
