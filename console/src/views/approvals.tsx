// The inbox of calls that wait for a person.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, post, withQuery } from "../api";
import { moment, span } from "../format";
import { touch } from "../live";
import { useData, useNow } from "../query";
import { filter, link, place } from "../router";
import type { Approval, Obj, ToolDetail } from "../types";
import { Fields } from "../ui/form";
import { Icon } from "../ui/icons";
import { Diff, JsonText } from "../ui/json";
import { Action, Chip, Empty, Failure, Loading, Segments, StateMark } from "../ui/parts";

interface Page { approvals: Approval[]; next_cursor: string | null }
type Tab = "waiting" | "approved" | "denied" | "expired" | "withdrawn";

/** A notification of the browser for each call that begins to wait, if the person has allowed it. */
export function useNotification(waiting: Approval[]) {
  const seen = useRef<Set<string> | null>(null);
  useEffect(() => {
    const before = seen.current;
    seen.current = new Set(waiting.map((approval) => approval.invocation_id));
    if (!before || typeof Notification === "undefined" || Notification.permission !== "granted" || !document.hidden) return;
    for (const approval of waiting.filter((approval) => approval.can_decide && !before.has(approval.invocation_id))) {
      const shown = new Notification(`${approval.tool} waits for approval`, { body: `called by ${approval.caller}`, tag: approval.invocation_id });
      shown.onclick = () => { window.focus(); location.hash = link("approvals"); };
    }
  }, [waiting.map((approval) => approval.invocation_id).join()]);
}

function Card({ approval }: { approval: Approval }) {
  const now = useNow(1000);
  const [note, setNote] = useState("");
  const [edited, setEdited] = useState<Obj | null>(null);
  const [faults, setFaults] = useState<Map<string, string>>(new Map());
  const tool = useData<ToolDetail>(edited ? `/tools/${encodeURIComponent(approval.tool)}` : null);
  const waits = approval.state === "waiting";
  const approved = useData<Page>(waits ? withQuery("/approvals", { state: "approved", tool: approval.tool, limit: 1 }) : null, ["approvals"]);
  const last = approved.data && (approved.data.approvals[0] ?? null);
  const decide = async (what: "approve" | "deny") => {
    try {
      await post(`/invocations/${approval.invocation_id}/${what}`, { ...(note.trim() ? { note: note.trim() } : {}), ...(what === "approve" && edited ? { arguments: edited } : {}) });
    } catch (error) {
      const problem = (error as ApiError).problem;
      if (problem?.violations) setFaults(new Map(problem.violations.map((fault) => [fault.pointer, fault.message])));
      throw error;
    } finally {
      touch("approvals", "calls");
    }
  };
  return (
    <article class="panel approval" aria-label={`${approval.tool}, called by ${approval.caller}`}>
      <div class="panel-head">
        <h2><a href={link("calls", approval.invocation_id)}>{approval.tool}</a> <span class="dim">called by {approval.caller}</span>{!waits && <StateMark state={`approval-${approval.state}`} />}</h2>
        <span class="dim small">{waits ? `waits ${span(now - Date.parse(approval.requested_at))}${approval.expires_at ? `, expires in ${span(Date.parse(approval.expires_at) - now)}` : ""}` : approval.decided_at ? moment(approval.decided_at) : ""}</span>
      </div>
      <div class="panel-body">
        {approval.message && <p class="lead">{approval.message}</p>}
        {edited && tool.data ? <Fields schema={tool.data.input_schema} root={tool.data.input_schema} value={edited} change={(next) => { setFaults(new Map()); setEdited(next); }} faults={faults} />
          : waits && last ? <Diff all before={last.arguments} after={approval.arguments} labels={["last approved", "now"]} />
            : <JsonText value={approval.arguments} label="Arguments" />}
        {edited && <Diff before={approval.arguments} after={edited} labels={["asked", "your change"]} />}
        {waits && !edited && last && <p class="dim small">Beside <a href={link("calls", last.invocation_id)}>the call of {last.caller}</a> that {last.decided_by ?? "a person"} approved{last.decided_at ? ` at ${moment(last.decided_at)}` : ""}. Changed fields have colours.</p>}
        {waits && !edited && approved.data && last === null && <p class="dim small">No call of this tool was approved before.</p>}
        {approval.original_arguments && <Diff before={approval.original_arguments} after={approval.arguments} labels={["asked", "approved"]} />}
        {approval.context && <><p class="dim small">Context from the caller</p><JsonText value={approval.context} label="Context from the caller" /></>}
        {approval.run_id && <p class="small">Run <a href={link("runs", approval.run_id)}>{approval.run_id}</a></p>}
        {!waits && <p class="small">{approval.decided_by ? `By ${approval.decided_by}. ` : ""}{approval.note && `Note: ${approval.note}`}</p>}
        {waits && (approval.can_decide ? (
          <div class="decide">
            <label><span>Note</span><input value={note} placeholder="optional, on record" onInput={(event) => setNote(event.currentTarget.value)} /></label>
            <div class="actions">
              <Action tone="primary" run={() => decide("approve")} done={`${approval.tool} was approved`}>{edited ? "Approve the change" : "Approve"}</Action>
              <Action tone="danger" run={() => decide("deny")} done={`${approval.tool} was denied`}>Deny</Action>
              <button type="button" onClick={() => { setFaults(new Map()); setEdited(edited ? null : (approval.arguments ?? {})); }}>{edited ? "Keep the arguments" : "Change the arguments"}</button>
            </div>
          </div>
        ) : <p class="dim small">{approval.by.length ? `${approval.by.join(" or ")} decides this.` : "An admin decides this."}</p>)}
      </div>
    </article>
  );
}

export function Approvals() {
  const state = (place.value.filters.state ?? "waiting") as Tab;
  const loaded = useData<Page>(withQuery("/approvals", { state, limit: 50 }), ["approvals"]);
  const [permission, setPermission] = useState(typeof Notification === "undefined" ? "denied" : Notification.permission);
  return (
    <div class="view narrow">
      <div class="view-head">
        <h1>Approvals</h1>
        {permission === "default" && <button type="button" onClick={() => void Notification.requestPermission().then(setPermission)}><Icon name="bell" /> Notify me</button>}
      </div>
      <Segments<Tab> label="State" options={[["waiting", "Waiting"], ["approved", "Approved"], ["denied", "Denied"], ["expired", "Expired"], ["withdrawn", "Withdrawn"]]} value={state} choose={(next) => filter({ state: next === "waiting" ? null : next })} />
      {loaded.error?.status === 404 ? <Empty>This service has no approvals.</Empty>
        : loaded.error ? <Failure error={loaded.error} retry={loaded.reload} />
          : !loaded.data ? <Loading />
            : loaded.data.approvals.length === 0 ? <Empty>{state === "waiting" ? <>No call waits. With <Chip>approval</Chip> in its policy, the calls of a tool wait here.</> : `No call was ${state}.`}</Empty>
              : loaded.data.approvals.map((approval) => <Card key={approval.invocation_id} approval={approval} />)}
      {loaded.data?.next_cursor && <p class="dim small">The newest 50 are shown.</p>}
    </div>
  );
}
