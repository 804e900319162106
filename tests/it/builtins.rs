//! Built-in tools that need a service around them.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::{TestApp, first_text};

/// `time` returns another answer each second, so a repeated answer was stored.
const CACHED: &str = r#"
tools:
  read_cache: {kind: native}
  word:
    kind: command
    description: Answers with what it is given and a number that no two answers share.
    parameters:
      word: {type: string, description: A word}
      times: {type: integer, default: 1, description: How often}
    command: [/bin/sh, -c, "cat; date +%N"]
    effect: read
    aliases: [words]
    cache: {ttl: 60s, context: [tenant]}
"#;

async fn invoke_as(app: &TestApp, key: Option<&str>, tool: &str, arguments: Value) -> Value {
    let path = format!("/tools/{tool}/invoke");
    let body = json!({"arguments": arguments});
    let (status, answer) = match key {
        Some(key) => app.post_as(key, &path, body).await,
        None => app.post(&path, body).await,
    };
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The answer of `read_cache`: the stored content, or the reason why there is none.
async fn read_stored(app: &TestApp, key: Option<&str>, what: &str) -> Result<Value, String> {
    let answer = invoke_as(app, key, "read_cache", json!({"key": what})).await;
    match answer["is_error"] {
        Value::Bool(false) => Ok(answer["content"].clone()),
        _ => Err(answer["content"][0]["text"].as_str().unwrap().to_owned()),
    }
}

#[tokio::test]
async fn stored_result_is_read_without_a_call() {
    let app = TestApp::with_manifest(CACHED, []).await;
    let nothing = read_stored(&app, None, r#"tool:word|input:{"word": "a"}"#)
        .await
        .unwrap_err();
    assert!(
        nothing.starts_with("nothing is stored for this call of `word`"),
        "{nothing}"
    );
    let first = invoke_as(&app, None, "word", json!({"word": "a"})).await["content"].clone();
    // However the arguments are written: order, defaults, numbers in texts, crewAI's form, an alias
    // of the tool.
    for key in [
        r#"tool:word|input:{"word": "a"}"#,
        r#"tool:word|input:{ "times": 1, "word": "a" }"#,
        r#"tool:word|input:{"word": "a", "times": "1"}"#,
        "tool:word|input:word=a",
        "tool:word|input:word=a&times=1",
        "tool:words|input:times=1, word=a",
        "tool:functions.Word|input:word=a",
    ] {
        assert_eq!(
            read_stored(&app, None, key).await,
            Ok(first.clone()),
            "{key}"
        );
    }
    for (key, why) in [
        (
            r#"tool:word|input:{"word": "b"}"#,
            "nothing is stored for this call of `word`",
        ),
        (
            r#"tool:word|input:{"word": "a", "times": 2}"#,
            "nothing is stored",
        ),
        (
            r#"tool:word|input:{"wort": "a"}"#,
            "no call of `word` can have had this input: `wort` is not a parameter",
        ),
        (
            "tool:wordd|input:word=a",
            "there is no tool `wordd`; did you mean word?",
        ),
        (
            "tool:read_cache|input:key=x",
            "the answers of `read_cache` are never stored",
        ),
    ] {
        let error_text = read_stored(&app, None, key).await.unwrap_err();
        assert!(error_text.contains(why), "{key}: {error_text}");
    }
    let (_, listed) = app.get("/invocations?tool=word").await;
    assert_eq!(
        listed["invocations"].as_array().unwrap().len(),
        1,
        "only the first call ran the tool"
    );
    let (status, problem) = app.invoke("read_cache", json!({"key": "word a"})).await;
    assert_eq!(
        (status.as_u16(), &problem["violations"][0]["pointer"]),
        (422, &json!("/key"))
    );
}

#[tokio::test]
async fn stored_results_survive_restarts_until_purged() {
    let app = TestApp::with_manifest(CACHED, []).await;
    let key = "tool:word|input:word=a";
    let first = invoke_as(&app, None, "word", json!({"word": "a"})).await["content"].clone();
    let app = app.restart([]).await;
    assert_eq!(read_stored(&app, None, key).await, Ok(first));
    app.post("/tools/word/disable", json!({})).await;
    assert_eq!(
        read_stored(&app, None, key).await,
        Err("`word` is disabled".into())
    );
    app.post("/tools/word/enable", json!({})).await;
    app.delete("/tools/word/cache").await;
    assert!(
        read_stored(&app, None, key)
            .await
            .unwrap_err()
            .starts_with("nothing is stored")
    );
}

#[tokio::test]
async fn stored_results_expire() {
    let native = toolcrib::Tool::new("now", "…")
        .effect(toolcrib::Effect::Read)
        .cache(std::time::Duration::from_secs(60), &[])
        .call(|_, _| async { Ok("tick") });
    let reader = toolcrib::kinds::builtin::build(
        "read_cache",
        "read_cache",
        &serde_json::Map::new(),
        std::path::Path::new(""),
        &toolcrib::kinds::HttpClients::default(),
    );
    let (app, hand) = TestApp::with_clock([native, reader.unwrap().unwrap()]).await;
    app.invoke("now", json!({})).await;
    assert_eq!(
        read_stored(&app, None, "tool:now|input:").await,
        Ok(json!([{"type": "text", "text": "tick"}]))
    );
    hand.fetch_add(59_999, Ordering::SeqCst);
    assert!(read_stored(&app, None, "tool:now|input:{}").await.is_ok());
    hand.fetch_add(1, Ordering::SeqCst);
    assert!(
        read_stored(&app, None, "tool:now|input:")
            .await
            .unwrap_err()
            .starts_with("nothing is stored")
    );
}

#[tokio::test]
async fn callers_read_their_own_and_shared_results() {
    let manifest = format!(
        "{CACHED}  shared:\n    kind: command\n    description: The same for all.\n    command: [/bin/date, +%N]\n    effect: read\n    \
         cache: {{ttl: 60s, scope: shared}}\n  hidden: {{kind: native, use: calculator, cache: {{ttl: 60s}}}}\n\
         callers:\n  - {{name: ann, key: key-of-ann-0123456789}}\n  - {{name: bob, key: key-of-bob-0123456789, deny: [hid*]}}\n  \
         - {{name: root, key: key-of-root-012345678, admin: true}}\n"
    );
    let app = TestApp::with_manifest(&manifest, []).await;
    let [ann, bob, root] = [
        "key-of-ann-0123456789",
        "key-of-bob-0123456789",
        "key-of-root-012345678",
    ]
    .map(Some);
    let own = invoke_as(&app, ann, "word", json!({"word": "a"})).await["content"].clone();
    let all = invoke_as(&app, ann, "shared", json!({})).await["content"].clone();
    invoke_as(&app, ann, "hidden", json!({"expression": "6*7"})).await;
    assert_eq!(
        read_stored(&app, ann, "tool:word|input:word=a").await,
        Ok(own)
    );
    for key in [ann, bob, root] {
        assert_eq!(
            read_stored(&app, key, "tool:shared|input:").await,
            Ok(all.clone())
        );
    }
    // A key does not name a caller, so an admin also reads its own results; those of others are in
    // the ledger.
    for key in [bob, root] {
        assert!(
            read_stored(&app, key, "tool:word|input:word=a")
                .await
                .unwrap_err()
                .starts_with("nothing is stored")
        );
    }
    let hidden = "tool:hidden|input:expression=6*7";
    assert!(read_stored(&app, ann, hidden).await.is_ok());
    assert_eq!(
        read_stored(&app, bob, hidden).await,
        Err("there is no tool `hidden`".into())
    );
    assert_eq!(
        read_stored(&app, bob, "tool:hiddn|input:").await,
        Err("there is no tool `hiddn`".into())
    );
}

#[tokio::test]
async fn stored_result_needs_its_context() {
    let app = TestApp::with_manifest(CACHED, []).await;
    let send = async |tool: &str, arguments: Value, context: Value| {
        app.post(
            &format!("/tools/{tool}/invoke"),
            json!({"arguments": arguments, "context": context}),
        )
        .await
    };
    let acme = json!({"tenant": "acme", "trace": 1});
    let (_, answer) = send("word", json!({"word": "a"}), acme).await;
    let key = json!({"key": "tool:word|input:word=a"});
    let (_, read) = send(
        "read_cache",
        key.clone(),
        json!({"tenant": "acme", "trace": 2}),
    )
    .await;
    assert_eq!(
        (&read["content"], &read["is_error"]),
        (&answer["content"], &json!(false))
    );
    for other in [json!({}), json!({"tenant": "other"})] {
        let read = send("read_cache", key.clone(), other).await;
        assert!(
            first_text(&read).starts_with("nothing is stored"),
            "{read:?}"
        );
    }
}

#[tokio::test]
async fn digest_results_need_an_unrecorded_reader() {
    let manifest = CACHED.replace(
        "    effect: read\n",
        "    effect: read\n    capture: digest\n",
    ) + "  quiet: {kind: native, use: read_cache, capture: digest, cache: {ttl: 60s, scope: shared, context: []}}\n";
    let app = TestApp::with_manifest(&manifest, []).await;
    let first = invoke_as(&app, None, "word", json!({"word": "a"})).await["content"].clone();
    let key = "tool:word|input:word=a";
    assert!(
        read_stored(&app, None, key)
            .await
            .unwrap_err()
            .contains("not kept in the ledger")
    );
    // A tool whose own results are not recorded may return it.
    let quiet = invoke_as(&app, None, "quiet", json!({"key": key})).await;
    assert_eq!(
        (&quiet["content"], &quiet["meta"]["cache"]),
        (&first, &json!("off"))
    );
    assert_eq!(app.newest_invocation().await["result"], Value::Null);
}

#[tokio::test]
async fn picture_in_arguments_is_returned() {
    let app = TestApp::with_manifest("tools: {add_image: {kind: native}}\n", []).await;
    let gif = "R0lGODlhAQABAAAAACw=";
    let answer = invoke_as(
        &app,
        None,
        "add_image",
        json!({"source": format!("data:image/png;base64,{gif}")}),
    )
    .await;
    assert_eq!(
        answer["content"][0],
        json!({"type": "image", "data": gif, "mimeType": "image/gif"})
    );
    assert_eq!(
        answer["content"][1]["text"],
        "the picture in the data: URI: image/gif, 1x1 pixels, 14 B"
    );
    assert_eq!(
        app.newest_invocation().await["result"]["content"],
        answer["content"],
        "the record has it as it was said"
    );
    let (status, problem) = app.invoke("add_image", json!({"source": "a.png"})).await;
    assert_eq!(
        (status.as_u16(), &problem["violations"][0]["pointer"]),
        (422, &json!("/source"))
    );
}
