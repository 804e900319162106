//! What a tool knows about the call that it runs.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call_chain::CallChain;
use super::caller::Caller;
use super::context_fields::ContextFields;
use super::definition::ToolName;
use super::invocation::{CallSignals, Invocation};
use super::invocation_id::InvocationId;
use super::json::JsonObject;
use super::meta::ModelUsage;
use super::policy::Effect;
use super::progress::{Event, Progress, ProgressObserver, ProgressSink};
use super::question::{AskError, Question, QuestionAnswer, QuestionSink};
use super::queued_attempt::QueuedAttempt;
use super::redact::{CutEnds, Redact, SurroundedPart, decode_lossy, shorten_text};
use super::report::CallReport;
use super::trace::{CallSpan, ChildSpan, ChildWork, TraceContext};

/// Values that the embedding program shares with its tools, one of each type: a pool, a client, a
/// project root.
#[derive(Clone, Default)]
pub struct Services(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Services {
    /// Adds a value. A second value of the same type replaces the first.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0
            .get(&TypeId::of::<T>())
            .and_then(|value| value.downcast_ref())
    }
}

/// The part of the context that belongs to the tool, not to the call: its settings and access rules
/// from the manifest.
#[derive(Default)]
pub struct ToolSettings {
    /// The tool's `with:` of the manifest.
    pub with: JsonObject,
    /// The tool's `workdir:` of the manifest, as an absolute path.
    pub workdir: Option<PathBuf>,
    /// Values of the declared environment variables, by name.
    pub env: HashMap<String, String>,
    /// The values that the embedding program shares.
    pub services: Services,
    /// The tool's effect. It decides whether an attempt may be repeated.
    pub effect: Effect,
    /// Which fields of the caller's `context` reach the tool.
    pub context: ContextFields,
    /// Learns of the progress of all calls, beside the client that listens to one call.
    pub progress_observer: Option<Arc<dyn ProgressObserver>>,
}

/// What a tool gets with every attempt, beside the arguments.
#[derive(Clone)]
pub struct ToolContext {
    /// The call's id, also the key of its row in the ledger.
    pub invocation_id: InvocationId,
    /// The registered name of the tool, even if the call used an alias.
    pub tool: ToolName,
    /// The caller of the tool.
    pub caller: Arc<Caller>,
    /// The caller's run, if it named one.
    pub run_id: Option<Arc<str>>,
    /// The model's id for the call.
    pub tool_use_id: Option<Arc<str>>,
    /// The caller's `context` object. A tool that declares fields gets only these.
    pub context: Arc<JsonObject>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// When the attempt must have ended.
    pub deadline: Instant,
    /// Cancelled when the tool must stop. An async tool is dropped then. A blocking tool should
    /// check the token from time to time.
    pub cancelled: CancellationToken,
    report: Arc<CallReport>,
    settings: Arc<ToolSettings>,
    redactor: Option<Arc<dyn Redact>>,
    pub(super) call_chain: CallChain,
    pub(super) request_id: Option<Arc<str>>,
    pub(super) trace: Option<Arc<TraceContext>>,
    span: Option<Arc<CallSpan>>,
    pub(super) progress: Option<ProgressSink>,
    pub(super) questions: Option<QuestionSink>,
    pub(super) signals: Arc<CallSignals>,
}

impl ToolContext {
    /// The context of one attempt.
    pub fn new(invocation: &Invocation, deadline: Instant, settings: Arc<ToolSettings>) -> Self {
        Self {
            invocation_id: invocation.id,
            tool: invocation.tool.clone(),
            caller: invocation.caller.clone(),
            run_id: invocation.run.id.clone(),
            tool_use_id: invocation.correlation.tool_use_id.clone(),
            context: settings.context.filter_context(&invocation.input.context),
            attempt: invocation.attempt,
            deadline,
            cancelled: invocation.signals.cancelled.clone(),
            signals: invocation.signals.clone(),
            report: invocation.report.clone(),
            settings,
            redactor: None,
            call_chain: invocation.call_chain.clone(),
            request_id: invocation.correlation.request_id.clone(),
            trace: invocation
                .correlation
                .span
                .outgoing(invocation.attempt, invocation.correlation.trace.as_ref()),
            span: invocation.correlation.span.recorded().cloned(),
            progress: invocation.delivery.progress.clone(),
            questions: invocation.delivery.questions.clone(),
        }
    }

    /// Adds the redactor for texts that the tool cuts.
    #[must_use]
    pub fn with_redactor(self, redactor: Arc<dyn Redact>) -> Self {
        Self {
            redactor: Some(redactor),
            ..self
        }
    }

    /// A setting from the manifest's `with:`.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        self.settings.with.get(name)
    }

    /// The working directory that the manifest gives this tool.
    pub fn workdir(&self) -> Option<&std::path::Path> {
        self.settings.workdir.as_deref()
    }

    /// The trace of the call, if the request had a valid one or the service records spans. A tool
    /// sends it with its own requests in the headers `traceparent` and `tracestate`. Nested calls
    /// inherit it automatically. If the service records spans, it names the span of the attempt.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.trace.as_deref()
    }

    /// The trace context for a request to a model: that of the request's own span, if the call is
    /// recorded.
    pub(crate) fn model_request_trace(&self, turn: u32) -> Option<Arc<TraceContext>> {
        match &self.span {
            Some(span) => Some(span.model_request_trace(self.attempt, turn, self.trace())),
            None => self.trace.clone(),
        }
    }

    /// Records a request to a model that has ended now, if the call is recorded. `tokens` are those
    /// that the model read and wrote.
    pub(crate) fn record_model_request(
        &self,
        turn: u32,
        model: &Arc<str>,
        tokens: (u64, u64),
        started: Instant,
        error: Option<&'static str>,
    ) {
        let Some(span) = &self.span else { return };
        span.add_child(ChildSpan {
            span_id: span.model_request_id(self.attempt, turn),
            parent_id: span.attempt_id(self.attempt),
            work: ChildWork::ModelRequest {
                model: model.clone(),
                turn,
                input_tokens: tokens.0,
                output_tokens: tokens.1,
            },
            started,
            ended: Instant::now(),
            error,
        });
    }

    /// The value of an environment variable that the tool declared. An undeclared variable is
    /// `None`.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.settings.env.get(name).map(String::as_str)
    }

    /// Whether the tool's effect permits that a started call runs again.
    pub fn may_repeat(&self) -> bool {
        self.settings.effect.may_repeat()
    }

    /// The tool's effect, from its policy.
    pub(crate) fn effect(&self) -> Effect {
        self.settings.effect
    }

    /// Waits for a resource that the attempt needs, such as a free worker. If the call is cancelled
    /// meanwhile, the attempt does not count. If the caller disconnects meanwhile, the tool does
    /// not start.
    pub(crate) async fn wait_for<T>(&self, resource: impl Future<Output = T>) -> T {
        let queued = self.queue_attempt();
        let resource = tokio::select! {
            biased;
            resource = resource => resource,
            () = queued.disconnected() => queued.cancel().await,
        };
        queued.end();
        resource
    }

    /// As [`wait_for`](Self::wait_for), for a resource that another task hands over: the attempt
    /// waits from now on, until its tool starts or the handle says that the wait has ended.
    pub(crate) fn queue_attempt(&self) -> QueuedAttempt {
        QueuedAttempt::new(&self.report, &self.signals)
    }

    /// Notes whether the attempt failed because another call ended the process that both used. Such
    /// a failure does not count toward the circuit breaker: one crash of a runner counts once,
    /// however many calls it affected.
    pub(crate) fn set_shared_failure(&self, is_shared: bool) {
        self.report.attempt.lock().shared_failure = is_shared;
    }

    /// Notes that a call below this one sends credentials of the caller, so that the result is for
    /// this caller only.
    pub(crate) fn note_caller_credentials(&self) {
        self.report.note_caller_credentials();
    }

    /// A value that the embedding program shares with its tools, one of each type. If something
    /// differs from call to call, such as a working folder, the tool computes it from the shared
    /// value and the context:
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
    ///         // The caller chooses the name of the run, so it must not lead out of the folder.
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

    /// Bytes of a text that was cut, as text: without secrets, and without the part of a secret
    /// that the cut has left. Such a part cannot be recognized later. So a tool that shortens
    /// foreign output must use this method.
    pub fn excerpt(&self, bytes: &[u8], cut_ends: CutEnds) -> String {
        let text = decode_lossy(bytes, cut_ends);
        match &self.redactor {
            Some(redactor) => redactor.excerpt(&text, cut_ends).into_owned(),
            None => text.into_owned(),
        }
    }

    /// The part as text, as [`ToolContext::excerpt`] gives it. The bytes beside the part show
    /// secrets that lie across its ends.
    pub(crate) fn excerpt_between(&self, bytes: SurroundedPart<'_>) -> String {
        bytes.excerpt(self.redactor.as_deref())
    }

    /// Number of bytes beside a part that [`ToolContext::excerpt_between`] needs.
    pub(crate) fn max_secret_len(&self) -> usize {
        self.redactor
            .as_ref()
            .map_or(0, |redactor| redactor.max_secret_len())
    }

    /// The text without secrets, then cut after `max_bytes` bytes with a note about the rest.
    pub(crate) fn redact_and_shorten(&self, text: &str, max_bytes: usize) -> String {
        let mut text = self.excerpt(text.as_bytes(), CutEnds::NONE);
        shorten_text(&mut text, max_bytes);
        text
    }

    /// Where a text that will grow may be divided: at `end` or before it, so that no secret lies
    /// across the position.
    pub(crate) fn safe_split(&self, text: &str, end: usize) -> usize {
        self.redactor
            .as_ref()
            .map_or(end, |redactor| redactor.safe_split(text, end))
    }

    /// Reports progress, in any text or data: a `progress` event of the caller's stream. It never
    /// waits, is dropped if no client listens, and is not recorded. Secrets of the manifest are
    /// removed, texts end after 4 KiB, and data of more than 16 KiB is left out.
    pub fn progress(&self, data: impl Into<Value>) {
        self.progress_with_missed(0, data);
    }

    /// Reports progress, with the number of events that the tool itself has left out since the last
    /// one.
    pub(crate) fn progress_with_missed(&self, missed: u64, data: impl Into<Value>) {
        let sink = self.progress.as_ref().filter(|sink| sink.has_listener());
        let observer = self.listening_observer();
        if sink.is_none() && observer.is_none() {
            return;
        }
        let mut data = data.into();
        // The order matters: cutting first could leave half a secret, which is no longer found.
        if let Some(redactor) = &self.redactor {
            redactor.redact_progress(&mut data);
        }
        let call = (self.invocation_id, self.tool.clone());
        let progress = Progress::new(call, self.tool_use_id.clone(), data, missed);
        if let Some(sink) = sink {
            sink.send(Event::Progress(progress.clone()));
        }
        if let Some(observer) = observer {
            observer.observe_progress(&self.caller.name, progress);
        }
    }

    /// Asks the caller of the call, and waits for the answer: `schema` is the JSON Schema of the
    /// answer's content, an object with simple properties. `name` tells the questions of one call
    /// apart. Secrets of the manifest are removed. The time counts toward the tool's `timeout`.
    ///
    /// # Errors
    /// [`AskError`], for example if the caller cannot be asked.
    pub async fn ask(
        &self,
        message: &str,
        schema: Option<Value>,
        name: Option<&str>,
    ) -> Result<QuestionAnswer, AskError> {
        let Some(questions) = &self.questions else {
            return Err(AskError::NotPossible);
        };
        let is_shown = |c: &char| !c.is_control() || *c == '\n';
        let mut shown = Value::from(message.chars().filter(is_shown).collect::<String>());
        let mut schema = schema;
        if let Some(redactor) = &self.redactor {
            redactor.redact_progress(&mut shown);
            schema
                .iter_mut()
                .for_each(|schema| redactor.redact_progress(schema));
        }
        let message = shown.as_str().unwrap_or_default().to_owned();
        let question = Question::new(self.tool.clone(), message, schema, name)?;
        questions.ask(question).await
    }

    /// Whether [`ToolContext::ask`] can reach the caller.
    pub fn can_ask(&self) -> bool {
        self.questions.is_some()
    }

    /// Whether a client listens to [`ToolContext::progress`]. Check it before computing costly
    /// progress data.
    pub fn has_listener(&self) -> bool {
        let sink = self.progress.as_ref();
        sink.is_some_and(ProgressSink::has_listener) || self.listening_observer().is_some()
    }

    fn listening_observer(&self) -> Option<&dyn ProgressObserver> {
        let observer = self.settings.progress_observer.as_deref();
        observer.filter(|observer| observer.is_listening())
    }

    /// Patterns of tools that the request denies, as the request wrote them.
    pub(crate) fn denied_patterns(&self) -> &[String] {
        &self.call_chain.deny
    }

    /// The model usage of this call so far, over all attempts.
    pub(crate) fn model_usage(&self) -> ModelUsage {
        self.report.tool.lock().model.unwrap_or_default()
    }

    /// Sets the model usage of this call, which becomes the answer's `meta.model`.
    pub(crate) fn set_model_usage(&self, usage: ModelUsage) {
        self.report.tool.lock().model = Some(usage);
    }

    /// Notes the call whose recorded result is the answer, so that this call's row need not hold it
    /// again.
    pub(crate) fn set_origin(&self, origin: InvocationId) {
        self.report.tool.lock().origin = Some(origin);
    }

    /// Adds a sentence to the answer's `meta.warnings`.
    pub fn warn(&self, text: impl Into<String>) {
        self.report.tool.lock().warnings.push(text.into());
    }
}
