// Tables that a person sorts by a click on the title of a column. The choice is in the address.

import { useMemo } from "preact/hooks";
import { filter, place } from "../router";

type Value = string | number | null | undefined;

/** The rows in the order of the column that the address names, such as `-calls`: the highest first. Rows without a value are last. */
export function useSorted<T>(rows: T[], columns: Record<string, (row: T) => Value>, usual: string): T[] {
  const chosen = place.value.filters.sort ?? usual;
  return useMemo(() => {
    const down = chosen.startsWith("-"), value = columns[chosen.replace(/^-/, "")];
    if (!value) return rows;
    const compare = (a: Value, b: Value) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    return [...rows].sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left == null || right == null) return (left == null ? 1 : 0) - (right == null ? 1 : 0);
      return down ? compare(right, left) : compare(left, right);
    });
  }, [rows, chosen]);
}

/** The title of a column that can be sorted. Numbers begin with the highest. */
export function SortHead({ column, label, usual, num, class: more = "" }: { column: string; label: string; usual: string; num?: boolean; class?: string }) {
  const chosen = place.value.filters.sort ?? usual;
  const up = chosen === column, down = chosen === `-${column}`;
  const next = num ? (down ? column : `-${column}`) : up ? `-${column}` : column;
  return (
    <th scope="col" class={`${num ? "num " : ""}${more}`} aria-sort={up ? "ascending" : down ? "descending" : undefined}>
      <button type="button" class="sort" onClick={() => filter({ sort: next })}>{label}{up ? " ↑" : down ? " ↓" : ""}</button>
    </th>
  );
}
