// Long tables: only the rows in and near the window are in the page. All rows of such a table have one height.

import { useEffect, useRef, useState } from "preact/hooks";

/** Tables of up to this many rows are in the page as they are. */
const WHOLE = 120;
const AROUND = 30;
const USUAL = 34;

const heightOf = (table: HTMLElement | null) => table?.querySelector<HTMLElement>("tbody tr:not(.spacer)")?.offsetHeight || USUAL;

/** Which of `count` rows to draw, and the height of those above and below. */
export function useRows(count: number) {
  const table = useRef<HTMLTableElement>(null);
  const [at, setAt] = useState({ from: 0, to: WHOLE, height: USUAL });
  useEffect(() => {
    if (count <= WHOLE) return;
    let frame = 0;
    const look = () => {
      frame = 0;
      const body = table.current?.tBodies[0];
      if (!body) return;
      const height = heightOf(table.current), above = -body.getBoundingClientRect().top;
      const from = Math.max(0, Math.floor(above / height) - AROUND), to = Math.ceil((above + innerHeight) / height) + AROUND;
      // Steps of ten rows, so that scrolling by one row draws nothing.
      const next = { from: Math.floor(from / 10) * 10, to: Math.ceil(to / 10) * 10, height };
      setAt((old) => (old.from === next.from && old.to === next.to && old.height === next.height ? old : next));
    };
    const later = () => { frame ||= requestAnimationFrame(look); };
    look();
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
    };
  }, [count]);
  if (count <= WHOLE) return { table, from: 0, to: count, above: 0, below: 0 };
  const from = Math.min(at.from, Math.max(0, count - WHOLE)), to = Math.min(count, Math.max(at.to, from + 1));
  return { table, from, to, above: from * at.height, below: (count - to) * at.height };
}

/** The place of rows that are not drawn. */
export const Spacer = ({ height }: { height: number }) => (height > 0 ? <tr class="spacer" aria-hidden="true" style={{ height: `${height}px` }} /> : null);

/** Scrolls the least that shows a row, which need not be drawn yet. */
export function reveal(table: HTMLElement | null, index: number) {
  const body = table?.querySelector("tbody");
  if (!body) return;
  const height = heightOf(table), top = body.getBoundingClientRect().top + index * height;
  const head = document.querySelector<HTMLElement>(".top")?.offsetHeight ?? 0;
  if (top < head) scrollBy(0, top - head - height);
  else if (top + height > innerHeight) scrollBy(0, top + height - innerHeight + height);
}
