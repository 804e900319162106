import { useMemo, useState } from "preact/hooks";
import { post, request, session } from "../api";
import { milliseconds, number } from "../format";
import { touch } from "../live";
import { useData, useSettled } from "../query";
import { filter, link, place } from "../router";
import type { Tool, Usage } from "../types";
import { Action, Chip, Empty, Failure, Loading } from "../ui/parts";
import { Spacer, useRows } from "../ui/rows";

export function EffectMark({ effect }: { effect: string }) {
  return <Chip tone={effect === "write" ? "warn" : undefined}>{effect}</Chip>;
}

export function Tools() {
  const { filters } = place.value;
  const [text, setText] = useState(filters.q ?? "");
  const settled = useSettled(text, 120);
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
  const searched = useMemo(() => (loaded.data?.tools ?? []).map((tool) => ({
    tool, text: `${tool.name} ${tool.aliases?.join(" ")} ${tool.tags.join(" ")} ${tool.kind} ${tool.effect} ${tool.description}`.toLowerCase(),
  })), [loaded.data]);
  const tools = useMemo(() => {
    const words = settled.toLowerCase().split(/\s+/).filter(Boolean);
    return searched.filter(({ tool, text }) => words.every((word) => text.includes(word)) && (!filters.tag || tool.tags.includes(filters.tag))).map(({ tool }) => tool);
  }, [searched, settled, filters.tag]);
  const { table, from, to, above, below } = useRows(tools.length);
  const tags = useMemo(() => [...new Set(loaded.data?.tools.flatMap((tool) => tool.tags))].sort(), [loaded.data]);
  return (
    <div class="view">
      <div class="view-head">
        <h1>Tools {loaded.data && <span class="dim count">{tools.length === loaded.data.tools.length ? number(tools.length) : `${number(tools.length)} of ${number(loaded.data.tools.length)}`}</span>}</h1>
        {session.value!.admin && <div class="actions"><Action run={() => request("DELETE", "/cache").then(() => touch("tools"))} done="All stored results were removed" confirm="Remove all stored results?">Purge the cache</Action></div>}
      </div>
      <form class="filters" role="search" aria-label="Search the tools" onSubmit={(event) => event.preventDefault()}>
        <label class="grow"><span>Search</span><input type="search" value={text} placeholder="name, tag, kind or words of the description" onInput={(event) => { setText(event.currentTarget.value); filter({ q: event.currentTarget.value }); }} /></label>
        {tags.length > 0 && <label><span>Tag</span><select value={filters.tag ?? ""} onChange={(event) => filter({ tag: event.currentTarget.value })}><option value="">any tag</option>{tags.map((tag) => <option key={tag} value={tag}>{tag}</option>)}</select></label>}
      </form>
      {loaded.error && <Failure error={loaded.error} retry={loaded.reload} />}
      {!loaded.data ? !loaded.error && <Loading /> : tools.length === 0 ? <Empty>No tool fits.</Empty> : (
        <div class="panel panel-flush">
          <table class="list fixed tools" ref={table} aria-rowcount={tools.length + 1}>
            <caption class="hidden">Tools</caption>
            <thead><tr><th scope="col" class="w-name">Tool</th><th scope="col" class="wide-only">Description</th><th scope="col" class="w-kind">Kind</th><th scope="col" class="w-kind">Effect</th><th scope="col" class="num wide-only w-num">Calls</th><th scope="col" class="num wide-only w-num">Failed</th><th scope="col" class="num wide-only w-num">Median</th></tr></thead>
            <tbody>
              <Spacer height={above} />
              {tools.slice(from, to).map((tool, offset) => {
                const used = totals.get(tool.name);
                return (
                  <tr key={tool.name} aria-rowindex={from + offset + 2}>
                    <td class="name" title={tool.name}>{!tool.available && <Chip tone="bad">off</Chip>}<a class="row-link" href={link("tools", tool.name)}>{tool.name}</a></td>
                    <td class="wide-only" title={tool.description}>{tool.description}</td>
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
