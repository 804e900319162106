import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const STORED = "toolcrib.theme";

function stored(): Theme {
  try {
    const value = localStorage.getItem(STORED);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

export const theme = signal<Theme>(stored());
const system = matchMedia("(prefers-color-scheme: dark)");
export const dark = signal(false);

function apply() {
  dark.value = theme.value === "dark" || (theme.value === "system" && system.matches);
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
}

system.addEventListener("change", apply);
effect(() => {
  apply();
  try {
    if (theme.value === "system") localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, theme.value);
  } catch {
    // The choice then lasts as long as the page.
  }
});

export function switchTheme() {
  theme.value = dark.value ? "light" : "dark";
}
