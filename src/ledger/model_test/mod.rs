//! Compares each engine with a simple model over random operations, crashes and clock jumps. Both
//! must agree, and no unit, no key and no end may count twice.

mod harness;
mod model;
mod operation;
mod postgres;
mod run;
mod sqlite;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::test_server::TestServer;
use harness::Harness;
use operation::{Step, step_strategy};

/// Runs random cases, each with a ledger that `make` empties.
fn check<H: Harness>(cases: u32, make: impl AsyncFn() -> H) {
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let strategy = proptest::collection::vec(step_strategy(), 20..90);
    let case = |steps: Vec<Step>| {
        // The model needs the calls in the order of sending. A task that has used up its budget
        // would be suspended and could change the order.
        block_on(tokio::task::unconstrained(async {
            run::compare_steps(make().await, steps).await;
        }));
        Ok(())
    };
    if let Err(error) = TestRunner::new(config).run(&strategy, case) {
        panic!("{error}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

/// A part of `PROPTEST_CASES` (default 256), because each case writes to a disk.
fn cases(part: u32) -> u32 {
    ProptestConfig::default().cases.div_ceil(part)
}

#[test]
fn sqlite_matches_the_model() {
    check(cases(5), async || sqlite::Sqlite::new());
}

#[test]
fn postgres_matches_the_model() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = block_on(postgres::Postgres::create(&server));
    check(cases(32), async || {
        postgres::Postgres::new(url.clone()).await
    });
}
