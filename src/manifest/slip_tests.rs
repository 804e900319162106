//! Slips that newcomers make, and the full message about each. They stand in `slips.txt`.

use super::testing::{check_text, load_text};
use super::{Finding, Rule, Severity};

/// The cases: a name, a manifest, and the expected lines.
fn cases() -> Vec<(&'static str, &'static str, &'static str)> {
    let (_, cases) = include_str!("slips.txt")
        .split_once("\n=== ")
        .expect("a case");
    let case = |text: &'static str| {
        let (name, rest) = text.split_once('\n').expect("a name");
        let (manifest, expected) = rest.split_once("--->\n").expect("expected lines");
        (name, manifest, expected.trim())
    };
    cases.split("\n=== ").map(case).collect()
}

/// The errors, or else the warnings. That a server is not pinned is not a slip.
fn shown(findings: &[Finding]) -> String {
    let of = |severity: Severity| {
        let shown = move |finding: &&Finding| {
            finding.severity == severity && finding.rule != Rule::UnpinnedServer
        };
        let line = |finding: &Finding| finding.to_string().replace("/etc/crib/t.yaml:", "");
        findings.iter().filter(shown).map(line).collect::<Vec<_>>()
    };
    let errors = of(Severity::Error);
    if errors.is_empty() {
        of(Severity::Warning).join("\n")
    } else {
        errors.join("\n")
    }
}

#[test]
fn each_slip_has_its_message() {
    let cases = cases();
    assert!(cases.len() >= 40, "{}", cases.len());
    let mut wrong = Vec::new();
    for (name, manifest, expected) in cases {
        let found = shown(&check_text(manifest));
        if found != expected {
            wrong.push(format!(
                "=== {name}\n{manifest}expected:\n{expected}\nfound:\n{found}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn json_schema_in_place_of_parameters_is_one_error() {
    for schema in [
        "type: object, properties: {city: {type: string}}, required: [city]",
        "properties: {city: {type: string}}",
        "type: [object], properties: {city: {type: string}}",
        "type: [object, 'null'], required: [city]",
        "$ref: '#/$defs/a', $defs: {a: {type: object}}",
        "anyOf: [{type: object, properties: {city: {type: string}}}, {type: object}]",
    ] {
        let found = check_text(&format!(
            "tools:\n  t:\n    kind: http\n    description: Reads one book of the shop by its number.\n    \
             parameters: {{{schema}}}\n    request: {{url: 'https://books.example/x'}}\n"
        ));
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(
            lines.len() == 1 && lines[0].ends_with("write it below `input_schema:` instead"),
            "{schema}: {lines:?}"
        );
    }
}

#[test]
fn no_message_has_words_of_a_parser() {
    let words = [
        "invalid type",
        "expected struct",
        "expected a sequence",
        "expected one of",
        "u64",
        "usize",
        "u32",
        "bool ",
        "variant",
        "scalar",
        "mapping",
        "flow ",
        "'anyOf'",
        "not of type",
        "missing field",
        "invalid value",
    ];
    for (name, manifest, _) in cases() {
        let found = shown(&check_text(manifest));
        let word = words.iter().find(|word| found.contains(**word));
        assert_eq!(word, None, "{name}: {found}");
    }
}

#[test]
fn start_warns_of_requests_that_are_not_meant() {
    let manifest = "tools:
  drop_order:
    kind: http
    description: Drops an order of the shop, by its number.
    effect: read
    parameters: {id: {type: integer, description: Number of the order}, why: {type: string, description: The reason}}
    request:
      method: DELETE
      url: https://shop.example/orders/{id}
      headers: {authorization: Bearer $SHOP_TOKEN}
  count:
    kind: command
    description: Shows the first rows of the stock.
    parameters: {rows: {type: integer, description: Number of rows}}
    command: [/usr/bin/head, -n, \"{{ rows }}\"]
    workdir: /
";
    let warnings = load_text(manifest)
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .warnings;
    let mut rules: Vec<&str> = warnings
        .iter()
        .map(|finding| finding.rule.as_str())
        .collect();
    rules.sort_unstable();
    assert_eq!(
        rules,
        [
            "refused-argument",
            "shell-variable",
            "single-brace",
            "unused-parameter",
            "writing-read"
        ]
    );
}

#[test]
fn usual_manifests_have_no_such_warnings() {
    let manifest = r#"tools:
  search:
    kind: http
    description: Searches the stock of the shop by words.
    effect: read
    parameters: {words: {type: string, description: "Words, e.g. red shoes"}}
    request: {method: POST, url: "https://shop.example/search", json: {query: "query($ID_OF: ID) {x}", words: "{{ words }}"}}
  report:
    kind: command
    description: Makes the report of one year of sales.
    parameters: {year: {type: integer, description: The year of the sales}}
    command: [/bin/sh, -c, "echo $HOME; cat $REPORT_FILE"]
    workdir: /
  page:
    kind: command
    description: Shows a page of the manual of a program.
    parameters: {page: {type: string, description: "Name of the page, e.g. ls"}}
    command: [/bin/echo, "{{ page }}"]
    workdir: /
"#;
    assert_eq!(shown(&check_text(manifest)), "");
}
