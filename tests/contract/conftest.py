"""Says at the end how many cases each run had."""


def pytest_terminal_summary(terminalreporter):
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            said = dict(report.user_properties)
            if "cases" in said:
                name = report.nodeid.split("[")[-1].rstrip("]")
                terminalreporter.write_line(f"contract, {name}: {said['cases']} cases, {said['failures']} failures")
