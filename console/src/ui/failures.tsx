// Which tools fail and why: the failures of a day by tool, each with the words of its last one.

import { useEffect, useMemo, useState } from "preact/hooks";
import { get, withQuery } from "../api";
import { exact, moment, number, stateWord, words } from "../format";
import { useData } from "../query";
import { link } from "../router";
import type { Answer, Call, CallDetail, Problem } from "../types";
import { Chip, Empty, Failure, Loading, Panel } from "./parts";

const WINDOW = 200;
const SHOWN = 6;
const STATES = "failed,timed_out,unknown";

/** What a failed call says about itself: the text of the tool, else the words of the service. */
export function reason(call: CallDetail): string {
  const attempt = call.attempt_errors[call.attempt_errors.length - 1]?.message;
  const result = call.result as (Partial<Answer> & Partial<Problem>) | null;
  const text = result?.is_error ? result.content?.find((block) => block.type === "text") : undefined;
  return attempt ?? (text?.type === "text" ? text.text : null) ?? result?.detail ?? call.detail ?? words(call.kind ?? "failed");
}

// A call that has ended does not change.
const known = new Map<string, string>();

function Reason({ call }: { call: Call }) {
  const [text, setText] = useState(known.get(call.invocation_id) ?? null);
  useEffect(() => {
    const id = call.invocation_id;
    setText(known.get(id) ?? null);
    if (known.has(id)) return;
    let live = true;
    get<CallDetail>(`/invocations/${id}`).then((detail) => {
      if (known.size > 200) known.clear();
      known.set(id, reason(detail));
      if (live) setText(reason(detail));
    }, () => live && setText(call.detail));
    return () => { live = false; };
  }, [call.invocation_id]);
  return <div class="small reason">{(text ?? call.detail ?? "").slice(0, 300) || "\u00a0"}</div>;
}

export function Failures() {
  const failed = useData<{ invocations: Call[]; next_cursor: string | null }>(withQuery("/invocations", { state: STATES, since: "24h", limit: WINDOW }), ["calls"]);
  const groups = useMemo(() => {
    const found = new Map<string, { last: Call; count: number }>();
    for (const call of failed.data?.invocations ?? []) {
      const name = `${call.tool} ${call.state} ${call.kind}`, old = found.get(name);
      if (old) old.count += call.count;
      else found.set(name, { last: call, count: call.count });
    }
    return [...found.values()].sort((a, b) => b.count - a.count);
  }, [failed.data]);
  return (
    <Panel title="Failures in 24 hours" action={<a href={link("calls", null, { state: STATES, since: "24h" })}>All</a>} flush>
      {failed.error && !failed.data ? <Failure error={failed.error} retry={failed.reload} /> : !failed.data ? <Loading /> : groups.length === 0 ? <Empty>No call has failed.</Empty> : (
        <ul class="rows">
          {groups.slice(0, SHOWN).map(({ last, count }) => (
            <li key={`${last.tool} ${last.state} ${last.kind}`}>
              <div class="line-head">
                <span><a href={link("tools", last.tool)}>{last.tool}</a> <Chip tone="bad">{number(count)}{failed.data!.next_cursor ? "+" : ""} {stateWord(last.state)}</Chip></span>
                <a class="small" href={link("calls", last.invocation_id)} title={exact(last.started_at)}>last {moment(last.started_at)}</a>
              </div>
              <Reason call={last} />
            </li>
          ))}
          {groups.length > SHOWN && <li class="dim small">and {groups.length - SHOWN} more</li>}
        </ul>
      )}
    </Panel>
  );
}
