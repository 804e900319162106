"""Patterns that look around, in schemas of the operator."""

from harness import cli, ok, problem



def cat(name, pattern):
    """A tool that prints its arguments. Its one parameter has this pattern."""
    return {"kind": "command", "description": "Prints what the customer has written.", "command": ["/bin/cat"], "output": "text",
            "effect": "read", "parameters": {name: {"type": "string", "pattern": pattern, "description": "Words of the customer"}}}


MANIFEST = {"tools": {"set_password": cat("password", "^(?=.*[A-Z]).{8,}$"), "slow": cat("word", r"^(a|a)*\1b$")}}


def test_pattern_that_looks_ahead_binds(start):
    crib = start(MANIFEST)
    assert ok(crib.invoke("set_password", {"password": "Abcdefgh"}))["content"][0]["text"] == '{"password":"Abcdefgh"}'
    assert "must match the pattern" in problem(crib.invoke("set_password", {"password": "abcdefgh"}), 422)["detail"]


def test_text_that_takes_too_long_is_refused(start):
    error = problem(start(MANIFEST).invoke("slow", {"word": "a" * 60 + "!"}), 422)
    assert "takes too long to compare" in error["detail"], error


def test_check_hints_at_the_pattern(start, tmp_path):
    crib = start(MANIFEST)
    done = cli("check", cwd=crib.folder)
    assert done.returncode == 0 and "costly-pattern" in done.stdout + done.stderr, done
