// Limits that are used up, or will be at the present pace.

import type { ComponentChildren } from "preact";
import { limitWords, span } from "../format";
import { useNow } from "../query";
import { link } from "../router";
import type { Limit, Totals } from "../types";
import { Chip, Meter, Panel } from "./parts";

const PER: Record<string, number> = { minute: 60e3, hour: 3600e3, day: 86400e3 };
/** A pace needs some time of its window, and some calls. */
const LEAST_TIME = 0.02;
const LEAST_CALLS = 2;

/** In how many milliseconds a limit runs out, if its window goes on as it began. */
export function runsOut(limit: Limit, now: number): number | null {
  const length = PER[limit.per];
  if (!length || !limit.resets_at || limit.used < LEAST_CALLS || limit.remaining === 0) return null;
  const end = Date.parse(limit.resets_at), gone = now - (end - length);
  if (gone < length * LEAST_TIME) return null;
  const left = (limit.remaining * gone) / limit.used;
  return now + left < end ? left : null;
}

/** Each limit once: a tool's own, a tool's for each caller, and a caller's own over all tools. */
function entries({ tools, callers }: Totals): { name: ComponentChildren; who: ComponentChildren; key: string; limit: Limit }[] {
  const seen = new Set<string>();
  const ofTools = tools.flatMap((row) => row.limits.map((limit) => ({ row, limit }))).map(({ row, limit }) => {
    const together = limit.scope === "tool";
    return {
      name: <a href={link("tools", row.tool)}>{row.tool}</a>,
      who: together ? <span class="dim">all callers</span> : <a class="dim" href={link("calls", null, { tool: row.tool, caller: row.caller })}>{row.caller}</a>,
      key: `${row.tool} ${together ? "" : row.caller} ${limitWords(limit)}`, limit,
    };
  });
  const ofCallers = callers.flatMap(({ caller, limits }) => limits.map((limit) => ({
    name: <a href={link("calls", null, { caller })}>{caller}</a>, who: <span class="dim">all tools</span>, key: `caller ${caller} ${limitWords(limit)}`, limit,
  })));
  return [...ofTools, ...ofCallers].filter(({ key }) => !seen.has(key) && !!seen.add(key));
}

export const hasLimits = ({ tools, callers }: Totals) => callers.length > 0 || tools.some((row) => row.limits.length > 0);

export function Limits({ totals, most = 20 }: { totals: Totals; most?: number }) {
  const now = useNow(10_000);
  const all = entries(totals).map((entry) => ({ ...entry, out: runsOut(entry.limit, now) }))
    .filter(({ limit, out }) => out !== null || limit.used / limit.limit >= 0.8)
    .sort((a, b) => (a.limit.remaining === 0 ? -1 : (a.out ?? Infinity)) - (b.limit.remaining === 0 ? -1 : (b.out ?? Infinity)));
  return (
    <Panel title="Limits that run out">
      {all.length === 0 ? <p class="dim">At the present pace no limit runs out before its window ends.</p> : all.slice(0, most).map(({ name, who, key, limit, out }) => (
        <div class="limit" key={key}>
          <div class="line-head">
            <span>{name} {who}</span>
            {limit.remaining === 0 ? <Chip tone="bad">used up</Chip> : out !== null && <Chip tone="warn">in about {span(out)}</Chip>}
          </div>
          <Meter limit={limit} now={now} />
        </div>
      ))}
      {all.length > most && <p class="dim small"><a href={link("usage")}>{all.length - most} more</a></p>}
    </Panel>
  );
}
