// The small parts that views are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import type { ApiError } from "../api";
import type { Limit } from "../types";
import { limitWords, number, span, stateWord, words } from "../format";
import { Icon, type IconName } from "./icons";

export function StateMark({ state, kind }: { state: string; kind?: string | null }) {
  return (
    <span class={`state state-${state}`}>
      <span class="dot" aria-hidden="true" />
      {stateWord(state.replace(/^(source|service|approval)-/, ""))}
      {kind && <span class="state-kind"> {words(kind)}</span>}
    </span>
  );
}

export const Chip = ({ children, tone }: { children: ComponentChildren; tone?: string }) => <span class={`chip${tone ? ` chip-${tone}` : ""}`}>{children}</span>;

export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="note note-bad" role="alert">
      <span>{error.message}</span>
      {retry && <button type="button" class="quiet" onClick={retry}>Try again</button>}
    </div>
  );
}

export const Empty = ({ children }: { children: ComponentChildren }) => <div class="empty">{children}</div>;

export const Loading = () => <div class="empty" role="status">Loading</div>;

export function Panel({ title, action, children, flush }: { title: string; action?: ComponentChildren; children: ComponentChildren; flush?: boolean }) {
  const id = useId();
  return (
    <section class="panel" aria-labelledby={id}>
      <div class="panel-head">
        <h2 id={id}>{title}</h2>
        {action && <div class="panel-action">{action}</div>}
      </div>
      <div class={flush ? "panel-flush" : "panel-body"}>{children}</div>
    </section>
  );
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "").map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** How much of a limit is used. */
export function Meter({ limit, now }: { limit: Limit; now?: number }) {
  const share = limit.limit ? Math.min(1, limit.used / limit.limit) : 1;
  const tone = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "good";
  const resets = limit.resets_at ? Date.parse(limit.resets_at) - (now ?? Date.now()) : null;
  return (
    <div class="meter">
      <div class="meter-words">
        <span>{limitWords(limit)}</span>
        <span class="dim">{number(limit.remaining)} left{resets !== null && resets > 0 ? `, new in ${span(resets)}` : ""}</span>
      </div>
      <svg class={`bar bar-${tone}`} viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={`${limit.used} of ${limit.limit} used`}>
        <rect class="bar-back" width="100" height="4" />
        <rect class="bar-fill" width={Math.max(share * 100, limit.used ? 1 : 0)} height="4" />
      </svg>
    </div>
  );
}

export function IconButton({ icon, label, onClick, disabled }: { icon: IconName; label: string; onClick: () => void; disabled?: boolean }) {
  return (
    <button type="button" class="icon-button" aria-label={label} title={label} onClick={onClick} disabled={disabled}>
      <Icon name={icon} />
    </button>
  );
}

/** Says what was done, for screen readers too. */
export const toast = signal<{ text: string; bad: boolean } | null>(null);
let hide: ReturnType<typeof setTimeout> | undefined;
export function say(text: string, bad = false) {
  toast.value = { text, bad };
  clearTimeout(hide);
  hide = setTimeout(() => (toast.value = null), bad ? 8000 : 4000);
}

export const Toast = () => (
  <div class="toasts" role="status" aria-live="polite">
    {toast.value && <div class={`toast${toast.value.bad ? " toast-bad" : ""}`}>{toast.value.text}</div>}
  </div>
);

/** A button for a request. It is off while the request runs, and tells a failure. */
export function Action({ children, run, done, tone, confirm }: { children: ComponentChildren; run: () => Promise<unknown>; done?: string; tone?: string; confirm?: string }) {
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState(false);
  const act = async () => {
    setAsking(false);
    setBusy(true);
    try {
      await run();
      if (done) say(done);
    } catch (error) {
      say((error as Error).message, true);
    } finally {
      setBusy(false);
    }
  };
  if (asking && confirm)
    return (
      <span class="confirm" role="group" aria-label={confirm}>
        <span>{confirm}</span>
        <button type="button" class="danger" onClick={act}>Yes</button>
        <button type="button" onClick={() => setAsking(false)}>No</button>
      </span>
    );
  return (
    <button type="button" class={tone} disabled={busy} onClick={() => (confirm ? setAsking(true) : void act())}>
      {children}
    </button>
  );
}

export async function copy(text: string) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    say("The browser does not allow copying here", true);
  }
}

/** A dialog that the browser keeps the focus in. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const at = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    at.current!.showModal();
  }, []);
  return (
    <dialog ref={at} aria-labelledby={id} onClose={close} onClick={(event) => event.target === at.current && at.current!.close()}>
      <div class="dialog">
        <div class="panel-head">
          <h2 id={id}>{title}</h2>
          <IconButton icon="close" label="Close" onClick={() => at.current!.close()} />
        </div>
        <div class="panel-body">{children}</div>
      </div>
    </dialog>
  );
}

export function Segments<T extends string>({ label, options, value, choose }: { label: string; options: [T, string][]; value: T; choose: (value: T) => void }) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button key={option} type="button" aria-pressed={option === value} onClick={() => choose(option)}>
          {text}
        </button>
      ))}
    </div>
  );
}
