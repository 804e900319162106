//! Lists of tools: what is taken, what is left out, and what a change means.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn listing_has_the_tools_of_all_pages() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let fixture = Fixture::new(quirks).await;
        assert_eq!(fixture.tools.len(), 22, "{:?}", fixture.tool_names());
        let echo = &fixture.tools[0];
        assert_eq!(
            (echo.name.as_str(), echo.description.as_str()),
            ("echo", "Does echo.")
        );
        assert_eq!(
            Value::Object(echo.annotations.clone()),
            json!({"readOnlyHint": true, "title": "Echo"})
        );
        assert_eq!(
            echo.input_schema,
            json!({"type": "object", "properties": {"text": {"type": "string"}}})
        );
        assert!(fixture.tools.last().unwrap().output_schema.is_some());
        assert_eq!(
            fixture.text("echo", json!({"text": "héllo"})).await,
            "héllo"
        );
        let weather = fixture.call("weather", json!({})).await.unwrap();
        assert_eq!(
            (weather.structured_content, weather.content.len()),
            (Some(json!({"celsius": 21.5})), 0)
        );
        let status = fixture.server.status();
        assert_eq!(
            (status.is_up, status.workers, status.replaced, status.fault),
            (true, 1, 0, None)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unusable_tools_are_skipped_with_warnings() {
    if is_python_missing() {
        return;
    }
    for quirks in [&["spoiled"][..], &["spoiled", "modern"]] {
        let fixture = Fixture::new(quirks).await;
        assert_eq!(fixture.tool_names(), SPOILED_TOOLS);
        let [no_schema, twice, root, pattern, unnamed @ ..] = &fixture.warnings[..] else {
            panic!("{:?}", fixture.warnings)
        };
        assert!(
            no_schema.starts_with("the tool `no_schema` is left out: invalid type: integer `7`"),
            "{no_schema}"
        );
        assert_eq!(
            twice,
            "the tool `good` is left out: the list contains it twice"
        );
        assert!(
            root.contains("`odd_root`") && root.contains("the root must be `type: object`"),
            "{root}"
        );
        assert!(
            pattern.contains("`bad_pattern`") && pattern.contains("inputSchema/properties/a"),
            "{pattern}"
        );
        let rest = [
            "the tool `` is left out: it has no name",
            "the tool ` ` is left out: it has no name",
            "the tool `deep` is left out: its definition is nested more than 128 levels deep",
            "the tool `untyped`: its inputSchema has no type and is read as `type: object`; the server should write the type",
            "the tool `bare`: its inputSchema has no type and is read as `type: object`; the server should write the type",
            "the tool `hinted`: its `annotations` is left out: invalid type: string \"yes\", expected a boolean",
            "the tool `null_words`: its inputSchema has no valid `properties` and no valid `required`, which is read as absent",
        ];
        assert_eq!(unnamed, rest);
        let schema_of = |name: &str| {
            let tool = fixture.tools.iter().find(|tool| tool.name == name);
            tool.unwrap().input_schema.clone()
        };
        assert_eq!(
            schema_of("null_words"),
            json!({"type": "object", "properties": {"required": {"type": "object"}}})
        );
        let untyped = fixture
            .tools
            .iter()
            .find(|tool| tool.name == "untyped")
            .unwrap();
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert_eq!(untyped.input_schema, schema);
        let sent = DefinitionFingerprint::new(
            "untyped",
            [(
                "inputSchema",
                Some(json!({"properties": schema["properties"]})),
            )],
        );
        assert_eq!(
            *untyped.snapshot.as_ref().unwrap().fingerprint,
            sent,
            "pins cover what the server sent"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reported_change_is_listed_over_same_connection() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let fixture = Fixture::new(quirks).await;
        let process = fixture.process().await;
        assert!(futures_util::FutureExt::now_or_never(fixture.server.changed()).is_none());
        fixture.text("grow", json!({})).await;
        tokio::time::timeout(TIMEOUT, fixture.server.changed())
            .await
            .unwrap();
        let listed = fixture.server.list(&|_| {}).await.unwrap();
        assert_eq!(listed.tools.last().unwrap().name, "grown");
        let call = listed.tools[1].runner.call(
            object(json!({})),
            context(&invocation(), Effect::Read, TIMEOUT),
        );
        assert_eq!(pid(&call.await.unwrap().as_text()), process);
        assert!(futures_util::FutureExt::now_or_never(fixture.server.changed()).is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn restart_signals_change_only_for_other_tools() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    fixture.call("die", json!({})).await.unwrap_err();
    fixture.process().await;
    assert!(futures_util::FutureExt::now_or_never(fixture.server.changed()).is_none());
    std::fs::write(fixture.file("late"), "").unwrap();
    fixture.call("die", json!({})).await.unwrap_err();
    tokio::time::timeout(TIMEOUT, fixture.server.changed())
        .await
        .unwrap();
    assert_eq!(
        fixture
            .server
            .list(&|_| {})
            .await
            .unwrap()
            .tools
            .last()
            .unwrap()
            .name,
        "late"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pinned_tool_is_refused_after_a_change() {
    if is_python_missing() {
        return;
    }
    for mode in [Mode::Persistent, Mode::OnDemand] {
        let fixture = Fixture::try_new(&[], |settings| settings.mode = mode)
            .await
            .unwrap();
        let pinned = |name: &str| {
            let snapshot = fixture
                .tools
                .iter()
                .find(|tool| tool.name == name)
                .unwrap()
                .snapshot
                .clone()
                .unwrap();
            let context = context(&invocation(), Effect::Write, TIMEOUT);
            async move {
                snapshot
                    .runner
                    .call(object(json!({"text": "hello"})), context)
                    .await
            }
        };
        pid(&pinned("pid").await.unwrap().as_text());
        std::fs::write(fixture.file("other"), "").unwrap();
        // A persistent server returns with another definition, which has not been listed for the
        // source yet.
        fixture.call("die", json!({})).await.unwrap_err();
        assert!(
            matches!(pinned("pid").await, Err(ToolError::DefinitionChanged)),
            "{mode:?}"
        );
        assert_eq!(
            pinned("echo").await.unwrap().as_text(),
            "hello",
            "that is the same"
        );
        fixture.process().await;
        tokio::time::timeout(TIMEOUT, fixture.server.changed())
            .await
            .unwrap();
        std::fs::remove_file(fixture.file("other")).unwrap();
        fixture.call("die", json!({})).await.unwrap_err();
        pid(&pinned("pid").await.unwrap().as_text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pinned_tool_without_known_definition_is_refused() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let snapshot = fixture.tools[0].snapshot.clone().unwrap();
    let pinned = || {
        snapshot.runner.call(
            object(json!({"text": "hello"})),
            context(&invocation(), Effect::Read, TIMEOUT),
        )
    };
    std::fs::write(fixture.file("endless"), "").unwrap();
    fixture.text("grow", json!({})).await;
    tokio::time::timeout(TIMEOUT, fixture.server.changed())
        .await
        .unwrap();
    for _ in 0..2 {
        let error = pinned().await.unwrap_err();
        let ToolError::Unavailable {
            message,
            started: false,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        let expected = "the MCP server probe reported changed tools, but could not list them: its list of tools has no end";
        assert!(message.starts_with(expected), "{message}");
    }
    assert_eq!(
        fixture.text("echo", json!({"text": "hello"})).await,
        "hello",
        "it is not pinned"
    );
    std::fs::remove_file(fixture.file("endless")).unwrap();
    fixture.server.list(&|_| {}).await.unwrap();
    assert_eq!(pinned().await.unwrap().as_text(), "hello", "it is the same");
    // The server reports another change, so its tools are listed again before the call.
    fixture.text("grow", json!({})).await;
    tokio::time::timeout(TIMEOUT, fixture.server.changed())
        .await
        .unwrap();
    assert_eq!(pinned().await.unwrap().as_text(), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn fingerprint_is_computed_before_redaction() {
    let tool = |words: &str| {
        let json = json!({"name": "t", "description": words, "inputSchema": {"type": "object"}, "annotations": {"title": words}});
        listing::fingerprint_definition(&serde_json::from_value(json).unwrap())
    };
    let (one, other) = (tool("Reads hunter2-hunter2."), tool("Reads [redacted]."));
    assert!(
        one.full_hash != other.full_hash
            && one.part_hashes["description"] != other.part_hashes["description"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn failed_listing_keeps_the_connection() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let process = fixture.process().await;
    std::fs::write(fixture.file("endless"), "").unwrap();
    assert!(fixture.server.list(&|_| {}).await.is_err());
    assert_eq!(
        (fixture.process().await, fixture.server.status().is_up),
        (process, true)
    );
    std::fs::remove_file(fixture.file("endless")).unwrap();
    assert_eq!(
        fixture.server.list(&|_| {}).await.unwrap().tools.len(),
        fixture.tools.len()
    );
    assert_eq!(fixture.process().await, process);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn include_and_exclude_filter_the_listing() {
    if is_python_missing() {
        return;
    }
    let change = |settings: &mut ServerSettings| {
        settings.include = vec!["e*".into(), "p?d".into()];
        settings.exclude = vec!["*ment".into()];
    };
    assert_eq!(
        Fixture::try_new(&[], change).await.unwrap().tool_names(),
        ["echo", "pid"]
    );
}
