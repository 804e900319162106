"""openapi-python-client: takes every route and tool, and its client type-checks and calls."""

import sys

import pytest

from conftest import HERE, run


@pytest.fixture(scope="module")
def client(document, work):
    """A folder with the generated package `toolcrib_client`."""
    folder = work / "python"
    text = run("openapi-python-client", "generate", "--path", document, "--output-path", folder, cwd=work).stdout
    # The generator omits what it cannot read and prints a warning.
    assert "arning" not in text and "rror" not in text, text
    return folder


def test_every_operation_has_a_function(client):
    names = {file.stem for file in (client / "toolcrib_client/api/invoke").glob("invoke_*.py")}
    assert names == {"invoke_calculator", "invoke_current_time", "invoke_get_weather", "invoke_nested_id", "invoke_odd_names",
                     "invoke_odd_names_2", "invoke_prune", "invoke_tool_2"}
    assert (client / "toolcrib_client/api/tools/list_tools.py").exists()


def test_typed_program_checks_and_runs(client, crib):
    run(sys.executable, "-m", "compileall", "-q", "toolcrib_client", cwd=client)
    program = (HERE / "use_python.py").read_text()
    (client / "use.py").write_text(program)
    strict = ["-m", "mypy", "--strict", "--cache-dir", client.parent.parent / "mypy"]
    run(sys.executable, *strict, "toolcrib_client", "use.py", cwd=client)
    (client / "misuse.py").write_text(program.replace('city="Oslo"', 'town="Oslo"'))
    output = run(sys.executable, *strict, "misuse.py", cwd=client, ok=False)
    assert output.returncode == 1 and '"town"' in output.stdout, output.stdout
    assert run(sys.executable, "use.py", crib.base, cwd=client).stdout.endswith("done\n")
