// The panels below the videos, in this order. Each is a function of the playback, the clock and `card`, and gives an
// element, or null where the playback has nothing for it.
import { curvesPanel } from "./curves.js";
import { element } from "./draw.js";
import { matrixPanel } from "./matrix.js";
import { resultsPanel } from "./results.js";
import { skeletonPanel } from "./skeleton.js";

const PANELS = [matrixPanel, curvesPanel, skeletonPanel, resultsPanel];

export function buildPanels(playback, clock, place, videos) {
  for (const panel of PANELS) {
    const made = panel(playback, clock, card);
    if (!made) continue;
    if (panel === skeletonPanel && isAlone(playback)) putBeside(made, videos, playback.reference);
    else place.append(made);
  }
}

// Where people in space are all there is beside the videos, they stand next to the one they come from.
function isAlone({ tracks, pairs }) {
  return tracks.length > 0 && !pairs.length && !tracks.some(({ curves }) => curves);
}

function putBeside(panel, videos, reference) {
  videos.children[reference].after(panel);
  videos.dataset.count = Math.min(videos.children.length, 9);
}

function card(title, options, ...content) {
  const head = element("header", {}, element("h2", { text: title }), element("div", { class: "options" }, ...options));
  return element("section", { class: "card", "aria-label": title }, head, ...content);
}
