// Two videos on one screen at equal phase: the second as a ghost over the first, placed by hips and shoulders.
import { element, surface, trackColor } from "./draw.js";
import { drawJoints, pointsShown } from "./joints.js";

const SAMPLES = 60; // moments of the clock at which both people are compared
const ENOUGH = 5; // of them with both people, or the ghost is centered
const SEEN = 0.3; // visibility of joints that count, where there are enough of them
const HIPS = [["left_hip", "right_hip"], ["pelvis"], ["hip_center"], ["hips"]];
const SHOULDERS = [["left_shoulder", "right_shoulder"], ["neck"], ["shoulder_center"], ["thorax"]];

// Return a function that turns the overlay on or off and returns whether it is on; null with fewer than two videos.
export function buildOverlay(playback, clock, tiles, layers) {
  const filmed = tiles.list.filter(({ video, track }) => video && track);
  if (filmed.length < 2) return null;
  let made = null;
  return () => {
    if (made) {
      made.stop();
      tiles.removeBefore();
    } else {
      made = ghostTile(filmed, playback, clock, tiles, layers);
      tiles.addBefore(made.tile);
      made.redraw();
      return true;
    }
    made = null;
    return false;
  };
}

function ghostTile(filmed, playback, clock, tiles, layers) {
  const reference = playback.tracks[playback.reference];
  let base = filmed.find(({ track }) => track === reference) ?? filmed[0];
  let ghost = filmed.find((tile) => tile !== base);
  let opacity = 0.5;
  let placing = null;
  const canvas = element("canvas", { role: "img", "aria-label": "Two videos on top of each other" });
  const stage = element("div", { class: "stage" }, canvas);
  const how = element("span", { class: "muted placing" });
  const strength = element("input", { type: "range", min: 0, max: 1, step: 0.02, value: opacity, "aria-label": "Opacity of the second video" });
  const choose = (label, chosen, act) => {
    const made = element("select", { "aria-label": label });
    filmed.forEach(({ track }, k) => made.append(element("option", { value: k, text: track.short })));
    made.value = filmed.indexOf(chosen);
    made.addEventListener("change", () => act(filmed[made.value]));
    return made;
  };
  const names = filmed.length === 2 ? [element("span", { class: "name", text: `${base.track.short} + ${ghost.track.short}` })]
    : [choose("First video of the overlay", base, (tile) => { base = tile; change(); }), element("span", { text: "+" }),
      choose("Second video of the overlay", ghost, (tile) => { ghost = tile; change(); })];
  const root = element("figure", { class: "tile ghost" }, element("div", { class: "screen" }, stage),
    element("figcaption", {}, ...names, strength, how));
  const tile = { root, stage, name: "overlay", ratio: ratioOf(base.track) };

  const { redraw } = surface(canvas, (context, width, height) => {
    const scale = width / base.track.size[1];
    placing ??= placementOf(base, ghost, clock);
    drawPlaced(context, base, { scale, x: 0, y: 0 }, 1, clock, layers, playback);
    const place = { scale: scale * placing.scale, x: scale * placing.x, y: scale * placing.y };
    drawPlaced(context, ghost, place, opacity, clock, layers, playback);
  });
  const change = () => {
    placing = placementOf(base, ghost, clock);
    how.textContent = placing.joints ? "placed by joints" : "centered";
    tile.ratio = ratioOf(base.track);
    tiles.lay();
    redraw();
  };
  strength.addEventListener("input", () => { opacity = Number(strength.value); redraw(); });
  stage.addEventListener("click", () => clock.toggle());
  const listeners = [[clock, "time", redraw], [clock, "state", redraw], [layers, "change", redraw], [tiles.grid, "mirror", change],
    ...filmed.flatMap(({ video }) => [[video, "seeked", redraw], [video, "loadeddata", redraw]])];
  for (const [target, event, act] of listeners) target.addEventListener(event, act);
  change();
  return { tile, redraw, stop: () => listeners.forEach(([target, event, act]) => target.removeEventListener(event, act)) };
}

function ratioOf({ size: [height, width] }) {
  return width / height;
}

// Draw a video with its joints where it belongs, in pixels of the canvas.
function drawPlaced(context, { track, video, mirrored }, { scale, x, y }, opacity, clock, layers, { tracks }) {
  const [height, width] = track.size;
  context.save();
  context.translate(x, y);
  if (mirrored()) {
    context.translate(width * scale, 0);
    context.scale(-1, 1);
  }
  context.globalAlpha = opacity;
  if (video.readyState >= 2) context.drawImage(video, 0, 0, width * scale, height * scale);
  if (layers.joints && track.keypoints && opacity > 0) {
    drawJoints(context, track, clock.time, { scale, thick: 2.2, paint: trackColor(tracks.indexOf(track)) });
  }
  context.restore();
}

// Where the ghost belongs, in pixels of the base: as tall from hips to shoulders, its hips on the other's. The place is
// fixed for the whole clock, so that movements of the people remain visible.
export function placementOf(base, ghost, clock) {
  const found = [];
  for (let k = 0; k < SAMPLES; k++) {
    const second = (clock.duration * (k + 0.5)) / SAMPLES;
    const [a, b] = [base, ghost].map((tile) => trunkAt(tile, second));
    if (a && b) found.push([a, b]);
  }
  const seen = found.filter(([a, b]) => Math.min(a.sure, b.sure) >= SEEN);
  const pairs = seen.length >= ENOUGH ? seen : found;
  if (pairs.length >= ENOUGH) {
    const scale = Math.min(Math.max(median(pairs.map(([a, b]) => a.length / b.length)), 0.1), 10);
    return { joints: true, scale, x: median(pairs.map(([a, b]) => a.x - scale * b.x)), y: median(pairs.map(([a, b]) => a.y - scale * b.y)) };
  }
  const [[h, w], [height, width]] = [base.track.size, ghost.track.size];
  const scale = Math.min(w / width, h / height);
  return { joints: false, scale, x: (w - scale * width) / 2, y: (h - scale * height) / 2 };
}

// The middle of the hips, the way from there to the shoulders, and the least visibility; null where one is unknown.
function trunkAt({ track, mirrored }, second) {
  if (!track.keypoints) return null;
  const points = pointsShown(track.keypoints, track.map.at(second));
  const [hips, shoulders] = [HIPS, SHOULDERS].map((choices) => middleOf(track.keypoints, points, choices));
  if (!hips || !shoulders) return null;
  const length = Math.hypot(shoulders.x - hips.x, shoulders.y - hips.y);
  return length > 1 ? { x: mirrored() ? track.size[1] - hips.x : hips.x, y: hips.y, length, sure: Math.min(hips.sure, shoulders.sure) } : null;
}

function middleOf({ joints, points: { shape } }, points, choices) {
  const chosen = choices.map((names) => names.map((name) => joints.indexOf(name))).find((found) => !found.includes(-1));
  if (!chosen) return null;
  const columns = shape[2];
  const seen = chosen.map((j) => ({ x: points[j * columns] + 0.5, y: points[j * columns + 1] + 0.5, sure: columns === 3 ? points[j * columns + 2] : 1 }));
  if (seen.some(({ x, y }) => !Number.isFinite(x + y))) return null;
  const mean = (name) => seen.reduce((sum, joint) => sum + joint[name], 0) / seen.length;
  return { x: mean("x"), y: mean("y"), sure: Math.min(...seen.map(({ sure }) => sure)) };
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
