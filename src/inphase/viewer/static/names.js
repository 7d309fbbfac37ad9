// Names below the marks of a lane, in as many rows as needed to avoid overlap, and buttons for key positions.
import { element } from "./draw.js";

const MOST_ROWS = 9; // enough for nine key positions at one place
const LONGEST = 112; // pixels of a name; the rest is in its title
const GAP = 6;
const MOST_KEYS = 9;
const OPENED = 0.001; // seconds after the start of a frame, so that it is shown
const ruler = document.createElement("canvas").getContext("2d");

export function layNames(place, moments, clock) {
  const width = place.clientWidth;
  const wanted = moments.filter(({ label }) => label).sort((a, b) => a.second - b.second);
  if (!width || !wanted.length) {
    place.replaceChildren();
    place.style.setProperty("--rows", 0);
    return;
  }
  ruler.font = `600 ${getComputedStyle(place).fontSize} ${getComputedStyle(place).fontFamily}`;
  const ends = []; // of each row, where its last name ends
  const made = [];
  for (const { second, label, own } of wanted) {
    const at = (second / clock.duration) * width;
    const size = Math.min(Math.ceil(ruler.measureText(label).width) + 8, LONGEST, width);
    const left = Math.min(Math.max(at - size / 2, 0), width - size);
    const free = ends.findIndex((end) => end + GAP <= left);
    const row = free < 0 ? ends.length : free;
    if (row >= MOST_ROWS) continue; // its diamond has a title, and its button a name
    ends[row] = left + size;
    const name = element("div", { class: own ? "mark-label" : "", title: label }, element("span", { text: label }));
    for (const [variable, value] of Object.entries({ left: `${left}px`, size: `${size}px`, row, at: `${at - left}px` })) {
      name.style.setProperty(`--${variable}`, value);
    }
    name.addEventListener("click", () => clock.seek(second + (own ? OPENED : 0)));
    made.push(name);
  }
  place.replaceChildren(...made);
  place.style.setProperty("--rows", ends.length);
}

// Build buttons 1 to 9 that go to the key positions; `positions` returns the current ones. Return the actions of the keys.
export function buildKeyPositions(positions, clock, marks, place) {
  let shown = [];
  const go = (number) => { if (shown[number]) clock.seek(shown[number].second + OPENED); };
  const draw = () => {
    const all = positions();
    shown = all.slice(0, MOST_KEYS);
    place.hidden = !shown.length;
    place.replaceChildren(...shown.map(({ label, second }, number) => {
      const button = element("button", { class: "small", type: "button", title: `${label}, ${second.toFixed(2)} s (${number + 1})` },
        element("kbd", { text: number + 1 }), ...(label === String(number + 1) ? [] : [element("span", { text: label })]));
      button.addEventListener("click", () => go(number));
      return button;
    }));
    if (all.length > MOST_KEYS) place.append(element("span", { class: "muted", text: `and ${(all.length - MOST_KEYS).toLocaleString("en")} more (N, B)` }));
    highlight();
  };
  const highlight = () => {
    const now = shown.findLastIndex(({ second }) => second <= clock.time + 1e-3);
    place.querySelectorAll("button").forEach((button, number) => {
      if (number === now) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
  };
  clock.addEventListener("time", highlight);
  marks.addEventListener("change", draw);
  draw();
  return [[Array.from({ length: MOST_KEYS }, (_, number) => String(number + 1)), "Go to a key position", (key) => go(Number(key) - 1)]];
}
