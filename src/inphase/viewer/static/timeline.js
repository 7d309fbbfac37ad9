// A lane per track under one scrubber: its phases and events, where they fall on the reference's clock.
import { element } from "./draw.js";
import { confidenceLegend, confidenceStrip } from "./verdict.js";

const HUES = 8;

export function buildTimeline(playback, clock, section) {
  const labels = [...new Set(playback.tracks.flatMap((track) => track.phases.map((phase) => phase.label)))];
  const lanes = playback.tracks.filter(({ phases, events, certainty }) => phases.length || events.length || certainty);
  if (!lanes.length) {
    section.remove();
    return;
  }
  const cursor = element("div", { class: "cursor", "aria-hidden": "true" });
  const body = element("div", { class: "lanes" }, cursor);
  for (const track of lanes) body.append(lane(track, playback.tracks.indexOf(track), labels, clock));
  section.append(body, confidenceLegend(playback, clock) ?? "");
  const move = () => cursor.style.setProperty("--at", clock.time / clock.duration);
  clock.addEventListener("time", move);
  move();
}

// The seconds of the clock at which something is marked, for going from one to the next.
export function marksOf(playback) {
  const found = playback.tracks.flatMap(({ map, phases, events }) =>
    [...phases.map((phase) => map.inverse(phase.start)), ...events.map((event) => map.inverse(event.second))]);
  return [...new Set(found.map((second) => +second.toFixed(3)))].sort((a, b) => a - b);
}

// What a track is doing at a second of the clock.
export function phaseAt(track, second) {
  const own = track.map.at(second);
  return track.phases.find(({ start, end }) => start <= own && own < end)?.label;
}

function lane(track, number, labels, clock) {
  const name = element("span", { class: "lane-name" }, element("span", { class: "dot", "aria-hidden": "true" }),
    element("span", { text: track.name }));
  name.firstChild.style.setProperty("--color", `var(--track-${number % 9})`);
  const bar = element("div", { class: "bar", role: "group", "aria-label": `Phases and events of ${track.name}` });
  for (const phase of track.phases) bar.append(band(track, phase, labels.indexOf(phase.label), clock));
  for (const event of track.events) bar.append(mark(track, event, clock));
  bar.addEventListener("pointerdown", (event) => {
    if (event.target !== bar) return;
    const box = bar.getBoundingClientRect();
    clock.seek(((event.clientX - box.left) / box.width) * clock.duration);
  });
  const strip = confidenceStrip(track, clock);
  bar.classList.toggle("empty", !track.phases.length && !track.events.length);
  return element("div", { class: "lane" }, name, element("div", { class: "rows" }, bar, strip ?? ""));
}

function band(track, phase, hue, clock) {
  const [from, to] = [track.map.inverse(phase.start), track.map.inverse(phase.end)];
  const text = described(`${phase.label}, ${phase.start.toFixed(2)} to ${phase.end.toFixed(2)} seconds`, phase);
  const made = element("button", { class: "band", type: "button", title: text, "aria-label": text },
    element("span", { text: phase.label }));
  place(made, from / clock.duration, (to - from) / clock.duration);
  made.style.setProperty("--hue", `var(--phase-${hue % HUES})`);
  if (Number.isFinite(phase.confidence)) made.style.setProperty("--sure", 0.25 + 0.75 * phase.confidence);
  made.addEventListener("click", () => clock.seek(from));
  return made;
}

function mark(track, event, clock) {
  const second = track.map.inverse(event.second);
  const text = described(`${event.label}, ${event.second.toFixed(2)} seconds`, event);
  const made = element("button", { class: "event", type: "button", title: text, "aria-label": text });
  place(made, second / clock.duration, 0);
  if (Number.isFinite(event.confidence)) made.style.setProperty("--sure", 0.35 + 0.65 * event.confidence);
  made.addEventListener("click", () => clock.seek(second));
  return made;
}

function described(text, { confidence }) {
  return Number.isFinite(confidence) ? `${text}, ${Math.round(confidence * 100)} % sure` : text;
}

function place(made, from, width) {
  made.style.setProperty("--from", Math.min(Math.max(from, 0), 1));
  made.style.setProperty("--width", Math.min(Math.max(width, 0), 1));
}
