"""Prints at the end how many cases each run had."""

pytest_plugins = "service_fixtures"


def pytest_terminal_summary(terminalreporter):
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            output = dict(report.user_properties)
            if "cases" in output:
                name = report.nodeid.split("[")[-1].rstrip("]")
                terminalreporter.write_line(f"contract, {name}: {output['cases']} cases, {output['failures']} failures")
