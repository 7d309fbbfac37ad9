// Light or dark: as the system says, until someone here says otherwise.
import { recolour } from "./draw.js";

const KEY = "inphase-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");

export function startTheme() {
  apply(remembered());
  system.addEventListener("change", recolour);
  document.getElementById("theme").addEventListener("click", toggleTheme);
}

export function toggleTheme() {
  const dark = (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const chosen = dark ? "light" : "dark";
  apply(chosen);
  try {
    localStorage.setItem(KEY, chosen);
  } catch { /* a page opened as a file may not remember */ }
}

function apply(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  recolour();
}

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
