"""An agent without its model: waits for Toolcrib, shows the tools, makes calls, and looks at what comes back.

Exit status 0 when every answer was as it should be. TOOLCRIB_URL and TOOLCRIB_KEY say where, and as whom.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

URL = os.environ.get("TOOLCRIB_URL", "http://127.0.0.1:7411")
RUN = str(uuid.uuid4())


def ask(path, body=None):
    """Status and JSON of one request; a problem is an answer, too."""
    headers = {"content-type": "application/json"}
    if key := os.environ.get("TOOLCRIB_KEY"):
        headers["authorization"] = f"Bearer {key}"
    request = urllib.request.Request(URL + path, body and json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as problem:
        return problem.code, json.load(problem)


def wait_until_ready(seconds=60):
    """A container that starts beside this one may need a moment."""
    for _ in range(seconds * 5):
        try:
            if ask("/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"agent: {URL} was not ready within {seconds} s")


def call(tool, expected, **arguments):
    """One call, as an agent loop makes it: `content` goes back to the model, whether it is an answer or a problem."""
    status, answer = ask(f"/tools/{tool}/invoke", {"arguments": arguments, "run_id": RUN})
    text = " ".join(block["text"] for block in answer["content"])
    word = answer.get("kind") or f"cache {answer['meta']['cache']}"
    print(f"{tool} {json.dumps(arguments)} -> {status} {word}: {text.splitlines()[0]}")
    return (status, text) == expected if isinstance(expected, tuple) else status == expected


def main():
    wait_until_ready()
    tools = ask("/tools?format=openai")[1]
    print("tools for the model:", ", ".join(tool["function"]["name"] for tool in tools))
    good = [
        call("calculator", (200, "42"), expression="6*7"),
        call("calculator", 409, expression="6*7"),  # twice in a row: the model has the answer
        call("calculator", 422, expresion="6*7"),  # the message for the model names the fault
        call("current_time", 200, timezone="Europe/Oslo"),
        call("calculator", (200, "42"), expression="6*7"),  # out of the cache
        call("current_time", 200, timezone="UTC"),
        call("current_time", 429, timezone="UTC"),  # two a run
        call("read_settings", 200, path="toolcrib.yaml"),
        call("get_wether", 404),
    ]
    status, ledger = ask("/invocations?limit=100")
    recorded = [row for row in ledger["invocations"] if row["run_id"] == RUN]
    print(f"recorded for this run: {len(recorded)} calls")
    good.append(status == 200 and len(recorded) >= 7)
    print("agent: all as expected" if all(good) else f"agent: not as expected: {good}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
