"""Tools that write one line for each run."""

from recipes import command, params, web

# Room for every caller of a scenario at once: what is tested is not the queue.
ROOM = {"max": 64, "queue": 1000, "wait": "60s"}
# A limit that is never reached, so that the calls are charged.
PLENTY = 10_000_000


def writer(trial, name, seconds=0, first="", **policy):
    """A program that appends `NAME KEY` to the effects file, before or after it takes its time."""
    nap = f"/bin/sleep {seconds}; " if seconds else ""
    script = f'{first}echo "{name} $1" >> {trial.effects}; {nap}echo "done $1"'
    return _tool(command(["/bin/sh", "-c", script, trial.mark, "{{ key }}"]), **{"effect": "write", **policy})


def parent(trial, name, seconds=0, **policy):
    """A `writer` that leaves a process without a parent in another session. That one never ends by itself."""
    return writer(trial, name, seconds, first='(setsid /usr/bin/tail -f /dev/null "$0" >/dev/null 2>&1 &); ', **policy)


def poster(trial, upstream, name, seconds=0, **policy):
    """An HTTP upstream that does the same."""
    def append(handler):
        key = handler.headers.get("x-nonce", "")
        with open(trial.effects, "ab", buffering=0) as file:
            file.write(f"{name} {key}\n".encode())
        del handler.server.owner.requests[:]  # long runs send many
        if seconds:
            handler.server.owner.over.wait(seconds)
        handler.reply(200, {"done": key})

    url = upstream.script(f"/{name}", append)
    return _tool(web(url, method="POST", request={"headers": {"x-nonce": "{{ key }}"}}), **{"effect": "write", **policy})


def reader(trial, **policy):
    """A program that only prints a line."""
    return _tool(command(["/bin/sh", "-c", 'echo "read $1"', trial.mark, "{{ key }}"]), **{"effect": "read", **policy})


def _tool(tool, limit=None, **policy):
    """`limit` is (calls, per)."""
    tool["parameters"] = params(key="string", text={"type": "string", "required": False})
    tool["concurrency"] = ROOM
    if limit:
        tool["limits"] = [{"calls": limit[0], "per": limit[1]}]
    return {**tool, **policy}
