//! Values from references are text, also inside templates.

use axum::http::{HeaderMap, Uri};
use axum::{Json, Router};
use serde_json::json;

use crate::support::{TestApp, first_text};

/// A manifest in which `${file:…}` leads to these files. The value is short enough not to be taken
/// out of answers.
async fn app(manifest: &str) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("key.txt", "{{q}}"), ("half.txt", "{q}}")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let manifest = manifest.replace("${file:", &format!("${{file:{}/", folder.path().display()));
    TestApp::with_manifest(&manifest, []).await
}

/// An API that returns its request.
async fn start_upstream() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = |uri: Uri, headers: HeaderMap, body: String| async move {
        let header = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        Json(
            json!({"uri": uri.to_string(), "lone": header("x-lone"), "beside": header("x-beside"), "body": body}),
        )
    };
    tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(echo))
            .await
            .unwrap();
    });
    format!("http://{address}")
}

#[tokio::test]
async fn requests_hold_references_as_text() {
    let url = start_upstream().await;
    let entry = |body: &str| {
        format!(
            "    kind: http\n    description: d\n    parameters: {{q: {{type: string}}}}\n    request:\n      method: POST\n      \
             url: \"{url}/${{file:key.txt}}/{{{{ q }}}}?k=${{file:key.txt}}\"\n      query: {{a: \"${{file:key.txt}}\", b: \"{{{{ q }}}}${{file:key.txt}}\"}}\n      \
             headers: {{x-lone: \"${{file:key.txt}}\", x-beside: \"{{${{file:half.txt}} {{{{ q }}}} ${{file:key.txt}}\"}}\n      {body}\n      allow_private: true\n"
        )
    };
    let manifest = format!(
        "tools:\n  json:\n{}  text:\n{}",
        entry("json: {lone: \"${file:key.txt}\", list: [\"${file:key.txt} {{ q }}\"]}"),
        entry("body: \"${file:key.txt} {{ q }}\"")
    );
    let app = app(&manifest).await;
    for (tool, body) in [
        ("json", r#"{"lone":"{{q}}","list":["{{q}} 7"]}"#),
        ("text", "{{q}} 7"),
    ] {
        let (status, reply) = app.invoke(tool, json!({"q": "7"})).await;
        assert_eq!(status, 200, "{reply}");
        let got = &reply["structured_content"];
        let literal = "%7B%7Bq%7D%7D";
        assert_eq!(
            got["uri"],
            format!("/{literal}/7?k={{{{q}}}}&a={literal}&b=7{literal}"),
            "{got}"
        );
        assert_eq!(
            (&got["lone"], &got["beside"]),
            (&json!("{{q}}"), &json!("{{q}} 7 {{q}}"))
        );
        assert_eq!(got["body"], body);
    }
}

#[tokio::test]
async fn programs_get_references_as_text() {
    let manifest = "tools:\n  show:\n    kind: command\n    description: d\n    parameters: {q: {type: string}}\n    \
                    command: [/bin/sh, -c, 'printf \"%s|\" \"$@\"; cat; printf \"|%s\" \"$K\"', x, \"${file:key.txt}\", \"{{ q }}\"]\n    \
                    stdin: \"${file:key.txt} {{ q }}\"\n    environment: {K: \"${file:key.txt}\"}\n    output: text\n";
    let app = app(manifest).await;
    let reply = app.invoke("show", json!({"q": "7"})).await;
    assert_eq!(first_text(&reply), "{{q}}|7|{{q}} 7|{{q}}");
}

#[tokio::test]
async fn recorded_arguments_contain_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "S3cr3t-Key+For=Echo-0987654321";
    std::fs::write(folder.path().join("key.txt"), secret).unwrap();
    let manifest = format!(
        "tools:\n  show:\n    kind: command\n    description: d\n    parameters: {{q: {{type: string}}}}\n    \
         command: [/bin/cat]\n    environment: {{K: \"${{file:{}/key.txt}}\"}}\n",
        folder.path().display()
    );
    let app = TestApp::with_manifest(&manifest, []).await;
    for arguments in [json!({"q": format!("a {secret} b")}), json!({ secret: 1 })] {
        let (_, answer) = app.invoke("show", arguments).await;
        let id = answer["invocation_id"].as_str().unwrap().to_owned();
        let (_, row) = app.get(&format!("/invocations/{id}")).await;
        assert!(
            !row.to_string().contains(secret)
                && row["arguments"].to_string().contains("[redacted]"),
            "{row}"
        );
    }
}
