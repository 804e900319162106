//! Bounds the size of a program's arguments and variables. Linux limits both together, and a start
//! beyond the limit fails.

use std::collections::BTreeMap;

use rustix::process::{Resource, getrlimit};

use super::argv::Argv;
use super::variables::ContextVariables;
use crate::kinds::{ValueFault, Values};

/// The highest and the lowest limit in Linux, whatever the stack limit is (`bprm_stack_limits` in
/// `fs/exec.c`: 3/4 of `_STK_LIM`, and `ARG_MAX`). In between, the limit is a quarter of the stack
/// limit.
const MAX_LIMIT_BYTES: usize = 6 << 20;
const MIN_LIMIT_BYTES: usize = 128 << 10;
/// Linux also counts the pointer to each argument and variable, and its final NUL.
const BYTES_PER_ITEM: usize = size_of::<usize>() + 1;
/// Reserved for what the service and the kernel add: the variables of the call, the program's path,
/// the interpreter of a script.
const RESERVED_BYTES: usize = 8 << 10;

/// The bound for the calls of one tool.
pub(super) struct SizeLimit {
    /// The most bytes that arguments and variables may have together.
    max_bytes: usize,
    /// The bytes of the variables that are the same in each call.
    variable_bytes: usize,
}

impl SizeLimit {
    /// The bound for a program with these variables, from the service's own stack limit.
    pub(super) fn new(environment: &BTreeMap<String, String>) -> Self {
        // `None` means unlimited.
        let stack = getrlimit(Resource::Stack)
            .current
            .and_then(|bytes| usize::try_from(bytes / 4).ok());
        Self::with_max_bytes(
            stack
                .unwrap_or(MAX_LIMIT_BYTES)
                .clamp(MIN_LIMIT_BYTES, MAX_LIMIT_BYTES),
            environment,
        )
    }

    fn with_max_bytes(max_bytes: usize, environment: &BTreeMap<String, String>) -> Self {
        let variables = environment
            .iter()
            .map(|(name, value)| name.len() + 1 + value.len() + BYTES_PER_ITEM);
        Self {
            max_bytes: max_bytes.saturating_sub(RESERVED_BYTES),
            variable_bytes: variables.sum::<usize>(),
        }
    }

    /// Why a program cannot be started with these values: they are too long together. The fault
    /// names the context if the context alone is too long or is the larger part; then the caller is
    /// at fault. Otherwise it names the longest argument, for the model.
    ///
    /// `is_refused`: the system has refused the start as too long, whatever the count here says. The
    /// result is empty then if no value of the call can be the reason.
    pub(super) fn value_faults(
        &self,
        argv: &Argv,
        variables: &ContextVariables,
        values: Values<'_>,
        is_refused: bool,
    ) -> Vec<ValueFault> {
        let max_bytes = self.max_bytes;
        let bytes = argv.bytes(values, BYTES_PER_ITEM);
        let (fixed, arguments) = (bytes.fixed + self.variable_bytes, bytes.arguments);
        let context = bytes.fields + variables.total_bytes(values.context, BYTES_PER_ITEM);
        if !is_refused && fixed + context + arguments <= max_bytes {
            return Vec::new();
        }
        if context > 0 && (arguments <= context || fixed + context > max_bytes) {
            let message = format!(
                "The fields of `context` that this tool takes have {context} bytes together, but the program accepts at most {max_bytes} \
                 bytes of arguments and variables."
            );
            return vec![ValueFault::Context(message)];
        }
        let longest = argv.longest_argument(values).map(|name| {
            let message = format!(
                "`{name}` is too long: the values in the command line have {arguments} bytes together, but the program accepts at most \
                 {max_bytes} bytes of arguments and variables."
            );
            name.fault("argv", message)
        });
        longest.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::call::{Effect, JsonObject};
    use crate::kinds::BuildContext;
    use crate::kinds::command::CommandItem;

    fn faults(max_bytes: usize, arguments: &Value, context: &Value) -> Vec<ValueFault> {
        let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]});
        let build = BuildContext {
            base_dir: std::path::Path::new("."),
            input_schema: &schema,
            context_fields: &["tenant".to_owned()],
            effect: Effect::Read,
            trusted: true,
        };
        let command =
            ["x", "fixed", "{{ a }}", "{{ b }}"].map(|text| CommandItem::Text(text.to_owned()));
        let (argv, found) = Argv::parse(&command, &build);
        assert_eq!(found, []);
        let environment = BTreeMap::from([("LANG".to_owned(), "C".to_owned())]);
        let (variables, _) = ContextVariables::build(&build, &environment);
        let (arguments, context): (&JsonObject, &JsonObject) =
            (arguments.as_object().unwrap(), context.as_object().unwrap());
        SizeLimit::with_max_bytes(max_bytes, &environment).value_faults(
            &argv,
            &variables,
            Values {
                arguments,
                context,
                credentials: None,
            },
            false,
        )
    }

    #[test]
    fn fault_names_longest_argument() {
        let arguments = json!({"a": "x".repeat(100), "b": "y".repeat(1000)});
        assert_eq!(faults(RESERVED_BYTES + 1300, &arguments, &json!({})), []);
        let found = faults(RESERVED_BYTES + 1000, &arguments, &json!({}));
        assert_eq!((found.len(), found[0].pointer()), (1, "/b"));
        assert!(
            found[0].message().contains("have 1100 bytes together"),
            "{}",
            found[0].message()
        );
    }

    #[test]
    fn long_context_is_a_context_fault() {
        let arguments = json!({"a": "x", "b": "y"});
        let found = faults(
            RESERVED_BYTES + 1000,
            &arguments,
            &json!({"tenant": "t".repeat(2000)}),
        );
        assert!(
            matches!(&found[..], [ValueFault::Context(message)] if message.contains("The fields of `context`")),
            "{found:?}"
        );
        let arguments = json!({"a": "x".repeat(900), "b": "y"});
        let found = faults(
            RESERVED_BYTES + 1000,
            &arguments,
            &json!({"tenant": "t".repeat(200)}),
        );
        assert_eq!(found[0].pointer(), "/a", "the context alone would fit");
    }
}
