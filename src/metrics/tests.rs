use super::*;
use crate::call::{CacheStatus, ErrorKind};

const NOW: ServiceState = ServiceState {
    calls: 0,
    cache_entries: 0,
    cache_bytes: 0,
    ledger_up: true,
    lines_lost: 0,
    sources: Vec::new(),
    sandboxes: Vec::new(),
};

fn name(text: &str) -> ToolName {
    ToolName::parse(text).unwrap()
}

/// The samples of one tool.
fn samples_of(metrics: &Metrics, tool: &str) -> Vec<String> {
    let text = metrics.render(NOW).unwrap();
    let label = format!("tool=\"{tool}\"");
    text.lines()
        .filter(|line| line.contains(&label))
        .map(str::to_owned)
        .collect()
}

#[test]
fn replaced_tool_keeps_its_series() {
    let metrics = Metrics::new().unwrap();
    let (first, other) = (
        metrics.tool_metrics(&name("t"), true),
        metrics.tool_metrics(&name("u"), false),
    );
    first.record_end(OutcomeLabel::Ok, CacheStatus::Miss, None, 1);
    first.record_end(
        OutcomeLabel::Failed(ErrorKind::UpstreamFailed),
        CacheStatus::Miss,
        None,
        3,
    );
    // The new stack is built while calls of the old stack still run.
    let second = metrics.tool_metrics(&name("t"), false);
    drop(first);
    second.record_end(OutcomeLabel::Ok, CacheStatus::Off, None, 1);
    let still = samples_of(&metrics, "t");
    for sample in [
        "toolcrib_calls_total{cache=\"miss\",outcome=\"ok\",tool=\"t\"} 1",
        "toolcrib_calls_total{cache=\"off\",outcome=\"ok\",tool=\"t\"} 1",
        "toolcrib_retries_total{tool=\"t\"} 2",
    ] {
        assert!(
            still.iter().any(|line| line == sample),
            "{sample} in {still:#?}"
        );
    }
    assert_eq!(
        samples_of(&metrics, "t"),
        still,
        "nothing goes while a stack is there"
    );
    drop(second);
    assert_eq!(samples_of(&metrics, "t"), still, "the last numbers");
    assert_eq!(samples_of(&metrics, "t"), [""; 0]);
    assert!(!samples_of(&metrics, "u").is_empty());
    drop(other);
    // A tool that is registered again starts with new numbers.
    let back = metrics.tool_metrics(&name("t"), false);
    assert!(
        samples_of(&metrics, "t").contains(
            &"toolcrib_calls_total{cache=\"off\",outcome=\"ok\",tool=\"t\"} 0".to_owned()
        )
    );
    drop(back);
}

#[test]
fn sampled_values_are_not_counted_twice() {
    let metrics = Metrics::new().unwrap();
    let lost = |lines_lost| {
        let text = metrics
            .render(ServiceState {
                lines_lost,
                calls: 7,
                ..NOW
            })
            .unwrap();
        let find = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap()
                .trim()
                .to_owned()
        };
        (
            find("toolcrib_log_dropped_total"),
            find("toolcrib_open_calls"),
        )
    };
    assert_eq!(lost(5), ("5".into(), "7".into()));
    assert_eq!(lost(5), ("5".into(), "7".into()));
    assert_eq!(lost(8), ("8".into(), "7".into()));
}

#[test]
fn permit_is_counted_until_dropped() {
    let metrics = Metrics::new().unwrap();
    let tool = metrics.tool_metrics(&name("t"), false);
    let in_flight = || {
        samples_of(&metrics, "t")
            .into_iter()
            .find(|line| line.starts_with("toolcrib_in_flight"))
            .unwrap()
    };
    let guards = [tool.count_running(), tool.count_running()];
    assert_eq!(in_flight(), "toolcrib_in_flight{tool=\"t\"} 2");
    drop(guards);
    assert_eq!(in_flight(), "toolcrib_in_flight{tool=\"t\"} 0");
}
