"""openapi-typescript and openapi-fetch: `tsc --strict` takes a program against the types, and refuses a misspelled one."""

import shutil

import pytest

from conftest import HERE, PLACE, run

BIN = PLACE / "node_modules/.bin"


@pytest.fixture(scope="module")
def types(document, work):
    """A folder with the generated `toolcrib.ts`."""
    if not BIN.exists() or not shutil.which("node"):
        pytest.skip(f"no packages of package.json in {PLACE}, or no node")
    folder = work / "typescript"
    folder.mkdir()
    # An argument with a default may be left out.
    run(BIN / "openapi-typescript", document, "--default-non-nullable=false", "--output", folder / "toolcrib.ts", cwd=folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def compile_ts(folder, *programs, ok=True):
    options = ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"]
    return run(BIN / "tsc", *options, *programs, cwd=folder, ok=ok)


def test_typed_program_compiles_and_runs(types, crib):
    (types / "use.ts").write_text((HERE / "use.ts").read_text())
    compile_ts(types, "use.ts")
    assert run("node", "use.js", crib.base, cwd=types).stdout.endswith("done\n")


def test_misspelled_program_does_not_compile(types):
    misuses = {
        "argument.ts": ('city: "Oslo"', 'town: "Oslo"', "'town' does not exist"),
        "value.ts": ('units: "fahrenheit"', 'units: "kelvin"', '"kelvin"'),
        "result.ts": ("weather.sky", "weather.clouds", "'clouds' does not exist"),
        "route.ts": ("/tools/prune/invoke", "/tools/prun/invoke", '"/tools/prun/invoke"'),
    }
    program = (HERE / "use.ts").read_text()
    for file, (right, wrong, _) in misuses.items():
        assert right in program
        (types / file).write_text(program.replace(right, wrong, 1))
    output = compile_ts(types, *misuses, ok=False)
    assert output.returncode != 0
    for file, (_, _, complaint) in misuses.items():
        assert any(line.startswith(file) and complaint in line for line in output.stdout.splitlines()), output.stdout
