"""The committed OpenAPI document against a running service, by schemathesis: statuses, media types, shapes, bounds.

    tests/run contract

by hand: python -m pytest tests/contract, with schemathesis beside that Python and TOOLCRIB_BIN=/path/to/toolcrib for
another binary than target/release/toolcrib. The number of examples bounds the time: some 20 seconds for each of the three runs
on a machine with nothing else to do.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from harness import REPO

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 600  # far more than a busy machine needs
KEYS = {"admin": "root-key-0123456789abcdef", "caller": "ann-key-0123456789abcdef", "no key": None}


@pytest.fixture
def crib(start):
    return start((HERE / "toolcrib.yaml").read_text()).ready()


@pytest.mark.parametrize("who", KEYS)
def test_service_conforms_to_its_document(who, crib, tmp_path, record_property):
    """Each run has the same seed, so it makes the same examples."""
    report = tmp_path / "report.json"
    program = pathlib.Path(sys.executable).parent / "schemathesis"
    key = KEYS[who]
    headers = ["--header", f"authorization: Bearer {key}"] if key else []
    done = subprocess.run(
        [program, "--config-file", HERE / "schemathesis.toml", "run", REPO / "openapi/openapi.json", "--url", crib.base, *headers,
         "--seed", "7", "--no-color", "--report", "json", "--report-json-path", report],
        cwd=tmp_path, env={**os.environ, "SCHEMATHESIS_HOOKS": str(HERE / "hooks.py")}, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
    assert report.exists(), done.stdout
    output = json.loads(report.read_text())
    cases, failures = output["test_cases"]["generated"], output["test_cases"]["unique_failures"]
    record_property("cases", cases)
    record_property("failures", failures)
    assert (failures, output["errors"], done.returncode) == (0, [], 0), done.stdout
    assert output["operations"]["tested"] == output["operations"]["total"], output["operations"]
    assert cases > 100, output["test_cases"]
    assert '"level":"ERROR"' not in crib.stderr, crib.stderr
