//! Tests: which statements run on a worker of tokio.

use super::*;

/// The number of calls after which a brief statement runs on the worker.
const CALLS_UNTIL_BRIEF: usize = 25;

#[test]
fn brief_read_needs_no_blocking_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let shop = Shop::new().await;
        let runner = shop.tool("select name from customers where id = :a", Effect::Read);
        let end = Instant::now() + TEST_TIMEOUT;
        // On a very busy machine a run may seem long, so that the next one is on a thread again.
        loop {
            for _ in 0..CALLS_UNTIL_BRIEF {
                call(&runner, json!({"a": 1})).await.0.unwrap();
            }
            let (release, is_released) = std::sync::mpsc::sync_channel::<()>(0);
            let only_thread = tokio::task::spawn_blocking(move || is_released.recv());
            let limit = Duration::from_millis(500);
            let answer = tokio::time::timeout(limit, call(&runner, json!({"a": 2}))).await;
            drop(release);
            assert!(only_thread.await.unwrap().is_err());
            if let Ok((result, _)) = answer {
                assert_eq!(result_data(result), json!([{"name": "Bo"}]));
                return;
            }
            assert!(Instant::now() < end, "the statement needs a thread");
        }
    });
}

/// The runtime has one worker, so a statement on it would stop the timer, too.
#[tokio::test]
async fn long_read_leaves_the_worker() {
    let shop = Shop::new().await;
    let runner = shop.tool(
        "with recursive n(x) as (select 1 union all select x + 1 from n where x < :n) select count(*) as n from n",
        Effect::Read,
    );
    for _ in 0..CALLS_UNTIL_BRIEF {
        call(&runner, json!({"n": 1})).await.0.unwrap();
    }
    let endless = call(&runner, json!({"n": 100_000_000_000_i64}));
    let dropped = tokio::time::timeout(Duration::from_millis(300), endless).await;
    assert!(dropped.is_err(), "the statement came to an end");
    let again = call(&runner, json!({"n": 10_000})).await.0;
    assert_eq!(result_data(again), json!([{"n": 10_000}]));
}

#[tokio::test]
async fn long_value_leaves_the_worker() {
    let shop = Shop::new().await;
    sqlx::raw_sql(
        "create table docs (id integer primary key, doc); \
        insert into docs values (1, 'short'), (2, hex(zeroblob(10000)))",
    )
    .execute(&mut shop.connect().await)
    .await
    .unwrap();
    let runner = shop.tool("select doc from docs where id <= :n", Effect::Read);
    for _ in 0..CALLS_UNTIL_BRIEF {
        call(&runner, json!({"n": 1})).await.0.unwrap();
    }
    let (result, warnings) = call(&runner, json!({"n": 2})).await;
    let rows = result_data(result);
    assert_eq!(rows[0], json!({"doc": "short"}));
    assert_eq!(rows[1]["doc"].as_str().map(str::len), Some(20_000));
    assert_eq!(warnings, [""; 0], "nothing is cut");
}
