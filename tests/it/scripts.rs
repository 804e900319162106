//! The built-in `run_script`. Each script runs in a process of the program `toolcrib`.
#![cfg(feature = "script")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolcrib::kinds::builtin::run_script::ScriptProgram;
use toolcrib::{App, AppBuilder, Effect, Limit, Tool};

use crate::support::TestApp;
use crate::support::mcp::{last_message, modern_request};

const MANIFEST: &str = "tools:
  run_script: {kind: native}
  read_result: {kind: native}
";

fn orders() -> Tool {
    Tool::new("list_orders", "Lists the orders. Newest first.")
        .param("status", "string", "Their status")
        .effect(Effect::Read)
        .call(|_, _| async {
            Ok(json!([{"id": 1, "customer": "Ann", "total": 12.5}, {"id": 2, "customer": "Bob", "total": 40},
                {"id": 3, "customer": "Ann", "total": 7.25}]))
        })
}

fn order() -> Tool {
    Tool::new("get-order", "Reads one order.")
        .param("id", "integer", "Its id")
        .effect(Effect::Read)
        .call(|arguments, _| async move {
            match arguments["id"].as_i64() {
                Some(id) if id < 50 => Ok(json!({"id": id, "city": "Oslo"})),
                id => Err(format!("there is no order {id:?}").into()),
            }
        })
}

async fn service(manifest: &str, tools: impl IntoIterator<Item = Tool>) -> TestApp {
    let program = ScriptProgram(env!("CARGO_BIN_EXE_toolcrib").into());
    let builder = App::builder().share(program).tool(orders()).tool(order());
    let builder = tools.into_iter().fold(builder, AppBuilder::tool);
    TestApp::loading(builder, Some(manifest))
        .await
        .with_sources_listed()
        .await
}

/// The answer of a script.
async fn run(app: &TestApp, code: &str) -> Value {
    let (status, answer) = app.invoke("run_script", json!({"code": code})).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The data of a script that has ended well.
async fn data(app: &TestApp, code: &str) -> Value {
    let answer = run(app, code).await;
    assert_eq!(answer["is_error"], false, "{answer}");
    match &answer["structured_content"] {
        Value::Null => answer["content"][0]["text"].clone(),
        data => data.clone(),
    }
}

/// What a failed script tells the model.
async fn failure(app: &TestApp, code: &str) -> String {
    let answer = run(app, code).await;
    assert_eq!(answer["is_error"], true, "{answer}");
    answer["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn script_calls_tools_and_returns_its_last_value() {
    let app = service(MANIFEST, []).await;
    for (code, expected) in [
        (
            "[o['id'] for o in list_orders(status='open') if o['total'] > 10]",
            json!([1, 2]),
        ),
        ("list_orders('open')[0]['customer']", json!("Ann")),
        ("x = 1\nx + 1", json!("2")),
        ("print('one', 2)\nprint('three')", json!("one 2\nthree\n")),
        (
            "def total(orders):\n    return sum(o['total'] for o in orders)\n{'total': total(list_orders(status='x'))}",
            json!({"total": 59.75}),
        ),
        ("get_order(id=7)", json!({"id": 7, "city": "Oslo"})),
        ("call_tool('get-order', {'id': 7})['city']", json!("Oslo")),
        (
            "# await is not used here\nimport asyncio\nget_order(id=7)['city']",
            json!("Oslo"),
        ),
        (
            "from datetime import date\ndate(2026, 1, 2)",
            json!("2026-01-02"),
        ),
        (
            "[get_order(id=7)['city'] for _ in range(3)]",
            json!(["Oslo", "Oslo", "Oslo"]),
        ),
        (
            "import asyncio\norders = await asyncio.gather(*[get_order(id=i) for i in range(1, 4)])\n[o['id'] for o in orders]",
            json!([1, 2, 3]),
        ),
        (
            "import asyncio\nasync def main():\n    return (await get_order(id=4))['id']\nasyncio.run(main())",
            json!("4"),
        ),
        (
            "try:\n    get_order(id=99)\nexcept Exception as e:\n    caught = str(e)\ncaught",
            json!("get-order: there is no order Some(99)"),
        ),
        (
            "tool_schema('list_orders')['parameters']['required']",
            json!(["status"]),
        ),
        (
            "search_tools('get order', limit=1)",
            json!(["get_order(id: int)  # Reads one order"]),
        ),
        (
            "(1, {2}, None, True, 10**25)",
            json!([1, [2], null, true, "10000000000000000000000000"]),
        ),
        (
            "pass",
            json!(
                "The script ended without a value. Its last line is its result: write an expression there."
            ),
        ),
    ] {
        assert_eq!(data(&app, code).await, expected, "{code}");
    }
}

#[tokio::test]
async fn every_call_of_a_script_has_a_row_below_it() {
    let app = service(MANIFEST, []).await;
    let answer = run(
        &app,
        "for i in range(3):\n    get_order(id=i)\nlist_orders(status='a')",
    )
    .await;
    let (_, page) = app.get("/invocations").await;
    let rows = page["invocations"].as_array().unwrap();
    let parents: Vec<&Value> = rows.iter().map(|row| &row["parent"]).collect();
    assert_eq!(rows.len(), 5, "{page}");
    assert_eq!(parents[..4], [&answer["invocation_id"]; 4], "{page}");
}

#[tokio::test]
async fn calls_of_a_script_pass_grants_validation_and_limits() {
    let limited = Tool::new("limited", "…")
        .effect(Effect::Read)
        .limit(Limit {
            calls: 2,
            per: toolcrib::Per::Day,
            scope: toolcrib::LimitScope::default(),
        })
        .call(|_, _| async { Ok("x") });
    let app = service(MANIFEST, [limited]).await;
    for (code, words) in [
        ("get_order(id='seven')", "`id`"),
        ("get_order(nr=1)", "`nr`"),
        ("get_order(1, 2)", "takes only these arguments: id"),
        ("limited()\nlimited()\nlimited()", "limit"),
        ("run_script(code='1')", "name 'run_script' is not defined"),
        (
            "call_tool('run_script', {'code': '1'})",
            "there is no tool `run_script`",
        ),
        ("call_tool('get-order', 7)", "must be a dict"),
        ("sum(x > 1 for x in [1, 2])", "A bool is no number"),
        ("no_such_tool()", "name 'no_such_tool' is not defined"),
    ] {
        let text = failure(&app, code).await;
        assert!(text.contains(words), "{code}: {text}");
        assert!(text.contains(" in line "), "{code}: {text}");
    }
    let denied = json!({"tool_name": "run_script", "arguments": {"code": "get_order(id=1)"}});
    let (_, reply) = app.post("/calls?deny=get*", denied).await;
    assert_eq!(reply["results"][0]["is_error"], true, "{reply}");
}

#[tokio::test]
async fn failed_script_says_where_and_what_it_has_done() {
    let app = service(MANIFEST, []).await;
    let text = failure(
        &app,
        "a = get_order(id=1)\nprint('got it')\nb = a['nothing']",
    )
    .await;
    assert_eq!(
        text,
        "The script failed in line 3, column 5 (`b = a['nothing']`): KeyError: nothing. \
         Not undone: 1 call (get-order). It printed: got it"
    );
    let text = failure(&app, "if True\n    1").await;
    assert!(
        text.starts_with("The script failed in line 1, column"),
        "{text}"
    );
}

#[tokio::test]
async fn calls_of_gather_run_at_the_same_time() {
    let (open, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let both = Tool::new("both", "…").effect(Effect::Read).call({
        let (open, gate) = (open.clone(), gate.clone());
        move |_, _| {
            let (open, gate) = (open.clone(), gate.clone());
            async move {
                if open.fetch_add(1, Ordering::SeqCst) == 1 {
                    gate.add_permits(2);
                }
                gate.acquire().await.unwrap().forget();
                Ok("done")
            }
        }
    });
    let app = service(MANIFEST, [both]).await;
    let code = "import asyncio\nawait asyncio.gather(both(), both())";
    assert_eq!(data(&app, code).await, json!(["done", "done"]));
}

#[tokio::test]
async fn calls_without_await_end_before_the_script() {
    let count = Arc::new(AtomicUsize::new(0));
    let write = Tool::new("note", "…").call({
        let count = count.clone();
        move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok("noted") }
        }
    });
    let app = service(MANIFEST, [write]).await;
    let answer = run(&app, "await get_order(id=1)\nnote()\n'end'").await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let warnings = answer["meta"]["warnings"].to_string();
    assert!(warnings.contains("write `await`"), "{answer}");
}

#[tokio::test]
async fn cancelled_script_ends_with_its_calls() {
    let started = Arc::new(Semaphore::new(0));
    let slow = Tool::new("slow", "…").effect(Effect::Read).call({
        let started = started.clone();
        move |_, _| {
            let started = started.clone();
            async move {
                started.add_permits(1);
                std::future::pending::<()>().await;
                Ok("never")
            }
        }
    });
    let app = service(MANIFEST, [slow]).await;
    let cancel = async {
        started.acquire().await.unwrap().forget();
        let (_, page) = app.get("/invocations?tool=run_script&state=running").await;
        let id = page["invocations"][0]["invocation_id"]
            .as_str()
            .unwrap()
            .to_owned();
        app.delete(&format!("/invocations/{id}")).await
    };
    let call = async {
        let answer = app.invoke("run_script", json!({"code": "slow()"})).await;
        started.close();
        answer
    };
    let (answer, _) = tokio::join!(call, cancel);
    assert_eq!(answer.1["kind"], "cancelled", "{}", answer.1);
    app.wait_for_newest_with("tool=slow&state=cancelled").await;
}

#[tokio::test]
async fn repeated_script_does_not_repeat_its_writes() {
    let (paid, tries) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let pay = Tool::new("pay", "…").param("sum", "integer", "…").call({
        let paid = paid.clone();
        move |_, _| {
            let number = paid.fetch_add(1, Ordering::SeqCst);
            async move { Ok(json!({"receipt": number})) }
        }
    });
    // The first attempt of the script ends by its timeout here.
    let stall = Tool::new("stall", "…").effect(Effect::Read).call({
        let tries = tries.clone();
        move |_, _| {
            let is_first = tries.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    std::future::pending::<()>().await;
                }
                Ok("on")
            }
        }
    });
    let manifest = "tools:\n  run_script: {kind: native, effect: idempotent, retry: {attempts: 2}, timeout: 2s, deadline: 60s}\n";
    let app = service(manifest, [pay, stall]).await;
    let answer = data(&app, "r = pay(sum=5)\nstall()\nr['receipt']").await;
    assert_eq!(answer, "0");
    assert_eq!(
        (paid.load(Ordering::SeqCst), tries.load(Ordering::SeqCst)),
        (1, 2)
    );
}

#[tokio::test]
async fn script_reads_whole_results_and_handles() {
    let many = Tool::new("many", "…")
        .effect(Effect::Read)
        .call(|_, _| async {
            Ok(json!(
                (0..3000).map(|id| json!({"id": id})).collect::<Vec<_>>()
            ))
        });
    let app = service(MANIFEST, [many]).await;
    assert_eq!(data(&app, "len(many())").await, "3000");
    let (_, answer) = app.invoke("many", json!({})).await;
    let id = answer["invocation_id"].as_str().unwrap();
    let code = format!("sum(row['id'] for row in read_result(invocation_id='{id}'))");
    assert_eq!(data(&app, &code).await, "4498500");
    // The result of the script is paged like any other.
    let answer = run(&app, "many()").await;
    assert_eq!(
        answer["meta"]["overflow"]["total"], 3000,
        "{}",
        answer["meta"]
    );
}

#[tokio::test]
async fn call_that_waits_for_a_person_says_so_in_the_script() {
    let pay = Tool::new("pay", "…").call(|_, _| async { Ok("paid") });
    let manifest = format!("{MANIFEST}  calculator: {{kind: native, approval: {{wait: 50ms}}}}\n");
    let app = service(&manifest, [pay]).await;
    let text = failure(&app, "calculator(expression='1+1')").await;
    assert!(text.contains("approv"), "{text}");
    let (_, waiting) = app.get("/approvals?state=waiting").await;
    let _ = waiting;
}

#[tokio::test]
async fn description_lists_the_functions() {
    let app = service(MANIFEST, []).await;
    let (_, tool) = app.get("/tools/run_script").await;
    let description = tool["description"].as_str().unwrap();
    assert!(
        description.contains("\nlist_orders(status: str)  # Lists the orders"),
        "{description}"
    );
    assert!(!description.contains("\nrun_script("), "{description}");
    let manifest = "tools: {run_script: {kind: native, with: {signatures: 20}}}\n";
    let app = service(manifest, []).await;
    let (_, tool) = app.get("/tools/run_script").await;
    let description = tool["description"].as_str().unwrap();
    assert!(
        description.contains("write search_tools('a few words')"),
        "{description}"
    );
}

#[tokio::test]
async fn program_without_an_interpreter_refuses_scripts() {
    let app = TestApp::with_manifest(MANIFEST, []).await;
    let (status, answer) = app.invoke("run_script", json!({"code": "1"})).await;
    assert_eq!(
        (status.as_u16(), &answer["kind"]),
        (503, &json!("tool_unavailable")),
        "{answer}"
    );
}

/// Scripts that try to leave their sandbox, or to use up the machine.
const HOSTILE: &[(&str, &str)] = &[
    // Escapes.
    ("import os\nos.system('id')", ""),
    ("import subprocess", "subprocess"),
    ("import socket", "socket"),
    ("import ctypes", "ctypes"),
    ("import sys\nsys.modules['os']", ""),
    ("open('/etc/passwd').read()", "no files"),
    ("open('/tmp/x', 'w')", "no files"),
    (
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "no files",
    ),
    ("import os\nos.environ['PATH']", ""),
    ("import os\nos.getenv('HOME')", "no files"),
    ("import os\nos.listdir('/')", ""),
    ("__import__('os').system('id')", "__import__"),
    ("eval('1+1')", "eval"),
    ("exec('x = 1')", "exec"),
    ("compile('1', 'x', 'eval')", "compile"),
    ("().__class__.__bases__[0].__subclasses__()", ""),
    ("(lambda: 0).__globals__", ""),
    ("(lambda: 0).__code__", ""),
    ("globals()['__builtins__']", ""),
    (
        "getattr((), '__cl' + 'ass__').__base__.__subclasses__()",
        "",
    ),
    ("'{0.__class__.__mro__}'.format(1)", ""),
    ("import gc\ngc.get_objects()", ""),
    ("breakpoint()", "breakpoint"),
    ("input()", "input"),
    // Bombs.
    ("while True: pass", "computed longer"),
    ("x = 'a' * (1 << 40)", "memory"),
    ("x = []\nwhile True: x.append('y' * 1000)", "memory"),
    ("x = [0]\nwhile True: x = x + x", "memory"),
    ("10 ** (10 ** 10)", ""),
    ("x = 2\nwhile True: x = x * x", ""),
    ("def f(n): return f(n + 1)\nf(0)", "recursion"),
    ("x = []\nfor i in range(100000): x = [x]\nx", ""),
    ("x = []\nfor i in range(1000000): x = [x]\nstr(x)", ""),
    ("x = []\nfor i in range(1000000): x = [x]\nx == x[:]", ""),
    ("x = []\nx.append(x)\nx", "contains itself"),
    ("import re\nre.match('(a+)+$', 'a' * 40 + 'b').group()", ""),
    (
        "import re\nre.match('(?=(a+))*' + '(a*)*' * 20 + 'c', 'a' * 5000)",
        "",
    ),
    ("'x'.join('y' for _ in iter(int, 1))", ""),
    ("print('x' * (1 << 21))", "prints too much"),
    ("while True: print('x' * 1000)", "prints too much"),
    ("'x' * (1 << 21)", "the result has"),
    ("get_order(id='x' * (1 << 21))", "the arguments have"),
    ("while True: get_order(id=1)", "at most 20 calls"),
    (
        "while True:\n    try: no_such_tool()\n    except NameError: pass",
        "computed longer",
    ),
    (
        "import asyncio\nawait asyncio.gather(*[get_order(id=1) for _ in range(100000)])",
        "at most 20 calls",
    ),
    (
        "while True:\n    try:\n        get_order(id=1)\n    except: pass",
        "",
    ),
    (
        "try:\n    while True: pass\nexcept BaseException: pass\nwhile True: pass",
        "computed longer",
    ),
    (
        "class A:\n    def __eq__(self, other): return self == other\nA() == A()",
        "",
    ),
    (
        "sorted(range(100), key=lambda x: sorted(range(10**7), key=lambda y: -y))",
        "",
    ),
    ("float('nan')", "no number"),
    ("b'bytes'", "bytes"),
    ("lambda: 1", "no JSON"),
    ("\u{0}", ""),
    ("raise SystemExit(0)", ""),
    ("f'{1:>100000000000}'", ""),
    ("'%0100000000000d' % 1", ""),
    ("[0] * 10**12", "memory"),
    ("range(10**18)[10**17:]\nlist(range(10**12))", "memory"),
    ("{i: i for i in range(10**9)}", ""),
    ("import json\njson.loads('[' * 1000000)", ""),
    (
        "import itertools\nlist(itertools.product(range(1000), repeat=5))",
        "",
    ),
];

#[tokio::test]
async fn hostile_scripts_end_with_words_and_leave_the_service_alone() {
    let manifest =
        "tools: {run_script: {kind: native, with: {calls: 20, time: 1s, memory: 64MiB}}}\n";
    let app = service(manifest, []).await;
    let nested = [
        "(".repeat(100_000),
        "[".repeat(5000) + &"]".repeat(5000),
        format!("x = {}1", "-".repeat(100_000)),
    ];
    let nested = nested.iter().map(|code| (code.as_str(), ""));
    for (code, words) in HOSTILE.iter().copied().chain(nested) {
        let began = Instant::now();
        let text = failure(&app, code).await;
        let shown: String = code.chars().take(60).collect();
        eprintln!(
            "{shown:?} -> {} ({:?})",
            text.chars().take(200).collect::<String>(),
            began.elapsed()
        );
        assert!(text.starts_with("The script "), "{shown}: {text}");
        assert!(text.contains(words), "{shown}: {text}");
        assert!(began.elapsed() < Duration::from_secs(20), "{shown}");
        let (status, other) = app.invoke("get-order", json!({"id": 1})).await;
        assert_eq!(status, 200, "{shown}: {other}");
    }
}

#[tokio::test]
async fn script_of_a_connection_with_a_toolset_has_only_its_tools() {
    let manifest = format!("{MANIFEST}toolsets: {{small: {{tools: [run_script, get-order]}}}}\n");
    let app = service(&manifest, []).await;
    for (code, words) in [
        ("get_order(id=1)['city']", "Oslo"),
        (
            "list_orders(status='x')",
            "name 'list_orders' is not defined",
        ),
        ("call_tool('list_orders')", "there is no tool `list_orders`"),
        ("search_tools('orders')", "[\"get_order"),
    ] {
        let params = json!({"name": "run_script", "arguments": {"code": code}});
        let mut request = modern_request("tools/call", params, None);
        *request.uri_mut() = "/mcp/small".parse().unwrap();
        let (_, answer) = last_message(app.respond(request).await).await;
        let text = answer["result"]["content"][0]["text"].as_str();
        assert!(text.is_some_and(|text| text.contains(words)), "{answer}");
    }
}
