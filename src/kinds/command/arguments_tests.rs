//! Tests: how arguments reach the program.

use super::*;
use crate::kinds::sandbox::{SandboxDefaults, SandboxSetting};

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
    let show = optional_runner(json!(["printf", {"each": "paths", "args": ["--path={{ item }}"]}]));
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
            name: "t",
            base_dir: Path::new("/tmp"),
            input_schema: &json!({}),
            context_fields: &fields,
            effect: Effect::Read,
            trusted: true,
        };
        let config = json!({"command": ["true"], "environment": environment});
        build(
            serde_json::from_value(config).unwrap(),
            &context,
            &SandboxDefaults {
                setting: SandboxSetting::None,
                ..SandboxDefaults::default()
            },
        )
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
    let expected = "`user-id` and `user_id` would both be the variable TOOLCRIB_CONTEXT_USER_ID";
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
