//! Tools (definition, policy and runner), and the methods of their builder.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::build_error::BuildError;
use super::runner::Runner;
use crate::call::{
    CachePolicy, CacheScope, CacheWhen, Capture, Concurrency, ContextFields, Definition, Effect,
    EnvVar, Example, Idempotency, JsonObject, Kind, Limit, OnDisconnect, Origin, OutputCheckMode,
    Paging, Policy, RetryPolicy, Services, ToolName, ToolResult, ToolSettings,
};
use crate::environment::Environment;
use crate::schema::{PageFields, Schema, SchemaOwner, describe_unjudged_patterns};
use crate::text::sanitize;

/// A named operation that a model may call: definition, policy and runner.
///
/// `Tool::new` makes a tool without a runner; `call` or `call_blocking` sets the runner.
#[derive(Clone)]
pub struct Tool<R = Arc<dyn Runner>> {
    pub(crate) definition: Definition,
    /// The input schema in compiled form, if the manifest's reader has compiled it already.
    pub(crate) compiled_input: Option<Arc<Schema>>,
    pub(crate) kind: Kind,
    pub(crate) origin: Origin,
    pub(crate) policy: Policy,
    pub(crate) settings: DeclaredSettings,
    pub(crate) schema_owner: SchemaOwner,
    /// Whether the tool is quarantined: its definition differs from the approved one, and no call
    /// reaches the runner.
    pub(crate) quarantined: bool,
    /// The first fault of the builder's settings. It is reported when the tool is registered.
    pub(crate) fault: Option<BuildError>,
    pub(crate) runner: R,
}

/// The tool's own settings, as far as they are known before the service is built.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct DeclaredSettings {
    pub(crate) with: JsonObject,
    pub(crate) workdir: Option<PathBuf>,
    pub(crate) env: HashMap<String, String>,
    /// Secrets besides the values of variables.
    pub(crate) secrets: Vec<String>,
    /// A part of the definition hash: anything that changes what the tool does without showing in
    /// its definition, such as a URL.
    pub(crate) implementation: Option<Value>,
    /// A hash of the same with its references replaced. It is used only in cache keys, because its
    /// input may contain secrets.
    pub(crate) generation: [u8; 32],
    /// The folder at which relative paths of the manifest's entry start. `None` if the runner is
    /// the program's own, because then these settings do not determine what it does.
    pub(crate) base_dir: Option<PathBuf>,
    /// The name of the source that brings the tool.
    pub(crate) source: Option<Arc<str>>,
}

impl Tool<()> {
    /// A tool called `name`. `description` tells the model when to use it.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let text = name.into();
        let (name, fault) = match ToolName::parse(&text) {
            Ok(name) => (name, None),
            Err(error) => (
                ToolName::placeholder(),
                Some(BuildError::InvalidName(text, error)),
            ),
        };
        Self {
            definition: Definition {
                name,
                description: description.into(),
                input_schema: Arc::new(
                    json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
                ),
                output_schema: None,
                annotations: JsonObject::new(),
                meta: JsonObject::new(),
                result_as_answer: false,
                paging: Paging::Caller,
                tags: Vec::new(),
                aliases: Vec::new(),
                env: Vec::new(),
                context: None,
                examples: Vec::new(),
            },
            compiled_input: None,
            kind: Kind::Native,
            origin: Origin::default(),
            policy: Policy::default(),
            settings: DeclaredSettings::default(),
            schema_owner: SchemaOwner::default(),
            quarantined: false,
            fault,
            runner: (),
        }
    }

    pub(crate) fn with_runner(self, runner: Arc<dyn Runner>) -> Tool {
        self.replace_runner(runner).0
    }
}

impl Tool {
    /// The tool with the values of its declared variables.
    ///
    /// # Errors
    /// [`BuildError::MissingEnv`] if a required variable is not set and has no default.
    pub(crate) fn with_env_values(mut self, environment: &Environment) -> Result<Self, BuildError> {
        for var in &self.definition.env {
            let Entry::Vacant(entry) = self.settings.env.entry(var.name.clone()) else {
                continue;
            };
            let value = environment.get_text(&var.name).map(str::to_owned);
            match value.or_else(|| var.default.clone()) {
                Some(value) => drop(entry.insert(value)),
                None if var.is_required() => {
                    return Err(BuildError::MissingEnv {
                        tool: self.definition.name.to_string(),
                        name: var.name.clone(),
                    });
                }
                None => {}
            }
        }
        Ok(self)
    }

    /// The tool, if it can be served as built. Faults of the manifest and of sources are reported
    /// elsewhere.
    ///
    /// # Errors
    /// The fault of the builder, or an empty description of a tool of the program.
    pub(crate) fn validate(self) -> Result<Self, BuildError> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.origin == Origin::Program
                && sanitize::is_blank(&self.definition.description) =>
            {
                Err(BuildError::EmptyDescription(self.name().to_owned()))
            }
            None => Ok(self),
        }
    }

    /// Values that may be secrets. A default is not a secret: it is visible in the program or the
    /// manifest.
    pub(crate) fn secret_values(&self) -> impl Iterator<Item = &str> {
        let is_default = |name: &str, value: &str| {
            let vars = &self.definition.env;
            vars.iter()
                .any(|var| var.name == name && var.default.as_deref() == Some(value))
        };
        let values = self
            .settings
            .env
            .iter()
            .filter(move |(name, value)| !is_default(name, value));
        values
            .map(|(_, value)| value)
            .chain(&self.settings.secrets)
            .map(String::as_str)
    }

    /// Adds the parameters for pages to the schema that callers see. Returns how to read these
    /// parameters; `None` if there are none.
    ///
    /// # Errors
    /// [`BuildError::InvalidSchema`] if the tool uses one of these names for another parameter.
    pub(crate) fn add_page_parameters(&mut self) -> Result<Option<PageFields>, BuildError> {
        let definition = &mut self.definition;
        let pages = PageFields::for_schema(definition.paging, &definition.input_schema);
        let pages = pages.map_err(|fault| BuildError::InvalidSchema {
            tool: definition.name.to_string(),
            schema: "input_schema",
            message: fault.to_string(),
        })?;
        if let Some(pages) = &pages {
            definition.input_schema = Arc::new(pages.add_to_schema(&definition.input_schema));
        }
        Ok(pages)
    }

    /// The fields of the caller's context that reach the runner. A runner that takes fields gets
    /// the declared ones. Without a declaration it gets the whole context, or nothing if it does
    /// not take the context.
    pub(crate) fn context_fields(&self) -> ContextFields {
        match &self.definition.context {
            Some(fields) if self.runner.traits().takes_context_fields => {
                ContextFields::Named(fields.as_slice().into())
            }
            None if self.runner.traits().takes_context => ContextFields::All,
            Some(_) | None => ContextFields::none(),
        }
    }

    /// The tool, with its cached results separated by all declared fields of the context, unless
    /// the cache policy names fields. The reason is that a result may depend on every field that
    /// the tool gets. If calls send credentials of their caller, results are also separated by
    /// caller.
    pub(crate) fn separate_cached_results(mut self) -> Self {
        self.separate_callers();
        let is_declared = self.definition.context.is_some();
        if let (true, ContextFields::Named(fields), Some(cache)) =
            (is_declared, self.context_fields(), &mut self.policy.cache)
        {
            cache.context.get_or_insert_with(|| fields.to_vec());
        }
        self
    }

    /// Separates cached results by caller, if calls send credentials of their caller.
    pub(crate) fn separate_callers(&mut self) {
        if let (false, Some(cache)) = (
            self.runner.caller_credentials().is_empty(),
            &mut self.policy.cache,
        ) {
            cache.scope = CacheScope::Caller;
        }
    }

    /// Whether a call can be attempted: the tool is enabled and approved, and its runner is
    /// available.
    pub(crate) fn is_available(&self) -> bool {
        self.policy.enabled && !self.quarantined && self.runner.is_available()
    }
}

impl<R> Tool<R> {
    /// The tool with another runner, and the runner that it had.
    pub(super) fn replace_runner<N>(self, runner: N) -> (Tool<N>, R) {
        let Self {
            definition,
            compiled_input,
            kind,
            origin,
            policy,
            settings,
            schema_owner,
            quarantined,
            fault,
            runner: replaced,
        } = self;
        let tool = Tool {
            definition,
            compiled_input,
            kind,
            origin,
            policy,
            settings,
            schema_owner,
            quarantined,
            fault,
            runner,
        };
        (tool, replaced)
    }

    /// Adds a required parameter; `json_type` is a JSON Schema type such as `string` or `integer`.
    pub fn param(self, name: &str, json_type: &str, description: &str) -> Self {
        self.add_property(name, json_type, description, true)
    }

    /// Adds an optional parameter.
    pub fn param_opt(self, name: &str, json_type: &str, description: &str) -> Self {
        self.add_property(name, json_type, description, false)
    }

    fn add_property(
        mut self,
        name: &str,
        json_type: &str,
        description: &str,
        required: bool,
    ) -> Self {
        let schema = json!({"type": json_type, "description": description});
        let root = Arc::make_mut(&mut self.definition.input_schema);
        // A schema that is not an object is refused when the tool is registered.
        let Some(root) = root.as_object_mut() else {
            return self;
        };
        if let Some(properties) = root
            .entry("properties")
            .or_insert_with(|| json!({}))
            .as_object_mut()
        {
            properties.insert(name.into(), schema);
        }
        if required
            && let Some(list) = root
                .entry("required")
                .or_insert_with(|| json!([]))
                .as_array_mut()
        {
            list.push(name.into());
        }
        self
    }

    /// Replaces the whole input schema (JSON Schema, draft 2020-12 unless `$schema` says
    /// otherwise).
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.definition.input_schema = Arc::new(schema);
        self
    }

    /// Declares the shape of `structured_content`. A result of another shape is the error
    /// `bad_output`.
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.definition.output_schema = Some(Arc::new(schema));
        self
    }

    /// Sets the effect, which decides what may be repeated and cached. Default: `write`.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.policy.effect = effect;
        self
    }

    /// The timeout of one attempt. Default: 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.timeout = timeout;
        self
    }

    /// The timeout of the whole call. Default: only the timeouts of its attempts.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = Some(deadline);
        self
    }

    /// The most attempts of a call, for `read` and `idempotent` tools. Default: 1.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.policy.retry = RetryPolicy { attempts };
        self
    }

    /// Adds a usage limit.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.policy.limits.push(limit);
        self
    }

    /// Caches results for `ttl`, per caller. `context` names the fields of the caller's context on
    /// which results depend. It is empty if the function does not use the context.
    pub fn cache(mut self, ttl: Duration, context: &[&str]) -> Self {
        let context = Some(context.iter().map(|&field| field.to_owned()).collect());
        self.policy.cache = Some(CachePolicy {
            ttl,
            scope: CacheScope::Caller,
            context,
        });
        self
    }

    /// Shares cached results among all callers.
    pub fn cache_shared(mut self) -> Self {
        if let Some(cache) = &mut self.policy.cache {
            cache.scope = CacheScope::Shared;
        }
        self
    }

    /// Decides which results to cache, from the arguments that the tool got and its result. The
    /// function is called once for each result that would be cached, so it should be quick. It has
    /// no effect without a cache. If it panics, the result is not cached.
    pub fn should_cache(
        mut self,
        predicate: impl Fn(&JsonObject, &ToolResult) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.policy.cache_when = Some(CacheWhen::from_function(predicate));
        self
    }

    /// What the ledger keeps of arguments and results. Default: `ledger.capture` of the manifest,
    /// or else everything.
    pub fn capture(mut self, capture: Capture) -> Self {
        self.policy.capture = Some(capture);
        self
    }

    /// How many calls may run and wait at the same time.
    pub fn concurrency(mut self, concurrency: Concurrency) -> Self {
        self.policy.concurrency = concurrency;
        self
    }

    /// What happens to a call when its caller disconnects.
    pub fn on_disconnect(mut self, behavior: OnDisconnect) -> Self {
        self.policy.on_disconnect = Some(behavior);
        self
    }

    /// Whether calls may or must have an idempotency key. Default: they may.
    pub fn idempotency(mut self, idempotency: Idempotency) -> Self {
        self.policy.idempotency = idempotency;
        self
    }

    /// Permits the same call twice in a row within a run. For tools whose result changes by itself,
    /// and for tools that are polled until something has happened.
    pub fn repeatable(mut self) -> Self {
        self.policy.repeatable = true;
        self
    }

    /// Refuses arguments that need a conversion.
    pub fn strict(mut self) -> Self {
        self.policy.strict = true;
        self
    }

    /// Sets what happens to a result that does not fit the output schema. Default: the call fails.
    pub fn output_check(mut self, mode: OutputCheckMode) -> Self {
        self.policy.output_check = Some(mode);
        self
    }

    /// Marks results as the agent's final answer.
    pub fn result_as_answer(mut self) -> Self {
        self.definition.result_as_answer = true;
        self
    }

    /// Sets who requests the parts of long results. With [`Paging::Model`], the schema that a model
    /// sees has `detail_level`, `offset` and `limit` beside the tool's own parameters. The tool
    /// does not get them, unless it declares them itself. Default: the program that makes the call.
    pub fn paging(mut self, paging: Paging) -> Self {
        self.definition.paging = paging;
        self
    }

    /// The folder in which the tool works: `ToolContext::workdir`. A shared service can set another
    /// folder for each call, as [`ToolContext::service`](crate::ToolContext::service) shows.
    pub fn workdir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.workdir = Some(folder.into());
        self
    }

    /// Declares a required environment variable. The service does not start without it.
    pub fn env(self, name: &str, description: &str) -> Self {
        self.env_var(EnvVar {
            name: name.into(),
            description: description.into(),
            required: true,
            default: None,
        })
    }

    /// Declares an environment variable with all its settings.
    pub fn env_var(mut self, var: EnvVar) -> Self {
        self.definition.env.push(var);
        self
    }

    /// Declares the fields of the caller's `context` that the tool takes. It gets only these.
    /// Cached results are separated by them, unless [`Tool::cache`] names other fields. Without
    /// this declaration, a function gets the whole context.
    ///
    /// A name has 1 to 64 characters of `A-Z a-z 0-9 _ -`, and starts with a letter or `_`. There
    /// are at most 32 names.
    pub fn context(mut self, fields: &[&str]) -> Self {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        if let Err((_, message)) = ContextFields::validate_names(&fields) {
            let tool = self.name().to_owned();
            self.fault
                .get_or_insert(BuildError::InvalidContext { tool, message });
        }
        self.definition.context = Some(fields);
        self
    }

    /// Adds a tag, a label of the tool.
    pub fn tag(mut self, tag: &str) -> Self {
        self.definition.tags.push(tag.into());
        self
    }

    /// Adds another exact name of the tool.
    pub fn alias(mut self, name: &str) -> Self {
        match ToolName::parse(name) {
            Ok(alias) => self.definition.aliases.push(alias),
            Err(error) => {
                self.fault
                    .get_or_insert(BuildError::InvalidName(name.into(), error));
            }
        }
        self
    }

    /// Sets an MCP annotation such as `title`.
    pub fn annotation(mut self, name: &str, value: Value) -> Self {
        self.definition.annotations.insert(name.into(), value);
        self
    }

    /// Adds an example call. The page of the API offers the first one, so a call with these
    /// arguments should succeed. A value that is not an object stands for no arguments.
    pub fn example(mut self, arguments: Value) -> Self {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => JsonObject::new(),
        };
        let result = None;
        self.definition.examples.push(Example { arguments, result });
        self
    }

    /// The tool with patterns in its descriptions instead, where they cannot be checked.
    pub(crate) fn with_described_patterns(mut self) -> Self {
        let definition = &mut self.definition;
        let schemas = [&mut definition.input_schema].into_iter();
        for schema in schemas.chain(&mut definition.output_schema) {
            if let Some(described) = describe_unjudged_patterns(schema, self.schema_owner) {
                *schema = Arc::new(described);
            }
        }
        self
    }

    /// A tool works without its output schema. So a schema that is too large must not remove the
    /// tool.
    pub(crate) fn without_large_output_schema(mut self) -> Self {
        if let Some(fault) = self
            .definition
            .output_schema
            .as_deref()
            .and_then(Schema::check_size)
        {
            tracing::warn!(
                tool = self.name(),
                "served without its output schema, which is too large: {fault}"
            );
            self.definition.output_schema = None;
        }
        self
    }

    /// The name under which the tool is registered.
    pub fn name(&self) -> &str {
        self.definition.name.as_str()
    }
}

impl DeclaredSettings {
    /// The settings that a running tool gets.
    pub(crate) fn to_tool_settings(
        &self,
        services: &Services,
        effect: Effect,
        context: ContextFields,
    ) -> ToolSettings {
        ToolSettings {
            effect,
            context,
            with: self.with.clone(),
            workdir: self.workdir.clone(),
            env: self.env.clone(),
            services: services.clone(),
            progress_observer: None,
        }
    }
}
