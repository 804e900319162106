use super::*;
use crate::call::{CacheStatus, ErrorKind};

const NOW: Now =
    Now { calls: 0, cache_entries: 0, cache_bytes: 0, ledger_up: true, lines_lost: 0, sources: Vec::new() };

fn name(text: &str) -> ToolName {
    ToolName::parse(text).unwrap()
}

/// The samples of one tool.
fn of(metrics: &Metrics, tool: &str) -> Vec<String> {
    let text = metrics.text(NOW).unwrap();
    let label = format!("tool=\"{tool}\"");
    text.lines().filter(|line| line.contains(&label)).map(str::to_owned).collect()
}

#[test]
fn a_tool_that_is_replaced_counts_on_and_one_that_is_gone_is_shown_once_more() {
    let metrics = Metrics::new().unwrap();
    let (first, other) = (metrics.tool(&name("t"), true), metrics.tool(&name("u"), false));
    first.ended(Outcome::Ok, CacheStatus::Miss, None, 1);
    first.ended(Outcome::Failed(ErrorKind::UpstreamFailed), CacheStatus::Miss, None, 3);
    // The new stack is built while calls of the old stack still run.
    let second = metrics.tool(&name("t"), false);
    drop(first);
    second.ended(Outcome::Ok, CacheStatus::Off, None, 1);
    let still = of(&metrics, "t");
    for sample in [
        "toolcrib_calls_total{cache=\"miss\",outcome=\"ok\",tool=\"t\"} 1",
        "toolcrib_calls_total{cache=\"off\",outcome=\"ok\",tool=\"t\"} 1",
        "toolcrib_retries_total{tool=\"t\"} 2",
    ] {
        assert!(still.iter().any(|line| line == sample), "{sample} in {still:#?}");
    }
    assert_eq!(of(&metrics, "t"), still, "nothing goes while a stack is there");
    drop(second);
    assert_eq!(of(&metrics, "t"), still, "the last numbers");
    assert_eq!(of(&metrics, "t"), [""; 0]);
    assert!(!of(&metrics, "u").is_empty());
    drop(other);
    // A tool that is registered again starts with new numbers.
    let back = metrics.tool(&name("t"), false);
    assert!(of(&metrics, "t").contains(&"toolcrib_calls_total{cache=\"off\",outcome=\"ok\",tool=\"t\"} 0".to_owned()));
    drop(back);
}

#[test]
fn what_is_looked_up_is_not_counted_twice() {
    let metrics = Metrics::new().unwrap();
    let lost = |lines_lost| {
        let text = metrics.text(Now { lines_lost, calls: 7, ..NOW }).unwrap();
        let find = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        (find("toolcrib_log_dropped_total"), find("toolcrib_open_calls"))
    };
    assert_eq!(lost(5), ("5".into(), "7".into()));
    assert_eq!(lost(5), ("5".into(), "7".into()));
    assert_eq!(lost(8), ("8".into(), "7".into()));
}

#[test]
fn a_place_is_counted_for_as_long_as_it_is_held() {
    let metrics = Metrics::new().unwrap();
    let tool = metrics.tool(&name("t"), false);
    let in_flight = || of(&metrics, "t").into_iter().find(|line| line.starts_with("toolcrib_in_flight")).unwrap();
    let two = [tool.running(), tool.running()];
    assert_eq!(in_flight(), "toolcrib_in_flight{tool=\"t\"} 2");
    drop(two);
    assert_eq!(in_flight(), "toolcrib_in_flight{tool=\"t\"} 0");
}
