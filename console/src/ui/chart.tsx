// A chart of values over time.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { moment } from "../format";
import { dark } from "../theme";

export interface Line { label: string; values: (number | null)[]; tone: "accent" | "bad" | "warn" | "good" | "dim"; bars?: boolean }

export function Chart({ times, lines: all, label, height = 150, unit = "" }: { times: number[]; lines: Line[]; label: string; height?: number; unit?: string }) {
  const at = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [chosen, setChosen] = useState<number | null>(null);
  const isDark = dark.value;
  // A line of zeros on the axis would look like an alarm.
  const lines = useMemo(() => all.filter((line, index) => index === 0 || line.values.some(Boolean)), [all]);
  const shape = lines.map((line) => line.label).join();

  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const made = new uPlot(
      {
        width: at.current!.clientWidth || 300,
        height,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        scales: { y: { range: (_plot, _low, high) => [0, Math.max(high, 1) * 1.1] } },
        hooks: { setCursor: [(plot) => setChosen(plot.cursor.idx ?? null)] },
        axes: [{ ...axis, size: 24, values: "{HH}:{mm}" }, { ...axis, size: 46, values: (_plot, ticks) => ticks.map((tick) => `${tick}${unit}`) }],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.label, stroke: colour(line.tone), width: 1.5, points: { show: false }, spanGaps: false, paths: uPlot.paths.stepped!({ align: 1 }),
            ...(line.bars ? { paths: uPlot.paths.bars!({ size: [0.7, 24] }), fill: colour(line.tone) } : {}),
          })),
        ],
      },
      [times, ...lines.map((line) => line.values)] as uPlot.AlignedData,
      at.current!,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => at.current && made.setSize({ width: at.current.clientWidth, height }));
    watch.observe(at.current!);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [isDark, shape, height]);

  useEffect(() => {
    plot.current?.setData([times, ...lines.map((line) => line.values)] as uPlot.AlignedData);
  }, [times, lines]);

  return (
    <figure class="chart">
      <div ref={at} role="img" aria-label={label} />
      <figcaption>{lines.map((line) => <span key={line.label} class={`key key-${line.tone}`}>{line.label}{chosen !== null && ` ${line.values[chosen] ?? "–"}${unit}`}</span>)}{chosen !== null && times[chosen] !== undefined && <span>{moment(new Date(times[chosen]! * 1000).toISOString())}</span>}</figcaption>
    </figure>
  );
}
