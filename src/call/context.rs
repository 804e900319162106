//! What a running tool may know of its call.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::context_fields::ContextFields;
use super::definition::ToolName;
use super::invocation::{Caller, Invocation, InvocationId};
use super::json::JsonObject;
use super::notes::{ModelUsage, Notes};
use super::policy::Effect;
use super::progress::{ProgressSink, Reporter};
use super::redact::{Between, Redact, Torn, decode, shorten};
use super::subcalls::Lineage;
use super::trace::TraceContext;

/// Values that the embedding program shares with its tools, one of each type: a pool, a client, a project root.
#[derive(Clone, Default)]
pub struct Services(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Services {
    /// Adds a value; a second one of the same type replaces the first.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of that type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref())
    }
}

/// What belongs to the tool rather than to the call: its settings and access rules from the manifest.
#[derive(Default)]
pub struct ToolSettings {
    /// `with:` of the manifest.
    pub with: JsonObject,
    /// `workdir:` of the manifest, absolute.
    pub workdir: Option<PathBuf>,
    /// Values of the declared environment variables.
    pub env: HashMap<String, String>,
    /// What the embedding program shares.
    pub services: Services,
    /// Whether a call may be started again after it was begun.
    pub effect: Effect,
    /// Which fields of the caller's `context` reach the tool.
    pub context: ContextFields,
}

/// Handed to a tool with every try.
#[derive(Clone)]
pub struct ToolContext {
    /// The call's id.
    pub invocation_id: InvocationId,
    /// The name the tool is registered under.
    pub tool: ToolName,
    /// Who calls.
    pub caller: Arc<Caller>,
    /// The caller's run.
    pub run_id: Option<Arc<str>>,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// The caller's `context` object; of a tool that declares fields, these alone.
    pub context: Arc<JsonObject>,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// When the try must be over.
    pub deadline: Instant,
    /// Tripped when the call is to stop. An async tool is simply dropped; a blocking one should look now and then.
    pub cancelled: CancellationToken,
    left: CancellationToken,
    notes: Arc<Notes>,
    settings: Arc<ToolSettings>,
    reporter: Option<Reporter>,
    redactor: Option<Arc<dyn Redact>>,
    pub(super) lineage: Lineage,
    pub(super) request_id: Option<Arc<str>>,
    pub(super) trace: Option<Arc<TraceContext>>,
    pub(super) progress: Option<ProgressSink>,
    pub(super) cancel: CancellationToken,
}

impl ToolContext {
    /// The context of one try.
    pub fn new(invocation: &Invocation, deadline: Instant, settings: Arc<ToolSettings>) -> Self {
        Self {
            invocation_id: invocation.id,
            tool: invocation.tool.clone(),
            caller: invocation.caller.clone(),
            run_id: invocation.run_id.clone(),
            tool_use_id: invocation.tool_use_id.clone(),
            context: settings.context.narrow(&invocation.context),
            attempt: invocation.attempt,
            deadline,
            cancelled: invocation.stop.clone(),
            left: invocation.left.clone(),
            notes: invocation.notes.clone(),
            settings,
            reporter: None,
            redactor: None,
            lineage: invocation.lineage.clone(),
            request_id: invocation.request_id.clone(),
            trace: invocation.trace.clone(),
            progress: invocation.progress.clone(),
            cancel: invocation.cancel.clone(),
        }
    }

    /// The same with a way to tell how far the tool is.
    #[must_use]
    pub fn reporting(self, reporter: Option<Reporter>) -> Self {
        Self { reporter, ..self }
    }

    /// The same with whatever takes secrets out of texts that the tool cuts.
    #[must_use]
    pub fn redacting(self, redactor: Arc<dyn Redact>) -> Self {
        Self { redactor: Some(redactor), ..self }
    }

    /// A setting from the manifest's `with:`.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        self.settings.with.get(name)
    }

    /// The folder that the manifest gives this tool to work in.
    pub fn workdir(&self) -> Option<&std::path::Path> {
        self.settings.workdir.as_deref()
    }

    /// The trace that the call belongs to, when whoever asked sent a valid one: for requests that the tool makes, as the
    /// headers `traceparent` and `tracestate`. Calls of other tools inherit it by themselves.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.trace.as_deref()
    }

    /// The value of a variable that the tool declared; an undeclared one is not there.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.settings.env.get(name).map(String::as_str)
    }

    /// Whether the call may be started again after it was begun, as the tool's policy has it.
    pub fn may_repeat(&self) -> bool {
        self.settings.effect.may_repeat()
    }

    /// What the tool may do, as its policy has it.
    pub(crate) fn effect(&self) -> Effect {
        self.settings.effect
    }

    /// Waits for something that the try runs on, such as a free worker. Cancelled meanwhile, the try was none; and who
    /// has left by then is not begun any more.
    pub(crate) async fn waiting<T>(&self, what: impl Future<Output = T>) -> T {
        let left = async {
            self.left.cancelled().await;
            self.cancelled.cancel();
            pending().await
        };
        self.notes.lock().waits = true;
        let what = tokio::select! {
            biased;
            what = what => what,
            never = left => never,
        };
        self.notes.lock().waits = false;
        what
    }

    /// Notes whether the try fell with what it ran on for another call's sake: one misfortune of a runner counts once,
    /// however many calls it met.
    pub(crate) fn fell_with_another(&self, so: bool) {
        self.notes.lock().fell_with_another = so;
    }

    /// A value that the embedding program shares with its tools, one of each type. What differs from call to call, such as a working
    /// folder, the tool asks of the value with what the context says of the call:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::path::PathBuf;
    ///
    /// use serde_json::json;
    /// use toolcrib::{Registry, ToolContext, ToolError, tool};
    ///
    /// /// A folder for each caller and run.
    /// struct Projects(PathBuf);
    ///
    /// impl Projects {
    ///     fn of(&self, call: &ToolContext) -> Result<PathBuf, ToolError> {
    ///         let run = call.run_id.as_deref().unwrap_or("default");
    ///         // A run's name is the caller's word: it must not lead out of the folder.
    ///         if !run.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
    ///             return Err("this run has no folder".into());
    ///         }
    ///         let folder = self.0.join(&*call.caller.name).join(run);
    ///         std::fs::create_dir_all(&folder).map_err(|_| "the folder of this run cannot be made")?;
    ///         Ok(folder)
    ///     }
    /// }
    ///
    /// /// Writes down a note in the folder of this run.
    /// #[tool(effect = "write")]
    /// fn take_note(text: String, context: ToolContext) -> Result<String, ToolError> {
    ///     let folder = context.service::<Projects>().ok_or("no projects are shared")?.of(&context)?;
    ///     std::fs::write(folder.join("note.txt"), text).map_err(|_| "the note cannot be written")?;
    ///     Ok("noted".into())
    /// }
    ///
    /// let folder = tempfile::tempdir()?;
    /// let projects = Projects(folder.path().to_owned());
    /// let registry = Registry::builder().share(projects).tool(take_note::tool()).build().await?;
    /// registry.execute("take_note", json!({"text": "eggs"})).await.ok_or("no such tool")??;
    /// assert_eq!(std::fs::read_to_string(folder.path().join("anonymous/default/note.txt"))?, "eggs");
    /// registry.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn service<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.settings.services.get()
    }

    /// Bytes of a text that was cut, as text: without secrets and without what the cut has left of one. Half a secret is
    /// not found afterwards, so a tool that leaves out part of what it got from elsewhere does it by this.
    pub fn excerpt(&self, bytes: &[u8], torn: Torn) -> String {
        let text = decode(bytes, torn);
        match &self.redactor {
            Some(redactor) => redactor.excerpt(&text, torn).into_owned(),
            None => text.into_owned(),
        }
    }

    /// The part as text, as [`ToolContext::excerpt`] gives it; what stands beside the part tells what lies across its ends.
    pub(crate) fn excerpt_between(&self, bytes: Between<'_>) -> String {
        bytes.excerpt(self.redactor.as_deref())
    }

    /// Bytes beside a part that [`ToolContext::excerpt_between`] needs to know.
    pub(crate) fn reach(&self) -> usize {
        self.redactor.as_ref().map_or(0, |redactor| redactor.reach())
    }

    /// The text without secrets, then cut after `most` bytes with a word about the rest.
    pub(crate) fn shortened(&self, text: &str, most: usize) -> String {
        let mut text = self.excerpt(text.as_bytes(), Torn::NOWHERE);
        shorten(&mut text, most);
        text
    }

    /// Where a text of which more will come may be divided, at `end` or before it, so that no secret lies across.
    pub(crate) fn settled(&self, text: &str, end: usize) -> usize {
        self.redactor.as_ref().map_or(end, |redactor| redactor.settled(text, end))
    }

    /// Tells whoever listens how far the tool is, in whatever words or numbers fit: a `progress` event of the caller's
    /// stream. Never waits, goes nowhere when nobody listens, and is on no record. Secrets of the manifest are taken
    /// out, texts end after 4 KiB, and data of more than 16 KiB is left out.
    pub fn progress(&self, data: impl Into<Value>) {
        self.progress_after(0, data);
    }

    /// The same, with how much the tool left out since it last told.
    pub(crate) fn progress_after(&self, missed: u64, data: impl Into<Value>) {
        if let Some(reporter) = self.reporter.as_ref().filter(|reporter| reporter.is_heard()) {
            reporter.report(data.into(), missed);
        }
    }

    /// Whether anybody listens to [`ToolContext::progress`]: for what is costly to find out.
    pub fn is_watched(&self) -> bool {
        self.reporter.as_ref().is_some_and(Reporter::is_heard)
    }

    /// Names of tools that the request denies, as they were written.
    pub(crate) fn denied(&self) -> &[String] {
        &self.lineage.deny
    }

    /// What a model was asked for this call so far, in earlier tries too.
    pub(crate) fn model_usage(&self) -> ModelUsage {
        self.notes.lock().meta.model.unwrap_or_default()
    }

    /// Says what a model was asked for this call: the answer's `meta.model`.
    pub(crate) fn used_model(&self, usage: ModelUsage) {
        self.notes.lock().meta.model = Some(usage);
    }

    /// Says which call's recorded result is the answer, so that the row of this one need not hold it again.
    pub(crate) fn answered_by(&self, origin: InvocationId) {
        self.notes.lock().origin = Some(origin);
    }

    /// Adds a sentence to the answer's `meta.warnings`.
    pub fn warn(&self, text: impl Into<String>) {
        self.notes.lock().meta.warnings.push(text.into());
    }
}
