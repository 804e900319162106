//! Tests with real programs and real processes. No test sleeps for a fixed time: each polls until
//! its condition is true.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::call::{
    Caller, Content, Effect, Invocation, JsonObject, ToolContext, ToolError, ToolName, ToolResult,
    ToolSettings, UpstreamFailure,
};
use crate::kinds::{BuildContext, ConfigFault, Runner, ValueFault, Values};

/// How long a condition may take to become true.
const PATIENCE: Duration = Duration::from_secs(10);

fn invocation() -> Invocation {
    let (tool, caller) = (ToolName::parse("t").unwrap(), Arc::new(Caller::anonymous()));
    Invocation::new(tool, JsonObject::new(), caller, jiff::Timestamp::now())
}

fn context(invocation: &Invocation) -> ToolContext {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    ToolContext::new(invocation, deadline, Arc::new(ToolSettings::default()))
}

type BuildResult = Result<(Arc<dyn Runner>, Vec<ConfigFault>), Vec<ConfigFault>>;

fn build_with(config: Value, schema: &Value, effect: Effect) -> BuildResult {
    let config = serde_json::from_value(config).unwrap();
    build(
        config,
        &BuildContext {
            base_dir: Path::new("/tmp"),
            input_schema: schema,
            context_fields: &["tenant".to_owned(), "user-id".to_owned()],
            effect,
            trusted: true,
        },
    )
}

/// A runner with the string parameters `a` and `b`, both required.
fn runner(config: Value, effect: Effect) -> Arc<dyn Runner> {
    let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]});
    build_with(config, &schema, effect)
        .unwrap_or_else(|faults| panic!("{faults:?}"))
        .0
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        other => panic!("{other}"),
    }
}

async fn call(
    runner: &Arc<dyn Runner>,
    arguments: Value,
) -> (Result<ToolResult, ToolError>, Vec<String>) {
    let invocation = invocation();
    let result = runner.call(object(arguments), context(&invocation)).await;
    let warnings = invocation.report.tool.lock().warnings.clone();
    (result, warnings)
}

/// The result of `/bin/sh -c script`, and the warnings of the call.
async fn run_shell(script: &str, more: Value) -> (Result<ToolResult, ToolError>, Vec<String>) {
    let mut config = json!({"command": ["/bin/sh", "-c", script], "stdin": ""});
    config
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    call(&runner(config, Effect::Read), json!({})).await
}

fn wait_until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = holds() {
            return value;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Processes, other than this one, with `needle` in their environment or command line.
fn survivors(needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    let me = std::process::id().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let holds = |bytes: Vec<u8>| {
            bytes
                .windows(needle.len())
                .any(|window| window == needle.as_bytes())
        };
        let name = entry.file_name().into_string().unwrap();
        if name != me
            && name.parse::<u32>().is_ok()
            && (holds(read("environ")) || holds(read("cmdline")))
        {
            found.push(name);
        }
    }
    found
}

/// The number of dead children of this process that have not been reaped.
fn zombies() -> usize {
    let zombie = format!(") Z {} ", std::process::id());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(&zombie)).count()
}

fn open_files() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    // Counts pipes and pidfds only: other tests open files at the same time.
    let link = |entry: std::fs::DirEntry| {
        std::fs::read_link(entry.path())
            .ok()?
            .to_str()
            .map(str::to_owned)
    };
    entries
        .filter_map(link)
        .filter(|link| link.starts_with("pipe:") || link.contains("pidfd"))
        .collect()
}

fn text(result: (Result<ToolResult, ToolError>, Vec<String>)) -> String {
    let result = result.0.unwrap();
    assert!(!result.is_error, "{result:?}");
    result.as_text()
}

mod config {
    use super::*;

    fn faults(config: Value) -> Vec<(String, String, bool)> {
        let schema =
            json!({"properties": {"a": {}, "opt": {}, "def": {"default": 1}}, "required": ["a"]});
        let faults = match build_with(config, &schema, Effect::Read) {
            Ok((_, warnings)) => warnings,
            Err(faults) => faults,
        };
        faults
            .into_iter()
            .map(|fault| (fault.path.join("."), fault.message, fault.warning))
            .collect()
    }

    #[test]
    fn values_that_calls_refuse_are_warnings() {
        let messages = |command: &[&str], parameter: Value| {
            let schema = json!({"properties": {"n": parameter}, "required": ["n"]});
            let config = json!({"command": command});
            let (_, warnings) = build_with(config, &schema, Effect::Read)
                .unwrap_or_else(|faults| panic!("{faults:?}"));
            warnings
                .into_iter()
                .map(|fault| fault.message)
                .collect::<Vec<_>>()
        };
        let negative = "`n` can be negative, and calls refuse a value here that begins with `-`: write `minimum: 0`, or put \
                        an item `--` or the name of a long option before it";
        let listed = "`n` can be `-l`, and calls refuse a value here that begins with `-`: put an item `--` before it";
        let bare = ["/bin/echo", "-n", "{{ n }}"];
        for parameter in [
            json!({"type": "integer"}),
            json!({"type": ["number", "null"], "minimum": -180}),
        ] {
            assert_eq!(messages(&bare, parameter.clone()), [negative]);
            assert_eq!(
                messages(&["/bin/echo", "--lon", "{{ n }}"], parameter.clone()),
                [""; 0]
            );
            assert_eq!(
                messages(&["/bin/echo", "--", "x", "{{ n }}"], parameter),
                [""; 0]
            );
        }
        for parameter in [
            json!({"type": "integer", "minimum": 0}),
            json!({"type": "integer", "exclusiveMinimum": -1}),
            json!({"type": "integer", "enum": [1, 2]}),
            json!({"type": "string"}),
            json!({}),
        ] {
            assert_eq!(messages(&bare, parameter), [""; 0]);
        }
        let parameter = json!({"type": "string", "enum": ["a", "-l"]});
        assert_eq!(messages(&bare, parameter.clone()), [listed]);
        assert_eq!(
            messages(&["/bin/echo", "--lon", "{{ n }}"], parameter),
            [listed]
        );
    }

    #[test]
    fn all_config_faults_are_reported_with_paths() {
        let found = faults(json!({
            "command": ["{{ a }}", "--{{ a }}", "{{ nope }}", "{{ opt }}", "{{ def }}", "{{ a", "x{{ a }}{{ def }}"],
            "stdin": "{{ other }}", "workdir": "/no/such/folder", "environment": {"A=B": "", "TOOLCRIB_INVOCATION": "1"},
            "max_output": "5MiB",
        }));
        let paths: Vec<&str> = found.iter().map(|(path, ..)| path.as_str()).collect();
        let expected = [
            "command.0",
            "command.1",
            "command.2",
            "command.3",
            "command.5",
            "command.0",
            "stdin",
            "workdir",
            "environment.A=B",
            "environment.TOOLCRIB_INVOCATION",
            "max_output",
        ];
        assert_eq!(paths, expected, "{found:#?}");
        assert_eq!(
            found[1].1,
            "`a` would choose the option: write the option's name before the value"
        );
        assert!(found[2].1.contains("no parameter `nope`"), "{found:?}");
        let optional = "some calls have no value for `opt`: write `{when: opt, args: [\"{{ opt }}\"]}`, give it a default or make \
                        it required";
        assert_eq!(found[3].1, optional);
        assert_eq!(faults(json!({"command": []}))[0].0, "command");
    }

    #[test]
    fn missing_program_is_a_warning() {
        for command in ["no-such-program-here", "./no/such/program", "/etc/passwd"] {
            let found = faults(json!({"command": [command]}));
            assert!(
                matches!(found.as_slice(), [(path, _, true)] if path == "command.0"),
                "{found:?}"
            );
        }
        assert_eq!(faults(json!({"command": ["wc", "-w", "{{ a }}"]})), []);
    }

    #[test]
    fn conditional_items_are_checked() {
        for (item, path, message) in [
            (
                json!({"when": "opt", "args": ["--opt={{ opt }}", {"when": "def", "args": ["{{ opt }}"]}]}),
                "",
                "",
            ),
            (
                json!({"when": "context.tenant", "args": ["{{ context.tenant }}"]}),
                "",
                "",
            ),
            (
                json!({"each": "list", "args": ["--at={{ item }}:{{ a }}"]}),
                "",
                "",
            ),
            (
                json!({"when": "opt", "args": ["{{ late }}"]}),
                "command.1.args.0",
                "some calls have no value for `late`",
            ),
            (
                json!({"when": "nope", "args": ["x"]}),
                "command.1.when",
                "the tool has no parameter `nope`",
            ),
            (
                json!({"when": "{{ opt }}", "args": ["x"]}),
                "command.1.when",
                "without `{{ }}`",
            ),
            (
                json!({"when": "opt", "args": []}),
                "command.1.args",
                "must not be empty",
            ),
            (
                json!({"each": "text"}),
                "command.1.each",
                "`text` has the type string",
            ),
            (
                json!({"each": "context.tenant"}),
                "command.1.each",
                "is one value",
            ),
            (
                json!({"each": "list", "args": ["-v"]}),
                "command.1.args",
                "must contain `{{ item }}`",
            ),
            (
                json!({"each": "list", "args": ["--{{ item }}"]}),
                "command.1.args.0",
                "would choose the option",
            ),
            (json!("{{ item }}"), "command.1", "no parameter `item`"),
        ] {
            let schema = json!({
                "properties": {
                    "a": {}, "opt": {}, "late": {}, "def": {"default": 1}, "list": {"type": "array"}, "text": {"type": "string"},
                },
                "required": ["a"],
            });
            let found = match build_with(json!({"command": ["true", item]}), &schema, Effect::Read)
            {
                Ok((_, warnings)) => warnings,
                Err(faults) => faults,
            };
            match found.as_slice() {
                [] => assert_eq!(path, "", "{item}"),
                [fault] => {
                    assert!(
                        fault.path.join(".") == path && fault.message.contains(message),
                        "{item}: {fault:?}"
                    );
                }
                more => panic!("{item}: {more:?}"),
            }
        }
        let schema = json!({"properties": {"item": {}, "list": {}}, "required": ["item"]});
        let taken = build_with(
            json!({"command": ["x", {"each": "list", "args": ["{{ item }}"]}]}),
            &schema,
            Effect::Read,
        );
        assert!(taken.err().unwrap()[0].message.contains("another name"));
    }

    #[test]
    fn output_file_path_is_checked() {
        for (path, message) in [
            ("{{ stdout }}", ""),
            ("charts/{{ a }}.png", ""),
            ("", "name a file"),
            ("{{ opt }}", "some calls have no value for `opt`"),
            ("{{ nope }}", "no parameter `nope`"),
        ] {
            let found = faults(json!({"command": ["true"], "output": {"file": path}}));
            match found.as_slice() {
                [] => assert_eq!(message, "", "{path}"),
                [(key, text, false)] => assert!(
                    key == "output.file" && text.contains(message),
                    "{path}: {found:?}"
                ),
                more => panic!("{path}: {more:?}"),
            }
        }
    }

    #[test]
    fn unknown_keys_and_numbers_are_rejected() {
        for bad in [
            json!({"command": ["a"], "shell": true}),
            json!({"command": ["a", 1]}),
            json!({}),
        ] {
            assert!(
                serde_json::from_value::<Config>(bad.clone()).is_err(),
                "{bad}"
            );
        }
    }
}

mod arguments {
    use super::*;

    #[tokio::test]
    async fn value_is_one_argument() {
        let show = runner(
            json!({"command": ["printf", "[%s]", "{{ a }}", "{{ b }}"]}),
            Effect::Read,
        );
        for (a, b, expected) in [
            (
                json!("x y; rm -rf / $HOME `id` 'q' \"p\" \n*"),
                json!(1.5),
                "[x y; rm -rf / $HOME `id` 'q' \"p\" \n*][1.5]",
            ),
            (
                json!({"k": [1, null]}),
                json!([true, "s"]),
                r#"[{"k":[1,null]}][[true,"s"]]"#,
            ),
            (json!(null), json!(false), "[][false]"),
            (json!("{{ b }}"), json!("é"), "[{{ b }}][é]"),
        ] {
            assert_eq!(text(call(&show, json!({"a": a, "b": b})).await), expected);
        }
    }

    #[test]
    fn invalid_values_are_rejected_before_start() {
        let open = runner(
            json!({"command": ["printf", "{{ a }}", "--", "{{ b }}"]}),
            Effect::Read,
        );
        let long = "x".repeat(200_000);
        for (arguments, pointers) in [
            (json!({"a": "--help", "b": "--help"}), vec!["/a"]),
            (json!({"a": -5, "b": -5}), vec!["/a"]),
            (json!({"a": "x\0y", "b": "x\0y"}), vec!["/a", "/b"]),
            (json!({"a": "", "b": long}), vec!["/b"]),
            (json!({"a": "x-y", "b": ["\0"]}), vec![]),
        ] {
            let faults = open.value_faults(Values::from_arguments(&object(arguments)));
            assert_eq!(
                faults
                    .iter()
                    .map(|fault| fault.pointer())
                    .collect::<Vec<_>>(),
                pointers
            );
            assert!(faults.iter().all(
                |fault| matches!(fault, ValueFault::Argument(one) if one.keyword == "argv" && one.message.ends_with('.'))
            ));
        }
    }

    fn optional_runner(command: Value) -> Arc<dyn Runner> {
        let schema = json!({"properties": {
            "since": {"type": "string"}, "verbose": {"type": "boolean"}, "paths": {"type": "array"}, "count": {"type": "integer"},
        }});
        build_with(json!({"command": command}), &schema, Effect::Read)
            .unwrap_or_else(|faults| panic!("{faults:?}"))
            .0
    }

    #[tokio::test]
    async fn optional_items_follow_the_arguments() {
        let show = optional_runner(json!([
            "printf", "[%s]", "log",
            {"when": "since", "args": ["--since={{ since }}", {"when": "verbose", "args": ["-v"]}]},
            {"when": "count", "args": ["-{{ count }}"]},
            {"when": "paths", "args": ["--", {"each": "paths"}]},
            {"each": "paths", "args": ["--path", "{{ item }}.txt"]},
        ]));
        for (arguments, expected) in [
            (json!({}), "[log]"),
            (
                json!({"since": null, "verbose": true, "paths": []}),
                "[log]",
            ),
            (
                json!({"since": "-1 day", "verbose": false}),
                "[log][--since=-1 day]",
            ),
            (
                json!({"since": "", "verbose": true, "count": 5}),
                "[log][--since=][-v][-5]",
            ),
            (
                json!({"paths": ["a b", 2]}),
                "[log][--][a b][2][--path][a b.txt][--path][2.txt]",
            ),
        ] {
            assert_eq!(text(call(&show, arguments).await), expected);
        }
    }

    #[test]
    fn elements_are_guarded_like_values() {
        let show = optional_runner(json!([
            "printf", {"each": "paths"}, {"when": "since", "args": ["--", "{{ since }}", {"each": "paths"}]}, {"each": "paths", "args": ["-p{{ item }}"]},
        ]));
        let long = "x".repeat(200_000);
        for (arguments, expected) in [
            (json!({"paths": ["a", "--b", "-c"]}), vec!["/paths/1"]),
            (
                json!({"paths": ["a", "x\0"], "since": "-1"}),
                vec!["/paths/1"; 3],
            ),
            (json!({"paths": [long]}), vec!["/paths/0"; 2]),
            (json!({"paths": "a"}), vec!["/paths"; 2]),
            (json!({"since": "-1", "paths": []}), vec![]),
        ] {
            let faults = show.value_faults(Values::from_arguments(&object(arguments)));
            assert_eq!(
                faults
                    .iter()
                    .map(|fault| fault.pointer())
                    .collect::<Vec<_>>(),
                expected
            );
        }
        let faults = show.value_faults(Values::from_arguments(&object(json!({"paths": ["--b"]}))));
        assert_eq!(
            faults[0].message(),
            "`paths[0]` must not begin with `-`, because the program would read it as an option."
        );
    }

    #[test]
    fn value_at_the_start_is_guarded() {
        let show = runner(
            json!({"command": ["printf", "{{ a }}{{ b }}.txt", "--name={{ a }}"]}),
            Effect::Read,
        );
        for (arguments, pointers) in [
            (json!({"a": "-x", "b": ""}), vec!["/a"]),
            (json!({"a": "", "b": "-x"}), vec!["/b"]),
            (json!({"a": "x", "b": "-x"}), vec![]),
        ] {
            let faults = show.value_faults(Values::from_arguments(&object(arguments)));
            assert_eq!(
                faults
                    .iter()
                    .map(|fault| fault.pointer())
                    .collect::<Vec<_>>(),
                pointers
            );
        }
    }

    #[test]
    fn long_lists_are_rejected_before_start() {
        let show =
            optional_runner(json!(["printf", {"each": "paths", "args": ["--path={{ item }}"]}]));
        let faults = show.value_faults(Values::from_arguments(&object(
            json!({"paths": vec!["x"; 500_000]}),
        )));
        assert_eq!((faults.len(), faults[0].pointer()), (1, "/paths"));
        assert!(
            faults[0].message().contains("500000 bytes together"),
            "{}",
            faults[0].message()
        );
    }

    #[tokio::test]
    async fn stdin_is_template_or_arguments() {
        let cat = runner(
            json!({"command": ["cat"], "stdin": "{{ a }}-{{ b }}", "output": "text"}),
            Effect::Read,
        );
        assert_eq!(
            text(call(&cat, json!({"a": "x", "b": {"c": 1}})).await),
            r#"x-{"c":1}"#
        );
        let cat = runner(json!({"command": ["cat"]}), Effect::Read);
        let result = call(&cat, json!({"b": 1, "a": "ü"})).await.0.unwrap();
        assert_eq!(result.structured_content, Some(json!({"a": "ü", "b": 1})));
    }

    #[tokio::test]
    async fn environment_holds_declared_and_call_variables() {
        const DEFAULT: &str = "PATH=/usr/local/bin:/usr/bin:/bin";
        let env = runner(
            json!({"command": ["env"], "environment": {"LANG": "C.UTF-8", "X": "a b"}}),
            Effect::Read,
        );
        let invocation = invocation();
        let result = env
            .call(object(json!({})), context(&invocation))
            .await
            .unwrap();
        let output = result.as_text();
        let lines: BTreeSet<&str> = output.lines().collect();
        let id = format!("TOOLCRIB_INVOCATION={}", invocation.id);
        assert_eq!(
            lines,
            BTreeSet::from(["LANG=C.UTF-8", "X=a b", &id, "TOOLCRIB_ATTEMPT=1", DEFAULT])
        );
        let env = runner(
            json!({"command": ["env"], "environment": {"PATH": "/opt/bin"}}),
            Effect::Read,
        );
        assert!(
            text(call(&env, json!({})).await)
                .lines()
                .any(|line| line == "PATH=/opt/bin")
        );
    }

    #[test]
    fn context_variable_names_must_be_unique() {
        let build = |fields: &[&str], environment: Value| {
            let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
            let context = BuildContext {
                base_dir: Path::new("/tmp"),
                input_schema: &json!({}),
                context_fields: &fields,
                effect: Effect::Read,
                trusted: true,
            };
            let config = json!({"command": ["true"], "environment": environment});
            build(serde_json::from_value(config).unwrap(), &context)
                .err()
                .unwrap_or_default()
        };
        assert_eq!(
            build(
                &["user_id", "user", "tenant-2"],
                json!({"CONTEXT_USER": "x"})
            ),
            []
        );
        let faults = build(&["user_id", "user-id"], json!({}));
        assert_eq!(faults[0].path, ["context", "1"]);
        let expected =
            "`user-id` and `user_id` would both be the variable TOOLCRIB_CONTEXT_USER_ID";
        assert!(faults[0].message.starts_with(expected), "{faults:?}");
        assert!(
            build(&["user", "User"], json!({}))[0]
                .message
                .contains("rename one"),
            "in upper case they are one"
        );
        let faults = build(&["user"], json!({"TOOLCRIB_CONTEXT_USER": "x"}));
        assert_eq!(faults[0].path, ["environment", "TOOLCRIB_CONTEXT_USER"]);
    }

    #[tokio::test]
    async fn program_inherits_no_files_and_leads_group() {
        let ours = tempfile::NamedTempFile::new().unwrap();
        let output = text(run_shell("ls -l /proc/self/fd; pwd", json!({"workdir": "/"})).await);
        assert!(
            !output.contains(ours.path().to_str().unwrap()) && output.ends_with("\n/"),
            "{output}"
        );
        let output = text(
            run_shell(
                "cut -d' ' -f5 /proc/$$/stat; echo $$",
                json!({"output": "text"}),
            )
            .await,
        );
        let ids: Vec<&str> = output.lines().collect();
        assert_eq!(ids[0], ids[1]);
    }
}

mod results {
    use super::*;

    #[tokio::test]
    async fn output_is_json_or_text() {
        let say = |text: &str| format!("printf '%s' '{text}'");
        let auto = json!({});
        let result = run_shell(&say("{\"a\": 1}\n"), auto.clone())
            .await
            .0
            .unwrap();
        assert_eq!(result.structured_content, Some(json!({"a": 1})));
        assert_eq!(
            text(run_shell(&say("\"quoted\""), auto.clone()).await),
            "quoted"
        );
        for (printed, expected) in [
            ("22.50", "22.50"),
            ("{half", "{half"),
            ("a\n\n", "a\n"),
            ("", ""),
            ("null", "null"),
        ] {
            let result = run_shell(&say(printed), auto.clone()).await.0.unwrap();
            assert_eq!(
                (result.as_text().as_str(), result.structured_content),
                (expected, None)
            );
        }
        let result = run_shell(&say("[1]\n"), json!({"output": "text"}))
            .await
            .0
            .unwrap();
        assert_eq!(
            (result.as_text().as_str(), result.structured_content),
            ("[1]", None)
        );
        assert_eq!(
            text(run_shell(&say("42"), json!({"output": "json"})).await),
            "42"
        );
    }

    async fn run_for_file(
        script: &str,
        file: &str,
        folder: &Path,
        a: &str,
    ) -> Result<ToolResult, ToolError> {
        let config = json!({
            "command": ["/bin/sh", "-c", script], "workdir": folder, "output": {"file": file}, "max_output": "1KiB",
        });
        call(&runner(config, Effect::Read), json!({"a": a, "b": ""}))
            .await
            .0
    }

    #[tokio::test]
    async fn output_file_becomes_a_block() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let png = "printf '\\211PNG\\r\\n\\032\\n' > sub/a.png; ";
        for printed in [
            "echo sub/a.png",
            "echo ./sub/a.png",
            "echo $PWD/sub/a.png",
            "printf ' sub/a.png\\r\\n'",
        ] {
            let result = run_for_file(
                &format!("{png}{printed}"),
                "{{ stdout }}",
                folder.path(),
                "",
            )
            .await
            .unwrap();
            assert!(
                matches!(&result.content[..], [Content::Image { mime_type, .. }] if mime_type == "image/png"),
                "{printed}: {result:?}"
            );
        }
        let write = "seq 2000; echo hello > sub/x.txt";
        let result = run_for_file(write, "sub/{{ a }}.txt", folder.path(), "x")
            .await
            .unwrap();
        assert_eq!(
            (result.as_text().as_str(), result.is_error),
            ("hello\n", false),
            "the other output is ignored"
        );
        let failed = run_for_file("echo no >&2; exit 3", "{{ stdout }}", folder.path(), "")
            .await
            .unwrap();
        assert_eq!(
            (failed.as_text().as_str(), failed.is_error),
            ("exit status 3: no", true)
        );
    }

    #[tokio::test]
    async fn output_file_stays_in_the_folder() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(above.path().join("secret"), "secret").unwrap();
        std::fs::write(folder.join(".env"), "secret").unwrap();
        std::fs::write(folder.join("long"), "x".repeat(1025)).unwrap();
        std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
        for (script, reason) in [
            ("echo ../secret", "`../secret` leads out of the folder"),
            ("echo $PWD/../secret", "leads out of the folder"),
            ("echo link", "`link` leads out of the folder"),
            ("echo /etc/passwd", "`/etc/passwd` leads out of the folder"),
            ("echo .env", "`.env` is not read"),
            (
                "echo x > toolcrib.db; echo toolcrib.db",
                "`toolcrib.db` is not read",
            ),
            ("echo none.png", "`none.png` does not exist"),
            ("echo .", "is a folder, not a file"),
            ("mkfifo pipe; echo pipe", "is not a regular file"),
            ("echo long", "`long` is longer than 1.0 KiB (`max_output`)"),
            (
                "true",
                "must print the path of a file, but it printed nothing",
            ),
            ("seq 2000", "it printed more than 4096 bytes"),
        ] {
            let error = run_for_file(script, "{{ stdout }}", &folder, "")
                .await
                .unwrap_err();
            assert!(
                matches!(&error, ToolError::ErrorResult(message) if message.contains(reason)),
                "{script}: {error:?}"
            );
        }
    }

    #[tokio::test]
    async fn invalid_json_error_has_position() {
        let (result, _) = run_shell("printf '{\"a\":\\n [1,'", json!({"output": "json"})).await;
        let Err(ToolError::BadOutput(message)) = result else {
            panic!("{result:?}")
        };
        assert!(message.contains("line 2 column"), "{message}");
        let (result, _) = run_shell("true", json!({"output": "json"})).await;
        assert!(
            matches!(result, Err(ToolError::BadOutput(message)) if message.contains("nothing"))
        );
    }

    #[tokio::test]
    async fn invalid_utf8_output_gets_warning() {
        let (result, warnings) = run_shell("printf 'a\\377b'", json!({})).await;
        assert_eq!(result.unwrap().as_text(), "a\u{fffd}b");
        assert!(warnings[0].contains("UTF-8"), "{warnings:?}");
    }

    #[tokio::test]
    async fn failed_program_returns_stderr_as_error_result() {
        for (script, text) in [
            (
                "echo out; echo bad thing >&2; exit 3",
                "exit status 3: bad thing",
            ),
            ("echo out; exit 4", "exit status 4: out"),
            ("exit 5", "exited with status 5"),
            ("kill -9 $$", "ended by signal: 9 (SIGKILL)"),
            (
                "echo oh >&2; kill -15 $$",
                "ended by signal: 15 (SIGTERM): oh",
            ),
        ] {
            let result = run_shell(script, json!({"output": "json"}))
                .await
                .0
                .unwrap();
            assert_eq!((result.is_error, result.as_text().as_str()), (true, text));
        }
        let script = "i=0; while [ $i -lt 4000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1";
        let text = run_shell(script, json!({})).await.0.unwrap().as_text();
        assert!(
            text.len() < 17_000 && text.contains("line 0\n") && text.ends_with("line 3999"),
            "{}",
            text.len()
        );
        assert!(text.contains("bytes left out"));
        let text = run_shell("head -c 100000 /dev/zero | tr '\\0' x; exit 1", json!({}))
            .await
            .0
            .unwrap()
            .as_text();
        assert!(
            text.len() < 17_000 && text.contains("bytes left out"),
            "{}",
            text.len()
        );
    }

    #[tokio::test]
    async fn start_failure_is_upstream_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plain"), "x").unwrap();
        let plain = folder.path().join("plain").to_str().unwrap().to_owned();
        for (config, reason) in [
            (
                json!({"command": ["no-such-program-here"]}),
                "no such program",
            ),
            (json!({"command": ["/no/such/program"]}), "No such file"),
            (json!({"command": [plain]}), "denied"),
            (
                json!({"command": ["true"], "workdir": "/no/such"}),
                "working folder",
            ),
        ] {
            let (result, _) = call(&runner(config, Effect::Read), json!({})).await;
            let Err(ToolError::Upstream(UpstreamFailure {
                message,
                retryable: false,
                ..
            })) = result
            else {
                panic!("{result:?}")
            };
            assert!(
                message.starts_with("cannot start ") && message.contains(reason),
                "{message}"
            );
        }
    }
}

mod bounds {
    use super::*;

    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[tokio::test]
    async fn endless_output_stops_program_and_is_cut() {
        let started = Instant::now();
        let before = resident();
        // The writer gets a session of its own, so that killing the group is not enough.
        let script = "setsid -w yes é";
        let (result, warnings) = run_shell(script, json!({"max_output": "64KiB"})).await;
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?}",
            started.elapsed()
        );
        // Other tests of this process allocate memory at the same time. Output without a cap would
        // take gigabytes per second.
        assert!(resident() < before + (512 << 20));
        let text = result.unwrap().as_text();
        assert!(
            text.len() <= 65_536 && text.len() > 65_530 && !text.contains('\u{fffd}'),
            "{}",
            text.len()
        );
        assert!(
            warnings.len() == 1 && warnings[0].contains("max_output"),
            "{warnings:?}"
        );
        let (result, _) = run_shell("yes", json!({"output": "json"})).await;
        assert!(
            matches!(result, Err(ToolError::BadOutput(message)) if message.contains("max_output"))
        );
    }

    #[tokio::test]
    async fn programs_are_confined() {
        let script = "grep NoNewPrivs /proc/self/status | tr -d '\\t'; umask; ulimit -c; ulimit -Hn; ulimit -Sn; ls -l /proc/self/fd | wc -l";
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let output = text(run_shell(script, json!({"output": "text"})).await);
        // The three streams, the folder that `ls` reads, and the headline.
        assert_eq!(
            output.lines().collect::<Vec<_>>(),
            ["NoNewPrivs:1", "0077", "0", "1024", "1024", "5"]
        );
    }

    #[tokio::test]
    async fn write_completes_despite_long_output() {
        let folder = tempfile::tempdir().unwrap();
        let script = "head -c 20000000 /dev/zero | tr '\\0' x; echo done > done";
        let config = json!({"command": ["/bin/sh", "-c", script], "workdir": folder.path(), "max_output": "1KiB"});
        let (result, warnings) = call(&runner(config, Effect::Write), json!({})).await;
        assert_eq!(result.unwrap().as_text().len(), 1024);
        assert!(
            warnings[0].contains("19998976 bytes were left out"),
            "{warnings:?}"
        );
        assert_eq!(
            std::fs::read_to_string(folder.path().join("done")).unwrap(),
            "done\n"
        );
    }

    #[tokio::test]
    async fn unread_and_echoed_input_do_not_block() {
        let input = "0123456789".repeat(1 << 20);
        let deaf = runner(
            json!({"command": ["sh", "-c", "echo hi"], "stdin": "{{ a }}"}),
            Effect::Read,
        );
        assert_eq!(text(call(&deaf, json!({"a": input, "b": ""})).await), "hi");
        let config =
            json!({"command": ["cat"], "stdin": "{{ a }}", "max_output": "4MiB", "output": "text"});
        let input = "x".repeat(4 << 20);
        assert_eq!(
            text(call(&runner(config, Effect::Read), json!({"a": input, "b": ""})).await).len(),
            4 << 20
        );
    }

    #[tokio::test]
    async fn simultaneous_stdout_and_stderr_do_not_block() {
        let script = "head -c 3000000 /dev/zero >&2; head -c 100000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 0";
        let result = run_shell(script, json!({})).await.0.unwrap();
        assert!(matches!(&result.content[0], Content::Text { text } if text.len() == 100_000));
    }
}

mod endings {
    use super::*;
    use crate::kinds::process::tests::python;

    /// Forks twice into a session of its own, ignores SIGTERM and SIGHUP, and holds all pipes open.
    const HOSTILE: &str = "
import os, signal, time
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
def wait():
    while True: time.sleep(3600)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setpgid(0, 0)
        wait()
    os._exit(0)
os.wait()
if os.fork() == 0:
    os.setsid()
    os.execve('/bin/sleep', ['sleep', os.environ['NAP'] + '25'], {})
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.execve('/bin/sleep', ['sleep', os.environ['NAP'] + '75'], {})
    os._exit(0)
os.wait()
open(os.environ['READY'], 'w').close()
wait()
";

    /// Leaves an orphan to init that keeps its environment, and a child of it without the variables
    /// and the limit.
    const BELOW_AN_ORPHAN: &str = "
import os, resource, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if os.fork() == 0:
            resource.setrlimit(resource.RLIMIT_RTTIME, (10 ** 9, 10 ** 9))
            os.execve('/bin/sleep', ['sleep', os.environ['NAP'] + '625'], {})
        signal.pause()
    os._exit(0)
os.wait()
signal.pause()
";

    const ROUNDS: usize = 20;

    /// The start of the sleep time of programs that have no other marker. It distinguishes them
    /// from those of another run of this test on the same machine.
    fn sleep_prefix() -> String {
        format!("3600.{}", std::process::id())
    }

    /// Runs alone: it inspects all open files and children of this process, and would see those of
    /// other tests.
    #[test]
    fn dropped_calls_clean_up_in_own_process() {
        let test = "kinds::command::tests::endings::dropped_calls_leave_nothing";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let done = alone
            .args(["--exact", "--ignored", "--nocapture", test])
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && stdout.contains("1 passed"),
            "{stdout}{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    #[ignore = "the test above runs it, in a process of its own"]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn dropped_calls_leave_nothing() {
        let Some(python) = python() else { return };
        let folder = tempfile::tempdir().unwrap();
        let before = open_files();
        let mut slowest = Duration::ZERO;
        for round in 0..ROUNDS {
            let ready = folder.path().join(round.to_string());
            let config = json!({"command": [python, "-c", HOSTILE], "environment": {"READY": ready, "NAP": sleep_prefix()}});
            let (runner, invocation) = (runner(config, Effect::Write), invocation());
            let needle = invocation.id.to_string();
            let call = tokio::spawn({
                let context = context(&invocation);
                async move { runner.call(object(json!({})), context).await }
            });
            wait_until("the program is ready", || ready.exists().then_some(()));
            assert!(survivors(&needle).len() >= 2);
            call.abort();
            let _ = call.await;
            let dropped = Instant::now();
            let is_gone = || survivors(&needle).is_empty() && survivors(&sleep_prefix()).is_empty();
            wait_until("all are gone", || is_gone().then_some(()));
            slowest = slowest.max(dropped.elapsed());
        }
        wait_until("no zombie is left", || (zombies() == 0).then_some(()));
        wait_until("no pipe is left", || {
            open_files().is_subset(&before).then_some(())
        });
        println!("{ROUNDS} rounds, slowest end {slowest:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn descendants_of_orphans_are_killed() {
        let Some(python) = python() else { return };
        let config = json!({"command": [python, "-c", BELOW_AN_ORPHAN], "environment": {"NAP": sleep_prefix()}});
        let runner = runner(config, Effect::Write);
        let asleep = format!("{}625", sleep_prefix());
        let call = tokio::spawn(async move {
            let invocation = invocation();
            runner.call(object(json!({})), context(&invocation)).await
        });
        wait_until("it runs", || (!survivors(&asleep).is_empty()).then_some(()));
        call.abort();
        let _ = call.await;
        wait_until("it is gone", || survivors(&asleep).is_empty().then_some(()));
    }

    #[tokio::test]
    async fn background_process_in_group_is_killed() {
        let invocation = invocation();
        let run = runner(
            json!({"command": ["sh", "-c", "sleep 3600 >/dev/null 2>&1 & echo $!"]}),
            Effect::Read,
        );
        let result = run
            .call(object(json!({})), context(&invocation))
            .await
            .unwrap();
        assert!(!result.is_error);
        wait_until("it is gone", || {
            survivors(&invocation.id.to_string())
                .is_empty()
                .then_some(())
        });
        assert_eq!(invocation.report.tool.lock().warnings, Vec::<String>::new());
    }

    /// Starts a process that moves to a session of its own before the program ends, and keeps its
    /// outputs open.
    async fn run_and_leave_process(invocation: &Invocation) -> ToolResult {
        let folder = tempfile::tempdir().unwrap();
        let script =
            "setsid sh -c 'echo > up; exec sleep 3600' & until [ -e up ]; do :; done; echo fine";
        let run = runner(
            json!({"command": ["sh", "-c", script], "workdir": folder.path()}),
            Effect::Write,
        );
        run.call(object(json!({})), context(invocation))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn held_open_pipe_does_not_change_result() {
        let (invocation, started) = (invocation(), Instant::now());
        let result = run_and_leave_process(&invocation).await;
        assert_eq!(
            (result.as_text().as_str(), result.is_error),
            ("fine", false)
        );
        assert!(started.elapsed() < Duration::from_secs(10));
        assert!(invocation.report.tool.lock().warnings[0].contains("held its output open"));
        wait_until("it is gone", || {
            survivors(&invocation.id.to_string())
                .is_empty()
                .then_some(())
        });
    }

    #[tokio::test]
    async fn other_attempt_of_same_call_survives() {
        let mut invocation = invocation();
        let sleep = runner(json!({"command": ["sleep", "3600"]}), Effect::Read);
        let mut start = |attempt| {
            invocation.attempt = attempt;
            let (runner, context) = (sleep.clone(), context(&invocation));
            tokio::spawn(async move { runner.call(object(json!({})), context).await })
        };
        let (first, second) = (start(1), start(2));
        tokio::task::yield_now().await;
        let needle = invocation.id.to_string();
        wait_until("both run", || (survivors(&needle).len() == 2).then_some(()));
        first.abort();
        let _ = first.await;
        wait_until("one is gone", || {
            (survivors(&needle).len() < 2).then_some(())
        });
        assert_eq!(survivors(&needle).len(), 1);
        assert!(!second.is_finished());
        second.abort();
        let _ = second.await;
        wait_until("both are gone", || {
            survivors(&needle).is_empty().then_some(())
        });
    }

    #[test]
    fn service_shutdown_kills_its_programs() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let up = folder.path().join("up");
        let script = "(setsid sh -c 'echo > up; exec sleep 3600' &); sleep 3600";
        let (invocation, config) = (
            invocation(),
            json!({"command": ["sh", "-c", script], "workdir": folder.path()}),
        );
        let (run, context) = (runner(config, Effect::Write), context(&invocation));
        runtime.spawn(async move { run.call(object(json!({})), context).await });
        wait_until("they run", || up.exists().then_some(()));
        // Drops the call and with it the last reference to the runner, which waits for the orphan
        // reaper.
        drop(runtime);
        assert_eq!(survivors(&invocation.id.to_string()), Vec::<String>::new());
    }
}
