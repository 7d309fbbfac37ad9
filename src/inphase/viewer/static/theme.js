// Light or dark: the system's choice, unless the user has chosen here.
import { recolor } from "./draw.js";

const KEY = "inphase-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
let chosen = remembered();

export function startTheme() {
  apply();
  system.addEventListener("change", apply);
  document.getElementById("theme").addEventListener("click", toggleTheme);
}

export function toggleTheme() {
  chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  apply();
  try {
    localStorage.setItem(KEY, chosen);
  } catch { /* a page opened as a file may not remember */ }
}

function apply() {
  document.documentElement.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
  recolor();
}

function remembered() {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : null;
  } catch {
    return null;
  }
}
