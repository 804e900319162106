// Limits that are used up, or will be at the present pace.

import { limitWords, span } from "../format";
import { useNow } from "../query";
import { link } from "../router";
import type { Limit, Usage } from "../types";
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

export function Limits({ rows, most = 20 }: { rows: Usage[]; most?: number }) {
  const now = useNow(10_000);
  const seen = new Set<string>();
  const all = rows.flatMap((row) => row.limits.map((limit) => ({ row, limit, out: runsOut(limit, now) })))
    .filter(({ row, limit }) => {
      const key = limit.scope === "tool" ? `${row.tool} ${limitWords(limit)}` : "";
      return !key || (!seen.has(key) && !!seen.add(key));
    })
    .filter(({ limit, out }) => out !== null || limit.used / limit.limit >= 0.8)
    .sort((a, b) => (a.limit.remaining === 0 ? -1 : (a.out ?? Infinity)) - (b.limit.remaining === 0 ? -1 : (b.out ?? Infinity)));
  return (
    <Panel title="Limits that run out">
      {all.length === 0 ? <p class="dim">At the present pace no limit runs out before its window ends.</p> : all.slice(0, most).map(({ row, limit, out }) => (
        <div class="limit" key={`${row.tool} ${row.caller} ${limitWords(limit)}`}>
          <div class="line-head">
            <span><a href={link("tools", row.tool)}>{row.tool}</a> {limit.scope === "tool" ? <span class="dim">all callers</span> : <a class="dim" href={link("calls", null, { tool: row.tool, caller: row.caller })}>{row.caller}</a>}</span>
            {limit.remaining === 0 ? <Chip tone="bad">used up</Chip> : out !== null && <Chip tone="warn">in about {span(out)}</Chip>}
          </div>
          <Meter limit={limit} now={now} />
        </div>
      ))}
      {all.length > most && <p class="dim small"><a href={link("usage")}>{all.length - most} more</a></p>}
    </Panel>
  );
}
