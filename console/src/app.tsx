import { useEffect, useState } from "preact/hooks";
import { session, signIn, signInNote, signOut } from "./api";
import { connection, follow, stopFollowing } from "./live";
import { link, place } from "./router";
import { useData } from "./query";
import { dark, switchTheme } from "./theme";
import type { Approval } from "./types";
import { Icon, type IconName } from "./ui/icons";
import { Empty, IconButton, Loading, Toast } from "./ui/parts";
import { ApiPage } from "./views/api";
import { Approvals, useNotification } from "./views/approvals";
import { CallPage } from "./views/call";
import { Calls } from "./views/calls";
import { Now } from "./views/now";
import { RunPage, Runs } from "./views/runs";
import { ToolPage } from "./views/tool";
import { Tools } from "./views/tools";
import { UsageView } from "./views/usage";

const VIEWS: [string, string, IconName][] = [
  ["now", "Now", "now"], ["calls", "Calls", "calls"], ["runs", "Runs", "runs"], ["tools", "Tools", "tools"],
  ["approvals", "Approvals", "approvals"], ["usage", "Usage", "usage"],
];

const CONNECTION = { connecting: "connecting", live: "live", polling: "every 3 s", lost: "not connected" };

function SignIn() {
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  return (
    <main class="sign-in">
      <form onSubmit={(event) => { event.preventDefault(); setBusy(true); void signIn(key).finally(() => setBusy(false)); }}>
        <img src="/console/icon.svg" width="36" height="36" alt="" />
        <h1>Toolcrib</h1>
        <p>This service needs a key. Enter the key of a caller of its manifest. The key of an admin shows the calls of all callers.</p>
        <label for="key">Key</label>
        <input id="key" type="password" autocomplete="off" spellcheck={false} value={key} onInput={(event) => setKey(event.currentTarget.value)} aria-describedby="key-note" />
        <p id="key-note" class="fault" role="alert">{signInNote.value}</p>
        <button type="submit" class="primary" disabled={busy || !key.trim()}>Sign in</button>
        <p class="dim small">The key stays in this tab, and is forgotten when the tab is closed.</p>
      </form>
    </main>
  );
}

/** The operations, which need no key, for a person without one. */
function PublicApi() {
  const { id } = place.value;
  useEffect(() => { document.title = "API · Toolcrib"; }, []);
  return (
    <div class="shell">
      <header class="top">
        <a class="brand" href={link("now")}><img src="/console/icon.svg" width="22" height="22" alt="" /> <span>Toolcrib</span></a>
        <div class="top-end">
          <IconButton icon={dark.value ? "sun" : "moon"} label={dark.value ? "Light colours" : "Dark colours"} onClick={switchTheme} />
          <a class="button" href={link("now")}>Sign in</a>
        </div>
      </header>
      <main id="main" tabIndex={-1}><ApiPage chosen={id} /></main>
    </div>
  );
}

function View() {
  const { view, id, turn } = place.value;
  switch (view) {
    case "calls": return id ? <CallPage key={id} id={id} /> : <Calls key={turn} />;
    case "runs": return id !== null ? <RunPage key={id} id={id} /> : <Runs />;
    case "tools": return id ? <ToolPage key={id} name={id} /> : <Tools key={turn} />;
    case "approvals": return <Approvals />;
    case "usage": return <UsageView />;
    case "api": return <ApiPage chosen={id} />;
    case "now": return <Now />;
    default: return <div class="view"><h1>There is no such page</h1><Empty>Nothing is at <code>#/{view}</code>. <a href={link("now")}>Open Now</a></Empty></div>;
  }
}

function Shell() {
  const { view } = place.value;
  const who = session.value!;
  const inbox = useData<{ approvals: Approval[]; next_cursor: string | null }>("/approvals?state=waiting&limit=100", ["approvals"]);
  const waiting = inbox.data?.approvals ?? [];
  useNotification(waiting);
  const count = waiting.filter((approval) => approval.can_decide).length;
  const name = view === "api" ? "API" : (VIEWS.find(([path]) => path === view)?.[1] ?? "No such page");
  useEffect(() => {
    document.title = `${count ? `(${count}) ` : ""}${name} · Toolcrib`;
  }, [name, count]);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <header class="top">
        <a class="brand" href={link("now")}><img src="/console/icon.svg" width="22" height="22" alt="" /> <span>Toolcrib</span></a>
        <nav aria-label="Views">
          {VIEWS.map(([path, label, icon]) => (
            <a key={path} href={link(path)} aria-current={view === path ? "page" : undefined}>
              <Icon name={icon} /> <span>{label}</span>
              {path === "approvals" && count > 0 && <span class="badge"><span class="hidden">waiting: </span>{count}{inbox.data?.next_cursor ? "+" : ""}</span>}
            </a>
          ))}
        </nav>
        <div class="top-end">
          <span class={`link link-${connection.value}`} title="How the page gets its news"><span class="dot" aria-hidden="true" />{CONNECTION[connection.value]}</span>
          {who.caller && who.needs_key && <span class="who" title={who.admin ? "an admin: sees all callers" : "sees its own calls"}>{who.caller}</span>}
          <a class={`icon-button${view === "api" ? " here" : ""}`} href={link("api")} aria-current={view === "api" ? "page" : undefined} aria-label="API" title="API: all operations"><Icon name="book" /></a>
          <IconButton icon={dark.value ? "sun" : "moon"} label={dark.value ? "Light colours" : "Dark colours"} onClick={switchTheme} />
          {who.needs_key && <IconButton icon="out" label="Sign out" onClick={signOut} />}
        </div>
      </header>
      {connection.value === "lost" && <div class="banner" role="alert">The service cannot be reached. The page shows what it loaded last, and tries again.</div>}
      <main id="main" tabIndex={-1}><View /></main>
      <Toast />
    </div>
  );
}

export function App() {
  const who = session.value;
  const signedIn = who !== null && (!who.needs_key || who.caller !== null);
  useEffect(() => {
    if (!signedIn) return;
    void follow();
    return stopFollowing;
  }, [signedIn, who?.caller]);
  if (who === null) return signInNote.value ? <main class="sign-in"><div class="unreachable"><p role="alert">{signInNote.value}</p><button type="button" onClick={() => location.reload()}>Try again</button></div></main> : <main><Loading /></main>;
  if (signedIn) return <Shell />;
  return place.value.view === "api" ? <PublicApi /> : <SignIn />;
}
