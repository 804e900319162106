"""Every check at every setting, level and user."""

import json
import subprocess

import pytest

import checks
import expected
import place
import table
from harness import LEVELS, at_level, clean_env, ok, text_of
from recipes import command

# The processes of a user count together, so the tests of a user run one after the other.
ALL = [pytest.param((level, user), id=f"{level}-{user}", marks=pytest.mark.xdist_group(user)) for user in place.USERS for level in place.LEVELS]


@pytest.fixture(scope="module", params=ALL)
def there(request):
    """A service at a level, as a user."""
    level, user = request.param
    there = place.Place(level, user, list(checks.CHECKS))
    in_force = there.in_force()[0]
    if in_force != level:
        there.close()
        pytest.skip(f"no level {level} as {user} here: {in_force}")
    yield there
    there.close()


@pytest.mark.parametrize("setting", place.SETTINGS)
def test_what_must_be_denied_is_denied(there, setting):
    if setting == "none" and there.level != "namespaces":
        pytest.skip("without a sandbox the level does not matter")
    found = there.run(setting)
    broken = {name: why for name, (verdict, why) in found.items() if verdict not in ("REACHED", "DENIED")}
    assert not broken
    reached = {name: why for name, (verdict, why) in found.items() if verdict == "REACHED"}
    wrong = {name: why for name, why in reached.items() if expected.reason(name, setting, there.level, there.user) is None}
    assert not wrong, f"reached, and must be denied: {wrong}"
    missing = {name: found[name][1] for name in found if expected.must_be_reached(name, setting) and name not in reached}
    assert not missing, f"what every program needs is denied: {missing}"
    if setting == "none":
        assert len(reached) > 80, f"the checks reach too little without a sandbox to say anything: {sorted(reached)}"


def test_what_is_not_enforced_is_said(there):
    """A level without files and signals reports so, for each setting."""
    missing = {"namespaces": set(), "landlock": set(), "seccomp": {"files", "signals"}}[there.level]
    # As an ordinary user, the folder `keys` may be changed by programs that are not restricted to named files.
    exposed = {"files"} if (there.level, there.user) == ("landlock", "nobody") else set()
    assert set(there.in_force("service")[1]) == missing | exposed
    assert set(there.in_force("only")[1]) == missing
    assert set(there.in_force("hosts")[1]) == missing | ({"network"} if there.level == "seccomp" else set())
    assert set(there.in_force("limits")[1]) == missing | ({"processes"} if there.user == "root" else set())


def test_check_names_a_file_that_the_level_cannot_hide(there):
    within = at_level(there.level, there.folder, there.number)
    done = subprocess.run([*within, there.program, "check", "--live", "--format", "json", there.folder / "toolcrib.yaml"],
                          cwd=there.folder / "data", env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    findings = json.loads(done.stdout or done.stderr)["findings"]
    exposed = [finding["message"] for finding in findings if finding["rule"] == "exposed-file"]
    assert bool(exposed) == ((there.level, there.user) == ("landlock", "nobody")), findings
    assert all("give it a folder of its own" in message for message in exposed), exposed


def test_a_link_as_result_leads_nowhere(there):
    """A program leaves a link to the ledger where the service reads its result."""
    reply = there.crib.invoke("leave", {"plan": ""}, key=place.KEY)
    assert b"SQLite format" not in reply.body, reply
    assert reply.status != 200 or reply.json["is_error"], text_of(reply)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_program_has_a_temporary_folder_where_tmp_cannot_be_written(start, tmp_path, level):
    """As in a container with a read-only root."""
    tool = command(["/bin/sh", "-c", 'echo > "$TMPDIR/file" && echo "$TMPDIR"'], sandbox=True)
    crib = start({"tools": {"write": tool}}, env={"TMPDIR": "/proc"}, within=at_level(level, tmp_path))
    assert text_of(ok(crib.invoke("write"))).startswith("/dev/shm/toolcrib-")


@pytest.mark.parametrize("level", LEVELS[:1])
@pytest.mark.parametrize("setting", ["service", True])
def test_a_program_in_the_folder_of_the_ledger_cannot_read_it(start, tmp_path, level, setting):
    """The folder holds nothing else, so the service would hide all of it."""
    data = tmp_path / "data"
    data.mkdir()
    tool = command(["/bin/sh", "-c", "cat toolcrib.db || echo denied"], workdir=str(data), sandbox=setting)
    crib = start({"tools": {"read": tool}}, ledger=data / "toolcrib.db", within=at_level(level, tmp_path))
    assert text_of(ok(crib.invoke("read"))).strip().endswith("denied")


def test_expectations_name_checks():
    assert set(expected.MAY) - {"control"} <= set(checks.CHECKS)
    assert set(expected.PUBLISHED) | set(expected.ABOUT) <= set(checks.CHECKS)


def test_page_has_every_check():
    page = table.PAGE.read_text()
    missing = [name for name in checks.CHECKS if not name.startswith("control_") and f"| `{name}` |" not in page]
    assert not missing, f"run python tests/sandbox/table.py --write: {missing}"
