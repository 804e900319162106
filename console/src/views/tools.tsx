import { useMemo, useState } from "preact/hooks";
import { post, request, session } from "../api";
import { milliseconds, number } from "../format";
import { touch } from "../live";
import { useData, useSettled } from "../query";
import { filter, link, place } from "../router";
import type { Tool, Usage } from "../types";
import { Action, Chip, Empty, Failure, Loading } from "../ui/parts";
import { Spacer, useRows } from "../ui/rows";
import { SortHead, useSorted } from "../ui/sort";

export function EffectMark({ effect }: { effect: string }) {
  return <Chip tone={effect === "write" ? "warn" : undefined}>{effect}</Chip>;
}

const USUAL = "name";
/** Stands in the address for the tools of no source. */
const OWN = "-";

export function Tools() {
  const { filters } = place.value;
  const [text, setText] = useState(filters.q ?? "");
  const settled = useSettled(text, 120);
  const loaded = useData<{ tools: Tool[] }>("/tools?discovery=off", ["tools"]);
  const usage = useData<{ tools: Usage[] }>("/usage", ["calls"]);
  const totals = useMemo(() => {
    const found = new Map<string, { calls: number; failed: number; p50: number | null }>();
    for (const row of usage.data?.tools ?? []) {
      const old = found.get(row.tool);
      found.set(row.tool, { calls: (old?.calls ?? 0) + row.calls, failed: (old?.failed ?? 0) + row.failed, p50: old?.p50 ?? row.p50_ms });
    }
    return found;
  }, [usage.data]);
  const searched = useMemo(() => (loaded.data?.tools ?? []).map((tool) => ({
    tool, text: `${tool.name} ${tool.aliases?.join(" ")} ${tool.tags.join(" ")} ${tool.kind} ${tool.effect} ${tool.description}`.toLowerCase(),
  })), [loaded.data]);
  const tools = useMemo(() => {
    const words = settled.toLowerCase().split(/\s+/).filter(Boolean);
    return searched.filter(({ tool, text }) => words.every((word) => text.includes(word)) && (!filters.tag || tool.tags.includes(filters.tag)) && (!filters.source || (tool.source ?? "") === (filters.source === OWN ? "" : filters.source))).map(({ tool }) => tool);
  }, [searched, settled, filters.tag, filters.source]);
  const sorted = useSorted(tools, {
    name: (tool) => tool.name, kind: (tool) => tool.kind, effect: (tool) => tool.effect, source: (tool) => tool.source ?? "",
    calls: (tool) => totals.get(tool.name)?.calls, failed: (tool) => totals.get(tool.name)?.failed, median: (tool) => totals.get(tool.name)?.p50,
  }, USUAL);
  const sources = useMemo(() => [...new Set(loaded.data?.tools.map((tool) => tool.source ?? ""))].sort(), [loaded.data]);
  const { table, from, to, above, below } = useRows(sorted.length);
  const tags = useMemo(() => [...new Set(loaded.data?.tools.flatMap((tool) => tool.tags))].sort(), [loaded.data]);
  return (
    <div class="view">
      <div class="view-head">
        <h1>Tools {loaded.data && <span class="dim count">{tools.length === loaded.data.tools.length ? number(tools.length) : `${number(tools.length)} of ${number(loaded.data.tools.length)}`}</span>}</h1>
        {session.value!.admin && <div class="actions"><Action run={() => request("DELETE", "/cache").then(() => touch("tools"))} done="All stored results were removed" confirm="Remove all stored results?">Purge the cache</Action></div>}
      </div>
      <form class="filters" role="search" aria-label="Search the tools" onSubmit={(event) => event.preventDefault()}>
        <label class="grow"><span>Search</span><input type="search" value={text} placeholder="name, tag, kind or words of the description" onInput={(event) => { setText(event.currentTarget.value); filter({ q: event.currentTarget.value }); }} /></label>
        {sources.length > 1 && <label><span>Source</span><select value={filters.source ?? ""} onChange={(event) => filter({ source: event.currentTarget.value })}><option value="">any source</option>{sources.map((source) => <option key={source} value={source || OWN}>{source || "the manifest itself"}</option>)}</select></label>}
        {tags.length > 0 && <label><span>Tag</span><select value={filters.tag ?? ""} onChange={(event) => filter({ tag: event.currentTarget.value })}><option value="">any tag</option>{tags.map((tag) => <option key={tag} value={tag}>{tag}</option>)}</select></label>}
      </form>
      {loaded.error && <Failure error={loaded.error} retry={loaded.reload} />}
      {!loaded.data ? !loaded.error && <Loading /> : tools.length === 0 ? <Empty>No tool fits.</Empty> : (
        <div class="panel panel-flush">
          <table class="list fixed tools" ref={table} aria-rowcount={tools.length + 1}>
            <caption class="hidden">Tools</caption>
            <thead><tr><SortHead column="name" label="Tool" usual={USUAL} class="w-name" /><th scope="col" class="wide-only">Description</th>{sources.length > 1 && <SortHead column="source" label="Source" usual={USUAL} class="wide-only w-name-small" />}<SortHead column="kind" label="Kind" usual={USUAL} class="w-kind" /><SortHead column="effect" label="Effect" usual={USUAL} class="w-kind" /><SortHead column="calls" label="Calls" usual={USUAL} num class="wide-only w-num" /><SortHead column="failed" label="Failed" usual={USUAL} num class="wide-only w-num" /><SortHead column="median" label="Median" usual={USUAL} num class="wide-only w-num" /></tr></thead>
            <tbody>
              <Spacer height={above} />
              {sorted.slice(from, to).map((tool, offset) => {
                const used = totals.get(tool.name);
                return (
                  <tr key={tool.name} aria-rowindex={from + offset + 2}>
                    <td class="name" title={tool.name}>{!tool.available && <Chip tone="bad">off</Chip>}<a class="row-link" href={link("tools", tool.name)}>{tool.name}</a></td>
                    <td class="wide-only" title={tool.description}>{tool.description}</td>
                    {sources.length > 1 && <td class="wide-only" title={tool.source ?? undefined}>{tool.source}</td>}
                    <td>{tool.kind}</td>
                    <td><EffectMark effect={tool.effect} /></td>
                    <td class="num wide-only">{used ? number(used.calls) : ""}</td><td class={`num wide-only${used?.failed ? " fault" : ""}`}>{used?.failed ? number(used.failed) : ""}</td><td class="num wide-only">{used ? milliseconds(used.p50) : ""}</td>
                  </tr>
                );
              })}
              <Spacer height={below} />
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

export const switchTool = (name: string, on: boolean) => post(`/tools/${encodeURIComponent(name)}/${on ? "enable" : "disable"}`).then(() => touch("tools"));
