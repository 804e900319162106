//! Builds the entry of a tool: compiles its schemas and builds its stack.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::entry::{EntryParts, definition_fields, hash_fields, own_runner};
use super::{Catalog, Entry};
use crate::access::callers::GrantedTool;
use crate::call::json::hash_parts;
use crate::call::{Policy, Services, ToolSettings};
use crate::kinds::{BuildError, Tool};
use crate::schema::{Schema, SchemaFault};
use crate::stack::concurrency::ToolPermits;
use crate::stack::order::{self, SharedParts};
use crate::stack::usage_limit::ChargeRules;
use crate::stack::validate::ArgumentRules;

/// The inputs for building entries.
pub(crate) struct BuildEnv<'a> {
    pub(crate) shared: &'a SharedParts,
    pub(crate) services: &'a Services,
    /// The switches that admins have set, by tool name.
    pub(crate) switches: &'a HashMap<String, bool>,
    /// The catalog that is replaced. An unchanged tool keeps its whole stack. A changed tool keeps
    /// its permits, because a change must not let twice as many calls run.
    pub(crate) before: &'a Catalog,
}

impl Catalog {
    /// Builds the entry of a tool for this catalog: compiles its schemas and builds its stack.
    pub(crate) fn build(&self, tool: Tool, env: &BuildEnv<'_>) -> Result<Arc<Entry>, BuildError> {
        let mut tool = tool
            .validate()?
            .with_described_patterns()
            .without_large_output_schema()
            .separate_cached_results();
        let own_schema = tool.definition.input_schema.clone();
        let page_fields = tool.add_page_parameters()?;
        let (all, context) = (definition_fields(&tool), tool.context_fields());
        let definition_hash = hash_fields(&all);
        let shown_hash = hash_parts([all.to_string().as_bytes()]);
        let Tool {
            definition,
            compiled_input,
            kind,
            origin,
            policy,
            settings,
            schema_owner,
            quarantined,
            runner,
            ..
        } = tool;
        let policy = Policy {
            capture: policy.capture.or(Some(env.shared.capture)),
            ..policy.with_bounded_times()
        };
        let name = definition.name.clone();
        let grants = Arc::new(self.grants_for(GrantedTool {
            names: &definition.names().collect::<Vec<_>>(),
            tags: &definition.tags,
            finds_tools: runner.traits().finds_tools,
        }));
        let is_on = env
            .switches
            .get(name.as_str())
            .copied()
            .unwrap_or(policy.enabled);
        // An unchanged tool keeps its entry, so its stack, counters and switches stay. With other
        // grants or caller limits it gets a new stack, but keeps its breaker: the runner is the
        // same.
        let before = env.before.by_name.get(&name);
        let parts = EntryParts {
            kind,
            origin,
            schema_owner,
            quarantined,
            shown_hash,
            definition: &definition,
            policy: &policy,
            settings: &settings,
            own_runner: own_runner(&settings, &runner),
        };
        let same = before.filter(|before| before.parts() == parts);
        if let Some(same) = same.filter(|same| {
            *same.grants == *grants && *same.charge_rules.caller_limits() == *self.caller_limits
        }) {
            same.set_enabled(is_on);
            return Ok(same.clone());
        }
        let breaker = match same {
            Some(same) => same.breaker.clone(),
            None => runner.traits().has_one_target.then(Arc::default),
        };
        let fault = |schema: &'static str, fault: SchemaFault| BuildError::InvalidSchema {
            tool: name.to_string(),
            schema,
            message: fault.to_string(),
        };
        let input =
            match compiled_input.filter(|compiled| compiled.is_of(&own_schema, schema_owner)) {
                Some(compiled) => compiled,
                None => Schema::compile_input(own_schema, schema_owner)
                    .map_err(|f| fault("input_schema", f))?
                    .into(),
            };
        let output = definition
            .output_schema
            .clone()
            .map(|schema| Schema::compile_output(schema, schema_owner))
            .transpose();
        let output = output.map_err(|f| fault("output_schema", f))?;
        let rules = Arc::new(ArgumentRules {
            schema: input,
            runner,
            context: context.clone(),
            cache_key_fields: policy
                .cache
                .as_ref()
                .and_then(|cache| cache.context.clone())
                .unwrap_or_default(),
            strict: policy.strict,
            page_fields,
            validation_pool: env.shared.validation_pool.clone(),
            timeout: policy.timeout,
        });
        let enabled = Arc::new(AtomicBool::new(is_on));
        let permits_before = before.map(|before| (before.policy.concurrency, &before.permits));
        let permits = ToolPermits::new(policy.concurrency, permits_before);
        let charge_rules = Arc::new(ChargeRules::new(
            &name,
            &policy.limits,
            self.caller_limits.clone(),
        ));
        let tool_layers = order::ToolLayers {
            kind,
            name,
            definition_hash: definition_hash.clone(),
            generation: hash_parts([definition_hash.as_bytes(), &settings.generation]),
            policy: policy.clone(),
            rules: rules.clone(),
            output_schema: output.map(Arc::new),
            paging: definition.paging,
            settings: Arc::new(ToolSettings {
                progress_observer: Some(Arc::new(env.shared.in_flight_calls.events().clone())),
                ..settings.to_tool_settings(env.services, policy.effect, context)
            }),
            grants: grants.clone(),
            enabled: enabled.clone(),
            quarantined,
            breaker: breaker.clone(),
            permits: permits.clone(),
            charge_rules: charge_rules.clone(),
        };
        let (service, tool_cache) = order::build_stack(tool_layers, env.shared);
        Ok(Arc::new(Entry {
            definition,
            kind,
            origin,
            policy,
            definition_hash,
            shown_hash,
            rules,
            charge_rules,
            service,
            tool_cache,
            settings,
            quarantined,
            grants,
            enabled,
            breaker,
            permits,
            listed: Default::default(),
            tokens: Default::default(),
        }))
    }
}
