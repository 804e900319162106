import { useMemo, useState } from "preact/hooks";
import { post, request, session } from "../api";
import { milliseconds, number } from "../format";
import { touch } from "../live";
import { useData, useSettled } from "../query";
import { filter, link, place } from "../router";
import type { Tool, Usage } from "../types";
import { Action, Chip, Empty, Failure, Loading } from "../ui/parts";

const SHOWN = 200;

export function EffectMark({ effect }: { effect: string }) {
  return <Chip tone={effect === "write" ? "warn" : undefined}>{effect}</Chip>;
}

export function Tools() {
  const { filters } = place.value;
  const [text, setText] = useState(filters.q ?? "");
  const settled = useSettled(text, 120);
  const [whole, setWhole] = useState(false);
  const loaded = useData<{ tools: Tool[] }>("/tools", ["tools"]);
  const usage = useData<{ tools: Usage[] }>("/usage", ["calls"]);
  const totals = useMemo(() => {
    const found = new Map<string, { calls: number; failed: number; p50: number | null }>();
    for (const row of usage.data?.tools ?? []) {
      const old = found.get(row.tool);
      found.set(row.tool, { calls: (old?.calls ?? 0) + row.calls, failed: (old?.failed ?? 0) + row.failed, p50: old?.p50 ?? row.p50_ms });
    }
    return found;
  }, [usage.data]);
  const tools = useMemo(() => {
    const words = settled.toLowerCase().split(/\s+/).filter(Boolean);
    return (loaded.data?.tools ?? []).filter((tool) => {
      const where = `${tool.name} ${tool.aliases?.join(" ")} ${tool.tags.join(" ")} ${tool.kind} ${tool.description}`.toLowerCase();
      return words.every((word) => where.includes(word)) && (!filters.tag || tool.tags.includes(filters.tag));
    });
  }, [loaded.data, settled, filters.tag]);
  const tags = useMemo(() => [...new Set(loaded.data?.tools.flatMap((tool) => tool.tags))].sort(), [loaded.data]);
  return (
    <div class="view">
      <div class="view-head">
        <h1>Tools</h1>
        {session.value!.admin && <div class="actions"><Action run={() => request("DELETE", "/cache").then(() => touch("tools"))} done="All stored results were removed" confirm="Remove all stored results?">Purge the cache</Action></div>}
      </div>
      <form class="filters" role="search" aria-label="Search the tools" onSubmit={(event) => event.preventDefault()}>
        <label class="grow"><span>Search</span><input type="search" value={text} placeholder="name, tag, kind or words of the description" onInput={(event) => { setText(event.currentTarget.value); filter({ q: event.currentTarget.value }); }} /></label>
        {tags.length > 0 && <label><span>Tag</span><select value={filters.tag ?? ""} onChange={(event) => filter({ tag: event.currentTarget.value })}><option value="">any tag</option>{tags.map((tag) => <option key={tag} value={tag}>{tag}</option>)}</select></label>}
      </form>
      {loaded.error && <Failure error={loaded.error} retry={loaded.reload} />}
      {!loaded.data ? !loaded.error && <Loading /> : tools.length === 0 ? <Empty>No tool fits.</Empty> : (
        <div class="panel panel-flush">
          <table class="list tools">
            <caption class="hidden">Tools</caption>
            <thead><tr><th scope="col">Tool</th><th scope="col" class="wide-only">Description</th><th scope="col">Kind</th><th scope="col" class="num wide-only">Calls</th><th scope="col" class="num wide-only">Failed</th><th scope="col" class="num wide-only">Median</th></tr></thead>
            <tbody>
              {tools.slice(0, whole ? undefined : SHOWN).map((tool) => {
                const used = totals.get(tool.name);
                return (
                  <tr key={tool.name}>
                    <td class="name"><a class="row-link" href={link("tools", tool.name)}>{tool.name}</a>{!tool.available && <Chip tone="bad">not available</Chip>}</td>
                    <td class="wide-only cut">{tool.description}</td>
                    <td class="nowrap">{tool.kind} <EffectMark effect={tool.effect} /></td>
                    <td class="num wide-only">{used ? number(used.calls) : ""}</td><td class="num wide-only">{used?.failed ? number(used.failed) : ""}</td><td class="num wide-only">{used ? milliseconds(used.p50) : ""}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
          {!whole && tools.length > SHOWN && <div class="list-end"><button type="button" class="quiet" onClick={() => setWhole(true)}>Show all {number(tools.length)} tools</button></div>}
        </div>
      )}
    </div>
  );
}

export const switchTool = (name: string, on: boolean) => post(`/tools/${encodeURIComponent(name)}/${on ? "enable" : "disable"}`).then(() => touch("tools"));
