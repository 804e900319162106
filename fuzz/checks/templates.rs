//! Requests and command lines with placeholders. A value stays where the template puts it, and
//! nothing that the template does not name is in the result.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use toolcrib::call::{
    Caller, CallerCredentials, ContextFields, Effect, Invocation, ToolContext, ToolName,
    ToolSettings,
};
use toolcrib::kinds::{BuildContext, command, http};

/// Values that must not appear unless the template names them.
const FIELD: &str = "Zr7QfieldW2";
const CREDENTIAL: &str = "Zr7QcredentialW2";
/// Separates the parts of the input: the template, the arguments `x` and `y`, and a value that comes by reference.
const SEPARATOR: char = '\u{1}';

pub(crate) fn check(text: &str) {
    let mut parts = text.splitn(4, SEPARATOR);
    let mut part = || parts.next().unwrap_or_default();
    let (written, x, y, reference) = (part(), part(), part(), part());
    if text.contains("Zr7Q") || written.contains(|c| ('\u{fdd0}'..='\u{fdef}').contains(&c)) {
        return;
    }
    let y = serde_json::from_str(y).unwrap_or_else(|_| Value::from(y));
    let arguments = json!({"x": x, "y": y});
    let arguments = arguments.as_object().unwrap();
    let template = written
        .replace("${env:R}", &http::fuzzing::referenced(reference))
        .replace("${caller:c}", &http::fuzzing::caller_reference("c"));
    let (call, schema) = (
        call_context(),
        json!({"type": "object", "required": ["x", "y"], "properties": {"x": {}, "y": {}}}),
    );
    let context = BuildContext {
        base_dir: Path::new("/nowhere"),
        input_schema: &schema,
        context_fields: &["f".to_owned()],
        effect: Effect::Write,
        trusted: true,
    };
    let check = |rendered: &str| {
        assert!(
            template.contains("context.f") || !rendered.contains(FIELD),
            "{rendered}"
        );
        assert!(
            written.contains("${caller:c}") || !rendered.contains(CREDENTIAL),
            "{rendered}"
        );
        rendered.to_owned()
    };

    let request = |config: Value| {
        let config = serde_json::from_value(config).unwrap();
        http::fuzzing::render(config, &context, arguments, &call)
    };
    for place in [
        "url",
        "query",
        "headers",
        "cookies",
        "json",
        "body",
        "form",
        "multipart",
    ] {
        let url = match place {
            "url" => format!("http://host.example:81/base/{template}/end?fixed=1&q={template}"),
            _ => "http://host.example:81/base/end?fixed=1".into(),
        };
        let mut config = json!({"method": "POST", "url": url});
        match place {
            "url" => {}
            "json" => config[place] = json!({"k": template, "list": [template, 1]}),
            "body" => config[place] = template.as_str().into(),
            "headers" => config[place] = json!({"x-one": template, "x-two": "fixed"}),
            _ => config[place] = json!({"k": template, "fixed": "1"}),
        }
        let Some(request) = request(config) else {
            continue;
        };
        let url = request.url();
        check(url.as_str());
        assert_eq!(
            (url.host_str(), url.port()),
            (Some("host.example"), Some(81)),
            "{url}"
        );
        assert!(
            url.username().is_empty() && url.password().is_none(),
            "{url}"
        );
        assert_eq!(url.fragment(), None, "{url}");
        assert!(url.path().starts_with("/base/"), "{url}");
        for (name, value) in request.headers() {
            let value = value.as_bytes();
            assert!(
                value
                    .iter()
                    .all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\t'),
                "{name}: {value:?}"
            );
            check(&String::from_utf8_lossy(value));
        }
        let body = request
            .body()
            .and_then(|body| body.as_bytes())
            .unwrap_or_default();
        check(&String::from_utf8_lossy(body));
        if place == "json" {
            let body: Value = serde_json::from_slice(body).expect("the body is JSON");
            assert!(
                body.as_object()
                    .unwrap()
                    .keys()
                    .all(|key| ["k", "list"].contains(&key.as_str())),
                "{body}"
            );
            assert_eq!(body["list"].as_array().map(Vec::len), Some(2), "{body}");
            match written {
                "{{ x }}" => assert_eq!(body["k"], x),
                "{{ y }}" => assert_eq!(body["k"], y),
                "${env:R}" => assert_eq!(body["k"], reference),
                _ => {}
            }
        }
        if place == "headers" {
            assert_eq!(request.headers()["x-two"], "fixed");
        }
    }

    let config = json!({"command": ["/bin/true", "first", template, {"when": "x", "args": [template]}, {"each": "y"}, "last"]});
    let config: command::Config = serde_json::from_value(config).unwrap();
    if let Some(items) = command::fuzzing::render(&config, &context, arguments, &call) {
        let elements = arguments["y"].as_array().map_or(0, Vec::len);
        assert_eq!(items.len(), 4 + elements, "{items:?}");
        assert_eq!(
            (items[0].as_str(), items.last().unwrap().as_str()),
            ("first", "last")
        );
        items.iter().for_each(|item| {
            assert!(!item.contains('\0'), "{item:?}");
            check(item);
        });
        let starts_with_value = written.starts_with("{{");
        assert!(
            !(starts_with_value && items[1].starts_with('-')),
            "{items:?}"
        );
    }
}

fn call_context() -> ToolContext {
    let mut caller = Caller::anonymous();
    caller.credentials = CallerCredentials::new([("c".to_owned(), CREDENTIAL.to_owned())]);
    let now = "2026-06-15T12:00:30Z".parse().unwrap();
    let mut invocation = Invocation::new(
        ToolName::parse("t").unwrap(),
        Map::new(),
        Arc::new(caller),
        now,
    );
    invocation.input.context = Arc::new(Map::from_iter([("f".to_owned(), Value::from(FIELD))]));
    let settings = ToolSettings {
        context: ContextFields::All,
        ..ToolSettings::default()
    };
    ToolContext::new(&invocation, Instant::now(), Arc::new(settings))
}
