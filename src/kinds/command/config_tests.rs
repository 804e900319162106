//! Tests: what a command's settings must be.

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
        let (_, warnings) =
            build_with(config, &schema, Effect::Read).unwrap_or_else(|faults| panic!("{faults:?}"));
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
        let found = match build_with(json!({"command": ["true", item]}), &schema, Effect::Read) {
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
