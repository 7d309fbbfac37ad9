// A lane per track under one scrubber: its phases, events and marks, where they fall on the reference's clock.
import { clockText, color, element, surface } from "./draw.js";
import { layNames } from "./names.js";
import { confidenceLegend, confidenceStrip } from "./verdict.js";

const HUES = 8;
const MOST_DRAWN = 240; // elements of a lane: of more, those nearest to the clock, and lines for all
const MOST_CROWDED_NAMES = 3; // of such a lane
const MOST_NAMED_LANES = 3; // above, only the reference's events have names
const OPENED = 0.001; // seconds after the start of a frame, so that it is shown

export function buildTimeline(playback, clock, section, marks) {
  const { tracks, reference } = playback;
  if (!tracks.length) {
    section.remove();
    return;
  }
  const labels = [...new Set(tracks.flatMap((track) => track.phases.map((phase) => phase.label)))];
  const shown = tracks.filter((track, number) => number === reference || track.phases.length || track.events.length || track.certainty);
  const cursor = element("div", { class: "cursor", "aria-hidden": "true" });
  const body = element("div", { class: "lanes" }, cursor);
  const named = tracks[reference].events.length ? shown.length <= MOST_NAMED_LANES : true;
  const lanes = shown.map((track) => {
    const number = tracks.indexOf(track);
    const own = number === reference;
    return new Lane(track, number, clock, { labels, named: named || own, marks: own ? marks : null });
  });
  body.append(...lanes.map(({ root }) => root));
  section.append(body, confidenceLegend(playback, clock) ?? "", crowdNote(lanes) ?? "");
  const move = () => {
    cursor.style.setProperty("--at", clock.time / clock.duration);
    for (const lane of lanes) lane.follow();
  };
  clock.addEventListener("time", move);
  marks.addEventListener("change", () => lanes.forEach((lane) => lane.marks && lane.draw()));
  move();
}

// The seconds of the clock at which something is marked, for going from one to the next.
export function marksOf(playback, marks) {
  const found = playback.tracks.flatMap(({ map, phases, events }) =>
    [...phases.map((phase) => map.inverse(phase.start)), ...events.map((event) => map.inverse(event.second))]);
  return [...new Set([...found, ...marks.list.map(({ second }) => second)].map((second) => +second.toFixed(3)))].sort((a, b) => a - b);
}

// The key positions: what is marked in the reference, else its events, the starts of its phases, or another track's events.
export function keyPositions({ tracks, reference }, marks) {
  const track = tracks[reference];
  const moments = ({ map, events }) => events.map(({ second, label }) => ({ second: map.inverse(second), label }));
  if (marks.list.length) return [...marks.list];
  if (!track) return [];
  if (track.events.length) return moments(track).sort(inTime);
  if (track.phases.length) return track.phases.map(({ start, label }) => ({ second: start, label })).sort(inTime);
  const other = tracks.find(({ events }) => events.length);
  return other ? moments(other).sort(inTime) : [];
}

function inTime(one, other) {
  return one.second - other.second;
}

// What a track is doing at a second of the clock.
export function phaseAt(track, second) {
  const own = track.map.at(second);
  return track.phases.find(({ start, end }) => start <= own && own < end)?.label;
}

class Lane {
  constructor(track, number, clock, { labels, named, marks }) {
    Object.assign(this, { track, clock, labels, named, marks });
    const name = element("span", { class: "lane-name" }, element("span", { class: "dot", "aria-hidden": "true" }),
      element("span", { text: track.short, title: track.name }));
    name.firstChild.style.setProperty("--color", `var(--track-${number % 9})`);
    this.bar = element("div", { class: "bar", role: "group", "aria-label": `Phases and events of ${track.name}` });
    this.names = element("div", { class: "names", "aria-hidden": "true" });
    this.bands = track.phases.map((phase) => ({ phase, second: track.map.inverse(phase.start), until: track.map.inverse(phase.end) })).sort(inTime);
    this.events = track.events.map((event) => ({ event, second: track.map.inverse(event.second) })).sort(inTime);
    if (this.crowded) this.addLines();
    this.bar.addEventListener("pointerdown", (event) => this.press(event));
    this.bar.addEventListener("click", ({ target }) => this.choose(Number(target.closest(".pin")?.dataset.id)));
    this.root = element("div", { class: "lane" }, name,
      element("div", { class: "rows" }, this.bar, this.names, confidenceStrip(track, clock) ?? ""));
    new ResizeObserver(() => this.nameAll()).observe(this.bar);
    this.draw();
  }

  get crowded() {
    return this.bands.length + this.events.length + (this.marks?.list.length ?? 0) > MOST_DRAWN;
  }

  // Of many, draw those around the clock.
  near(items) {
    if (!this.crowded) return items;
    const most = MOST_DRAWN / 3;
    let low = 0;
    let high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (items[middle].second < this.clock.time) low = middle + 1;
      else high = middle;
    }
    const first = Math.max(0, Math.min(low - most / 2, items.length - most));
    return items.slice(first, first + most);
  }

  draw() {
    const { track, clock } = this;
    const focused = this.bar.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    const lines = this.lines ? [this.lines] : [];
    this.drawnAt = clock.time;
    this.placed = []; // what has a name
    const parts = this.near(this.bands).map(({ phase, second, until }) =>
      band(phase, this.labels.indexOf(phase.label), [second, until], clock));
    for (const { event, second } of this.near(this.events)) {
      parts.push(diamond(event, second, clock));
      this.placed.push({ second, label: event.label });
    }
    for (const mark of this.near(this.marks?.list ?? [])) {
      parts.push(markButton(mark, mark.id === this.marks.selected, clock));
      this.placed.push({ second: mark.second, label: mark.label, own: true });
    }
    if (this.marks && this.crowded && !this.lines) this.addLines();
    this.bar.replaceChildren(...lines, ...parts);
    this.bar.classList.toggle("empty", !parts.length);
    if (!parts.length && this.marks) this.bar.append(element("span", { class: "hint muted", text: "M marks the moment that is shown" }));
    if (focused) this.bar.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
    this.redrawLines?.();
    this.nameAll();
  }

  // The clock has moved: of many, others are near now.
  follow() {
    const { clock } = this;
    if (this.crowded && !clock.playing && Math.abs(clock.time - this.drawnAt) > 1e-6 && !this.dragging) this.draw();
  }

  nameAll() {
    if (!this.named) return;
    const near = ({ second }) => Math.abs(second - this.clock.time);
    const named = this.crowded ? [...this.placed].sort((a, b) => near(a) - near(b)).slice(0, MOST_CROWDED_NAMES) : this.placed;
    layNames(this.names, named, this.clock);
  }

  // All of them as thin lines below the elements.
  addLines() {
    this.lines = element("canvas", { class: "lines", "aria-hidden": "true" });
    const { redraw } = surface(this.lines, (context, width, height) => {
      context.fillStyle = color("muted");
      const columns = new Set();
      for (const { second } of [...this.bands, ...this.events, ...(this.marks?.list ?? [])]) {
        columns.add(Math.round((second / this.clock.duration) * width));
      }
      for (const x of columns) context.fillRect(x, height * 0.55, 1, height * 0.45);
    });
    this.redrawLines = redraw;
  }

  choose(id) {
    if (!id) return;
    this.marks.select(id);
    this.clock.seek(this.marks.current.second + OPENED);
  }

  // Seek on the bar; select and drag a mark.
  press(event) {
    if (event.button !== 0) return;
    const id = Number(event.target.closest(".pin")?.dataset.id);
    if (event.target.closest("button") && !id) return;
    document.activeElement?.blur?.(); // a name that is being typed is kept
    const { bar, clock, marks } = this;
    const secondAt = ({ clientX }) => {
      const box = bar.getBoundingClientRect();
      const frame = Math.round((Math.min(Math.max((clientX - box.left) / box.width, 0), 1) * clock.duration) * clock.rate);
      return Math.min(frame / clock.rate, clock.duration);
    };
    if (!id) {
      const box = bar.getBoundingClientRect();
      clock.seek(((event.clientX - box.left) / box.width) * clock.duration);
      return;
    }
    event.preventDefault();
    this.choose(id);
    bar.querySelector(`[data-id="${id}"]`)?.focus({ preventScroll: true });
    bar.setPointerCapture(event.pointerId);
    const begin = event.clientX;
    const move = (next) => {
      if (!this.dragging && Math.abs(next.clientX - begin) < 4) return;
      this.dragging = true;
      marks.drag(id, secondAt(next));
      clock.seek(marks.find(id).second + OPENED);
    };
    const end = () => {
      bar.removeEventListener("pointermove", move);
      this.dragging = false;
      marks.drop(id);
    };
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", end, { once: true });
  }
}

function crowdNote(lanes) {
  const most = lanes.filter((lane) => lane.crowded);
  if (!most.length) return null;
  const count = most.reduce((sum, { bands, events }) => sum + bands.length + events.length, 0);
  return element("p", { class: "muted", text: `${count.toLocaleString("en")} labels: all are lines, those nearest to the time are marks, and the ${MOST_CROWDED_NAMES} nearest have names.` });
}

function band(phase, hue, [from, to], clock) {
  const text = described(`${phase.label}, ${phase.start.toFixed(2)} to ${phase.end.toFixed(2)} seconds`, phase);
  const made = element("button", { class: "band", type: "button", title: text, "aria-label": text },
    element("span", { text: phase.label }));
  place(made, from / clock.duration, (to - from) / clock.duration);
  made.style.setProperty("--hue", `var(--phase-${hue % HUES})`);
  if (Number.isFinite(phase.confidence)) made.style.setProperty("--sure", 0.25 + 0.75 * phase.confidence);
  made.addEventListener("click", () => clock.seek(from));
  return made;
}

function diamond(event, second, clock) {
  const text = described(`${event.label}, ${event.second.toFixed(2)} seconds`, event);
  const made = element("button", { class: "event", type: "button", title: text, "aria-label": text });
  place(made, second / clock.duration, 0);
  if (Number.isFinite(event.confidence)) made.style.setProperty("--sure", 0.35 + 0.65 * event.confidence);
  made.addEventListener("click", () => clock.seek(second));
  return made;
}

function markButton({ id, second, label }, selected, clock) {
  const text = `Mark ${label}, ${clockText(second)}`;
  const made = element("button", { class: "event pin", type: "button", title: `${label}, ${clockText(second)}. Drag to move.`,
    "aria-label": text, "aria-pressed": selected, "data-id": id });
  place(made, second / clock.duration, 0);
  return made;
}

function described(text, { confidence }) {
  return Number.isFinite(confidence) ? `${text}, ${Math.round(confidence * 100)} % sure` : text;
}

function place(made, from, width) {
  made.style.setProperty("--from", Math.min(Math.max(from, 0), 1));
  made.style.setProperty("--width", Math.min(Math.max(width, 0), 1));
}
