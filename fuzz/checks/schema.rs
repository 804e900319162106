//! A schema on the first line, and arguments below it. Both may come from anyone, so their cost is
//! bounded. What fits keeps fitting.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use toolcrib::schema::{
    FitError, INLINE_STEPS, Meter, Schema, SchemaOwner, relax, sample_value, to_standalone,
};

/// Far above what an optimized build takes, because this build counts each branch.
const COMPILE_LIMIT: Duration = Duration::from_secs(10);
const FIT_LIMIT: Duration = Duration::from_secs(2);

/// The time that this thread has run.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

#[track_caller]
fn bounded<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let begun = cpu_time();
    let result = work();
    let took = cpu_time() - begun;
    assert!(took < limit, "took {took:?}");
    result
}

pub(crate) fn check(text: &str) {
    let (schema, value) = text.split_once('\n').unwrap_or((text, "{}"));
    let Ok(schema) = serde_json::from_str::<Value>(schema) else {
        return;
    };
    let Ok(Value::Object(arguments)) = serde_json::from_str(value) else {
        return;
    };
    let sample = bounded(FIT_LIMIT, || sample_value(&schema));
    bounded(FIT_LIMIT, || to_standalone(&schema));
    let schema = Arc::new(schema);
    for owner in [SchemaOwner::Own, SchemaOwner::Derived, SchemaOwner::Foreign] {
        let mut relaxed = Value::clone(&schema);
        bounded(FIT_LIMIT, || relax(&mut relaxed, owner));
        let mut twice = relaxed.clone();
        relax(&mut twice, owner);
        assert_eq!(twice, relaxed);
        let Ok(compiled) = bounded(COMPILE_LIMIT, || Schema::compile(schema.clone(), owner)) else {
            continue;
        };
        for arguments in [Some(&arguments), sample.as_object()].into_iter().flatten() {
            fit(&compiled, arguments);
        }
    }
}

fn fit(schema: &Schema, arguments: &serde_json::Map<String, Value>) {
    let fit = |arguments: &mut serde_json::Map<String, Value>, strict| {
        let meter = Meter::new(INLINE_STEPS, None);
        bounded(FIT_LIMIT, || {
            schema.fit_arguments(arguments, strict, &meter)
        })
    };
    let (mut strict, mut lenient) = (arguments.clone(), arguments.clone());
    let is_strict = fit(&mut strict, true).is_ok();
    match fit(&mut lenient, false) {
        Ok(coercions) => {
            assert!(!is_strict || (coercions.is_empty() && strict == lenient));
            let mut again = lenient.clone();
            match fit(&mut again, false) {
                Ok(coercions) => assert!(coercions.is_empty() && again == lenient),
                Err(FitError::Violations(violations)) => panic!("fitted, and then: {violations:?}"),
                Err(FitError::Stopped(_)) => {}
            }
        }
        Err(FitError::Violations(violations)) => {
            assert!(!is_strict);
            assert!((1..=50).contains(&violations.len()));
            assert!(
                violations
                    .iter()
                    .all(|violation| !violation.message.is_empty())
            );
        }
        Err(FitError::Stopped(_)) => {}
    }
    bounded(FIT_LIMIT, || schema.redact_write_only(arguments).len());
}
