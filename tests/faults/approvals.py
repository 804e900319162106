"""Calls that wait for a person, the decisions about them during a fault, and what must be true afterwards."""

import http.client
import json
import time

from audit import effects
from callers import Caller, Disconnected, for_each
from harness import ask, in_background, poll

# How long until each decided call has ended, once the fault is over.
ENDED_WITHIN = 40
ENDED = {"succeeded", "failed", "timed_out", "cancelled", "refused", "unknown"}


class Approvals:
    """`count` waiting calls of a tool, made before the fault. The callers of half of them still wait for the decision."""

    def __init__(self, trial, service, tool, name, count):
        self.trial, self.service, self.tool = trial, service, tool
        self.ids, self.told, self.verdicts = {}, {}, {}
        keys = [f"{name}-{number}" for number in range(count)]
        self.all_wait = False
        self.callers = [in_background(lambda key=key: self.call(key)) for key in keys[::2]]
        for_each(keys[1::2], lambda key, _: self.call(key))
        poll(lambda: len(self.find_waiting(keys)) + self.count_late() == count, 20, "all calls wait")
        self.all_wait = True

    def call(self, key):
        """A caller without an answer keeps its call: the call has a key."""
        while True:
            self.told[key] = Caller(self.service, timeout=60).invoke(self.tool, {"key": key}, key=key)
            # A replica may learn only now that the last fault has cut its connections. Its callers try again.
            if self.all_wait or self.told[key].status != 503:
                break
            time.sleep(0.1)

    def find_waiting(self, keys):
        connection = Caller(self.service).connect()
        found = ask(connection, "GET", f"/approvals?state=waiting&tool={self.tool}&limit=500").json["approvals"]
        connection.close()
        self.ids.update({row["arguments"]["key"]: row["invocation_id"] for row in found if row["arguments"]["key"] in keys})
        return self.ids

    def count_late(self):
        """On a busy machine, the deadline of a call may pass before the call waits. Such a call has no part in the trial."""
        return sum(call.status == 504 for call in list(self.told.values()))

    def decide(self, chance, within=0.0):
        """Decides about all, within some seconds. A decision without a good answer counts as not made, unless the ledger has it."""
        verdicts = [(key, chance.choice(("approve", "approve", "approve", "deny")), chance.uniform(0, within)) for key in self.ids]

        def decide(item, _):
            key, verdict, pause = item
            time.sleep(pause)
            reply = self.ask("POST", f"/invocations/{self.ids[key]}/{verdict}")
            self.trial.add("decided" if reply and reply.status == 200 else "not_decided")
            self.verdicts[key] = verdict if reply and reply.status == 200 else None

        for_each(verdicts, decide, threads=len(verdicts))

    def ask(self, method, path):
        try:
            return ask(Caller(self.service, timeout=60).connect(), method, path, "{}" if method == "POST" else None)
        except (OSError, http.client.HTTPException, Disconnected):
            return None

    def check(self, may_die=False):
        """After the fault. `may_die`: a process has died, so a started write may have become unknown."""
        for wait in self.callers:
            wait(90)
        for key, id_ in self.ids.items():
            shown = poll(lambda: self.look(id_), ENDED_WITHIN, f"{self.tool} key={key} has ended, or waits for a decision")
            decision = shown["approval"]["state"]
            made = self.verdicts[key]
            if made and decision != {"approve": "approved", "deny": "denied"}[made]:
                self.trial.record_fault("told_wrong", f"key={key}: {made} was answered with 200, and the call is {decision}")
            if shown["state"] == "waiting":
                continue  # nobody has decided
            ran = effects(self.trial.effects).count((self.tool, key))
            if ran > 1:
                self.trial.record_fault("doubled", f"{self.tool} key={key} ran {ran} times")
            late = shown.get("kind") == "deadline_exceeded"
            self.trial.add("timed_out", int(late))
            # On a busy machine, the wait for the ledger and the start of the program may take the whole deadline. The row says so.
            if decision == "approved" and not (late or shown["state"] == "succeeded" or may_die and shown["state"] == "unknown"):
                self.trial.record_fault("lost", f"approved key={key} is {shown['state']} {shown.get('kind')}, and ran {ran} times")
            if decision == "approved" and shown["state"] == "succeeded" and not ran or decision == "denied" and ran:
                self.trial.record_fault("lost", f"{decision} key={key} ran {ran} times, and is {shown['state']}")
            self.check_told(key, decision, ran, late)

    def look(self, id_):
        """The call, once it has ended or still waits for a decision."""
        reply = self.ask("GET", f"/invocations/{id_}")
        if reply is None or reply.status != 200:
            return None
        shown = reply.json
        is_open = shown["state"] == "waiting" and shown["approval"]["state"] == "waiting"
        return shown if shown["state"] in ENDED or is_open else None

    def check_told(self, key, decision, ran, late):
        """A caller hears that its call waits, or the truth about its end."""
        told = self.told[key]
        if told.status in (None, 202):
            return
        wrong = told.status == 504 and not late
        wrong = wrong or told.status == 200 and not ran or told.status == 403 and (ran or decision == "approved")
        # With this answer the tool has run, or the call waits on: nobody is told that it does not run.
        wrong = wrong or told.status == 503 and ran and "the ledger cannot write" in json.dumps(told.json_body)
        if wrong or told.status not in (200, 403, 503, 504):
            self.trial.record_fault("told_wrong", f"{decision}, ran {ran} times: {told}")
