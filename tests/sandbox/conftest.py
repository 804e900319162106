"""The sandbox against a hostile program: about 160 checks, at each setting, level and user.

    tests/run sandbox                                     # needs root: levels and users are played by `launch.py`

`checks.py` is the hostile program, `expected.py` says what it may reach, `place.py` has what it would like to reach.
`python tests/sandbox/table.py --write` writes the table of docs/explain/sandbox-checks.md.
"""

import os
import pathlib
import sys

import pytest

pytest_plugins = "service_fixtures"

collect_ignore = ["checks.py", "launch.py"]


def pytest_collection_modifyitems(items):
    why = None
    if sys.platform != "linux" or os.geteuid() != 0:
        why = "needs root on Linux: it makes mounts and starts services of other users"
    elif not pathlib.Path("/usr/bin/python3").exists():
        why = "needs /usr/bin/python3, which every user may start"
    for item in items if why else ():
        item.add_marker(pytest.mark.skip(reason=why))
