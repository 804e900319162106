"""The statistics of benches/compare, and the limit of benches/guard. What they measure is tested by running them (tests/run)."""

import importlib.machinery
import importlib.util
import json
import math
import pathlib
import random
import sys

import pytest

BENCHES = pathlib.Path(__file__).resolve().parent.parent.parent / "benches"


@pytest.fixture(scope="module")
def changes():
    return loaded("changes", BENCHES / "lib" / "changes.py")


@pytest.fixture(scope="module")
def guard():
    sys.path.insert(0, str(BENCHES))
    yield loaded("guard", BENCHES / "guard")
    sys.path.remove(str(BENCHES))


def loaded(name, file):
    loader = importlib.machinery.SourceFileLoader(name, str(file))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def rounds(chance, ratio, noise=0.03, count=20):
    """Pairs of which each drifts with the machine, and differs by chance beside the true ratio."""
    speeds = [chance.uniform(50, 100) for _ in range(count)]
    return speeds, [speed * ratio * math.exp(chance.gauss(0, noise)) for speed in speeds]


def test_five_percent_is_a_change(changes):
    chance = random.Random(1)
    seen = [changes.Change("CPU", *rounds(chance, 1.05)).is_worse(0.02) for _ in range(200)]
    assert seen.count(True) >= 180


def test_equal_programs_show_no_change(changes):
    chance = random.Random(2)
    seen = [changes.Change("CPU", *rounds(chance, 1)).is_change(0.02) for _ in range(2000)]
    assert seen.count(True) <= 20  # 0.5 % of them, were it not for the least share


def test_interval_is_wilcoxons(changes):
    # The table of the signed-rank test: at 5 % and n = 6 the critical value is 0, at n = 8 it is 3.
    six = [1, 2, 4, 8, 16, 32]
    assert changes.interval(six, 0.95) == (1, 32)
    eight = list(range(8))
    means = sorted((a + b) / 2 for at, a in enumerate(eight) for b in eight[at:])
    assert changes.interval(eight, 0.95) == (means[3], means[-4])


def test_too_few_rounds_show_nothing(changes):
    one = changes.Change("CPU", [1.0] * 8, [2.0] * 8)
    assert not one.is_change(0.02)


def test_more_requests_are_better(changes):
    chance = random.Random(3)
    slower = changes.Change("requests/s", *rounds(chance, 0.9), more_is_better=True)
    faster = changes.Change("requests/s", *rounds(chance, 1.1), more_is_better=True)
    assert slower.is_worse(0.02)
    assert faster.is_change(0.02) and not faster.is_worse(0.02)


def test_guard_names_what_grew(guard, capsys):
    baseline = {"cached": {"call": 1000, "ledger": 2000}, "sql": {"call": 1000, "ledger": 2000}}
    now = {"cached": {"call": 1150, "ledger": 2100}, "sql": {"call": 1090, "ledger": 1500}}
    assert guard.compare(baseline, now) == ["cached, call"]
    assert "sql, ledger" in capsys.readouterr().out.splitlines()[-1]


def test_guard_counts_again_before_it_fails(guard, monkeypatch):
    counts = [{"http": {"call": 105, "ledger": 115}, "sql": {"call": 100, "ledger": 100}}, {"http": {"call": 112, "ledger": 106}}]
    asked = []

    def count(binary, cases=None):
        asked.append(cases)
        return counts[min(len(asked), len(counts)) - 1]

    baseline = {"instructions_per_call": {case: {"call": 100, "ledger": 100} for case in ("http", "sql")}, "at_rest": {"program": 100}}
    monkeypatch.setattr(guard.rest, "measure", lambda binary: {"program": 104})
    monkeypatch.setattr(sys, "argv", ["guard", "--toolcrib", sys.executable])
    monkeypatch.setattr(guard.instructions, "has_valgrind", lambda: True)
    monkeypatch.setattr(guard.instructions, "count", count)
    monkeypatch.setattr(guard, "BASELINE", type("File", (), {"name": "b", "read_text": lambda: json.dumps(baseline)}))
    guard.main()
    assert asked == [None, ["http"]], "the smallest counts are 105 and 106"
    counts[1] = counts[0]
    asked.clear()
    with pytest.raises(SystemExit) as ended:
        guard.main()
    assert "http, ledger" in str(ended.value.code) and asked == [None, ["http"], ["http"]]


def test_guard_names_what_is_larger(guard):
    assert guard.compare_rest({"memory at rest": 1000, "program": 1000}, {"memory at rest": 1040, "program": 1060}) == ["program"]


def test_guard_wants_a_reason(guard, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["guard", "--update", "because"])
    with pytest.raises(SystemExit):
        guard.parse_options()
