// The question of a running tool, for the caller of its call.

import { useState } from "preact/hooks";
import { send } from "../api";
import { touch } from "../live";
import type { Obj, Problem, Question } from "../types";
import { Fields, startValues } from "./form";
import { say } from "./parts";

/** A form for the answer. `answered` is called when the tool has the answer. */
export function QuestionForm({ call, question, answered }: { call: string; question: Question; answered: () => void }) {
  const [values, setValues] = useState<Obj>(() => startValues(question.schema));
  const [faults, setFaults] = useState<Map<string, string>>(new Map());
  const [busy, setBusy] = useState(false);
  const answer = async (action: "accept" | "decline") => {
    setBusy(true);
    const body = { action, question: question.name, ...(action === "accept" ? { content: values } : {}) };
    try {
      const response = await send("POST", `/invocations/${call}/answer`, body);
      const problem = response.ok ? null : ((await response.json()) as Problem);
      setFaults(new Map(problem?.violations?.map((fault) => [fault.pointer, fault.message])));
      if (!problem) answered();
      else if (!problem.violations?.length) say(problem.detail, true);
    } catch (error) {
      say((error as Error).message, true);
    } finally {
      setBusy(false);
      touch("calls");
    }
  };
  return (
    <form class="note note-warn question" noValidate aria-label={`Question of ${question.tool}`} onSubmit={(event) => { event.preventDefault(); void answer("accept"); }}>
      <p class="wrap"><strong>{question.tool} asks:</strong> {question.message}</p>
      {Object.keys((question.schema.properties ?? {}) as Obj).length > 0 && <Fields schema={question.schema} root={question.schema} value={values} change={(next) => { setFaults(new Map()); setValues(next); }} faults={faults} />}
      <div class="actions">
        <button type="submit" class="primary" disabled={busy}>Answer</button>
        <button type="button" disabled={busy} onClick={() => void answer("decline")}>Decline</button>
      </div>
    </form>
  );
}
