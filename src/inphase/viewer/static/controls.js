// Buttons, scrubber and keys: everything that moves the clock.
import { clockText, element } from "./draw.js";
import { marksOf, phaseAt } from "./timeline.js";
import { toggleTheme } from "./theme.js";
import { toggleFull } from "./tiles.js";

const SPEEDS = [0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 4];
const $ = (id) => document.getElementById(id);

export function bindControls(playback, clock, layers, { marks, tiles, overlay, actions: more }) {
  const transport = $("transport");
  transport.hidden = false;
  bindScrubber(clock);
  bindButtons(playback, clock, layers);
  bindRange(clock);
  bindKeys([...actionsOf(playback, clock, layers, marks), ...watching(tiles, overlay), ...more,
    [["?"], "Show these keys", () => $("keys").showModal()]]);
  bindSpeech(playback, clock);
}

function bindScrubber(clock) {
  const seek = $("seek");
  seek.max = clock.duration;
  $("end").textContent = clockText(clock.duration);
  seek.addEventListener("input", () => clock.seek(Number(seek.value)));
  const update = () => {
    seek.value = clock.time;
    seek.style.setProperty("--at", clock.time / clock.duration);
    $("now").textContent = clockText(clock.time);
    $("frame").textContent = `frame ${clock.frame}`;
    if (!clock.playing) seek.setAttribute("aria-valuetext", `${clock.time.toFixed(2)} seconds, frame ${clock.frame}`);
  };
  clock.addEventListener("time", update);
  update();
}

function bindButtons(playback, clock, layers) {
  for (const speed of SPEEDS) $("speed").append(element("option", { value: speed, text: `${speed}×` }));
  $("speed").addEventListener("change", () => clock.setSpeed(Number($("speed").value)));
  $("play").addEventListener("click", () => clock.toggle());
  $("back").addEventListener("click", () => clock.step(-1));
  $("forward").addEventListener("click", () => clock.step(1));
  $("loop").addEventListener("click", () => clock.setLoop({ looping: !clock.looping }));
  $("sound").addEventListener("click", () => mute(clock));
  $("pose").addEventListener("click", () => layers.set({ joints: !layers.joints }));
  $("heat").addEventListener("click", () => layers.set({ heat: !layers.heat }));
  $("opacity").addEventListener("input", () => layers.set({ opacity: Number($("opacity").value), heat: true }));
  $("pose").hidden = !playback.tracks.some((track) => track.keypoints);
  $("heat").hidden = !playback.tracks.some((track) => track.overlay);
  $("sound").hidden = !clock.reference;
  const update = () => {
    $("play").classList.toggle("playing", clock.playing);
    $("play").setAttribute("aria-label", clock.playing ? "Pause" : "Play");
    $("play").title = clock.playing ? "Pause (space)" : "Play (space)";
    $("speed").value = clock.speed;
    $("loop").setAttribute("aria-pressed", clock.looping);
    $("sound").setAttribute("aria-pressed", !clock.reference?.video.muted);
    $("pose").setAttribute("aria-pressed", layers.joints);
    $("heat").setAttribute("aria-pressed", layers.heat);
    $("strength").hidden = $("heat").hidden || !layers.heat;
  };
  clock.addEventListener("state", update);
  layers.addEventListener("change", update);
  update();
}

function bindRange(clock) {
  const update = () => {
    const { start, end } = clock.loop;
    $("range").hidden = !clock.looping;
    $("range").style.setProperty("--from", start / clock.duration);
    $("range").style.setProperty("--to", end / clock.duration);
  };
  clock.addEventListener("state", update);
  update();
}

function mute(clock) {
  if (!clock.reference) return;
  clock.reference.video.muted = !clock.reference.video.muted;
  clock.emit("state");
}

// What each key does: [keys, what it is called, what it does]. The help lists the same.
function actionsOf(playback, clock, layers, marks) {
  const stops = () => marksOf(playback, marks); // computed on demand: a document may have 100,000
  const faster = (by) => {
    const place = SPEEDS.indexOf(clock.speed) + by;
    if (SPEEDS[place]) clock.setSpeed(SPEEDS[place]);
  };
  const most = clock.duration;
  return [
    [["Space", "K"], "Play or pause", () => clock.toggle()],
    [["←", ","], "One frame back", () => clock.step(-1)],
    [["→", "."], "One frame forward", () => clock.step(1)],
    [["Shift ←"], "One second back", () => clock.seek(clock.time - 1)],
    [["Shift →"], "One second forward", () => clock.seek(clock.time + 1)],
    [["Home"], "Go to the start", () => clock.seek(0)],
    [["End"], "Go to the end", () => clock.seek(most)],
    [["↑"], "Faster", () => faster(1)],
    [["↓"], "Slower", () => faster(-1)],
    [["B"], "Go to the previous mark", () => clock.seek(stops().findLast((stop) => stop < clock.time - 0.02) ?? 0)],
    [["N"], "Go to the next mark", () => clock.seek(stops().find((stop) => stop > clock.time + 0.02) ?? most)],
    [["L"], "Repeat", () => clock.setLoop({ looping: !clock.looping })],
    [["["], "Repeat from here", () => clock.setLoop({ loop: { start: clock.time, end: Math.max(clock.loop.end, clock.time + 0.1) } })],
    [["]"], "Repeat up to here", () => clock.setLoop({ loop: { start: Math.min(clock.loop.start, clock.time - 0.1), end: clock.time } })],
    [["S"], "Sound of the reference", () => mute(clock)],
    [["P"], "Joints", () => layers.set({ joints: !layers.joints })],
    [["H"], "Heat map", () => layers.set({ heat: !layers.heat })],
    [["T"], "Light or dark theme", toggleTheme],
  ];
}

// Buttons and keys of what is seen: overlay, full screen, zoom and places.
function watching(tiles, overlay) {
  $("ghost").hidden = !overlay;
  const ghost = () => { if (overlay) $("ghost").setAttribute("aria-pressed", overlay()); };
  $("ghost").addEventListener("click", ghost);
  $("full").addEventListener("click", toggleFull);
  const leave = () => { if (document.documentElement.hasAttribute("data-full")) toggleFull(); };
  return [
    [["F"], "Full screen", toggleFull],
    [["Escape"], "Leave full screen", leave],
    ...(overlay ? [[["O"], "Overlay of two videos", ghost]] : []),
    [["X"], "Swap the first two", () => tiles.swapFirst()],
    [["+"], "Zoom in", () => tiles.zoomAll(1.25)],
    [["-"], "Zoom out", () => tiles.zoomAll(0.8)],
    [["0"], "No zoom", () => tiles.zoomAll(null)],
    [["D"], "Details", () => { $("details").open = !$("details").open; }],
  ];
}

const NAMES = { Backspace: "⌫", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "Space" };

function bindKeys(actions) {
  const list = $("key-list");
  const bound = new Map();
  for (const [keys, name, act] of actions) {
    for (const key of keys) bound.set(key, () => act(key));
    const shown = (keys.length > 3 ? [keys[0], "–", keys.at(-1)] : keys).map((key) => element(key === "–" ? "span" : "kbd", { text: key }));
    list.append(element("div", {}, element("dt", {}, ...shown), element("dd", { text: name })));
  }
  document.addEventListener("keydown", (event) => {
    if (event.altKey || $("keys").open) return;
    const name = NAMES[event.key] ?? (event.key.length === 1 ? event.key.toUpperCase() : event.key);
    if (isTheirs(event.target, name)) return;
    const shifted = event.shiftKey && (event.ctrlKey || event.metaKey || "←→".includes(name));
    const act = bound.get(`${event.ctrlKey || event.metaKey ? "Ctrl " : ""}${shifted ? "Shift " : ""}${name}`);
    if (!act) return;
    event.preventDefault();
    act();
  });
  $("help").addEventListener("click", () => $("keys").showModal());
}

// Keys that the element in focus needs for itself.
function isTheirs(target, name) {
  if (target.matches("select, input[type=text]")) return true;
  if (target.matches("button, a, summary")) return name === "Space" || name === "Enter";
  return target.id === "opacity";
}

// Say where everything is once it stands: while it plays, nobody can listen to that.
function bindSpeech(playback, clock) {
  let waiting;
  const speak = () => {
    clearTimeout(waiting);
    if (clock.playing) return;
    waiting = setTimeout(() => {
      const phases = playback.tracks.map((track) => [track.name, phaseAt(track, clock.time)]).filter(([, phase]) => phase);
      const doing = phases.map(([name, phase]) => `${name}: ${phase}.`).join(" ");
      $("live").textContent = `${clock.time.toFixed(2)} seconds, frame ${clock.frame}. ${doing}`;
    }, 500);
  };
  clock.addEventListener("time", speak);
  let before = clock.playing;
  clock.addEventListener("state", () => {
    if (clock.playing === before) return speak();
    before = clock.playing;
    if (clock.playing) $("live").textContent = `Playing at ${clock.speed}× speed.`;
  });
}
