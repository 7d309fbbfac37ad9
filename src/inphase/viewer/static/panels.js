// The panels below the videos, in this order. Each is a function of the playback, the clock and `card`, and gives an
// element, or null where the playback has nothing for it.
import { curvesPanel } from "./curves.js";
import { element } from "./draw.js";
import { matrixPanel } from "./matrix.js";
import { resultsPanel } from "./results.js";
import { skeletonPanel } from "./skeleton.js";

const KEY = "inphase-details";
const PANELS = [matrixPanel, curvesPanel, skeletonPanel, resultsPanel];

// Analyses are folded away under "Details"; search results, and people in space where nothing else is, are not.
export function buildPanels(playback, clock, { details, found, tiles }) {
  const folded = details.querySelector(".panels");
  for (const panel of PANELS) {
    const made = panel(playback, clock, card);
    if (!made) continue;
    if (panel === skeletonPanel && isAlone(playback)) tiles.add({ root: made, ratio: 1 }, playback.reference + 1);
    else if (panel === resultsPanel || !playback.tracks.length) found.append(made);
    else folded.append(made);
  }
  details.hidden = !folded.childElementCount;
  remember(details);
}

function remember(details) {
  try {
    details.open = localStorage.getItem(KEY) === "open";
    details.addEventListener("toggle", () => localStorage.setItem(KEY, details.open ? "open" : "closed"));
  } catch { /* a page opened as a file may not remember */ }
}

// Where people in space are all there is beside the videos, they stand next to the one they come from.
function isAlone({ tracks, pairs }) {
  return tracks.length > 0 && !pairs.length && !tracks.some(({ curves }) => curves);
}

function card(title, options, ...content) {
  const head = element("header", {}, element("h2", { text: title }), element("div", { class: "options" }, ...options));
  return element("section", { class: "card", "aria-label": title }, head, ...content);
}
