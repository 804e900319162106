import { render } from "preact";
import "@preact/signals";
import { openSession, signInNote } from "./api";
import { App } from "./app";
import "./style.css";

render(<App />, document.getElementById("app")!);
openSession().catch(() => (signInNote.value = "The service cannot be reached."));
