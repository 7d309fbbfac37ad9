// The videos in their grid, each with its joints and heat map laid over it.
import { color, element, surface } from "./draw.js";
import { boneColor, pointsShown, sideOf } from "./joints.js";
import { Player } from "./player.js";
import { load } from "./source.js";
import { verdictBadge } from "./verdict.js";

const REASONS = { 2: "the connection was lost", 3: "the file is damaged", 4: "the file is missing, or this browser does not play its format" };

// Build a tile per track and hand its videos to the clock; `show` says what is laid over them.
export function buildVideos(playback, clock, grid, show) {
  grid.dataset.count = playback.tracks.length;
  const places = [];
  playback.tracks.forEach((track, number) => {
    const stage = element("div", { class: "stage" });
    const [height, width] = track.size;
    stage.style.setProperty("--ratio", width / height);
    const place = element("span", { class: "own" });
    const isReference = number === playback.reference;
    const dot = element("span", { class: "dot", "aria-hidden": "true" });
    dot.style.setProperty("--color", `var(--track-${number % 9})`);
    const caption = element("figcaption", {}, dot, element("span", { class: "name", text: track.name, title: track.name }));
    if (isReference) caption.append(element("span", { class: "badge", text: "reference" }));
    if (track.certainty && playback.tracks.length > 2) caption.append(verdictBadge(track.certainty));
    caption.append(place);
    grid.append(element("figure", { class: "tile" }, element("div", { class: "screen" }, stage), caption));
    places.push([place, track]);

    if (track.media) addVideo(stage, track, clock, isReference);
    if (track.overlay) addOverlay(stage, track, clock, show);
    if (track.keypoints) addJoints(stage, track, clock, show);
    stage.addEventListener("click", () => clock.toggle());
  });
  const tell = () => {
    for (const [place, track] of places) place.textContent = `${track.map.at(clock.time).toFixed(2)} s`;
  };
  clock.addEventListener("time", tell);
  tell();
}

function addVideo(stage, track, clock, isReference) {
  const video = videoOf(track.media, `${track.name}${isReference ? ", the reference" : ""}`, clock);
  video.muted = !isReference;
  stage.append(video);
  const player = new Player(video, track.map);
  if (isReference) clock.drive(player);
  else clock.add(player);
  video.addEventListener("error", () => {
    const reason = REASONS[video.error?.code] ?? "it cannot be read";
    stage.append(element("p", { class: "broken", role: "alert", text: `${track.media} cannot be played: ${reason}.` }));
  });
}

function addOverlay(stage, track, clock, show) {
  const overlay = videoOf(track.overlay, `Heat map of ${track.name}`, clock);
  overlay.muted = true;
  overlay.classList.add("overlay");
  stage.append(overlay);
  const player = new Player(overlay, track.map);
  clock.add(player);
  const apply = () => {
    overlay.style.opacity = show.heat ? show.opacity : 0;
    if (player.idle !== !show.heat) player.rest(!show.heat);
    if (show.heat) player.seek(clock.time);
  };
  show.addEventListener("change", apply);
  apply();
}

function addJoints(stage, track, clock, show) {
  const canvas = element("canvas", { class: "overlay", role: "img", "aria-label": `Joints of ${track.name}` });
  stage.append(canvas);
  const { redraw } = surface(canvas, (context, width) => {
    if (show.joints) drawJoints(context, track, clock.time, width);
  });
  clock.addEventListener("time", redraw);
  show.addEventListener("change", redraw);
}

function drawJoints(context, track, second, width) {
  const scale = width / track.size[1];
  const thick = Math.min(Math.max(width / 140, 1.2), 2.6);
  const { keypoints } = track;
  const [, count, columns] = keypoints.points.shape;
  const points = pointsShown(keypoints, track.map.at(second));
  // (0, 0) is the middle of the first pixel.
  const joint = (j) => ({ x: (points[j * columns] + 0.5) * scale, y: (points[j * columns + 1] + 0.5) * scale,
    seen: columns === 3 ? Math.min(Math.max(points[j * columns + 2], 0), 1) : 1 });
  context.lineCap = "round";
  for (const bone of keypoints.bones ?? []) {
    const [a, b] = bone.map(joint);
    if (Number.isNaN(a.x + a.y + b.x + b.y)) continue;
    context.globalAlpha = 0.15 + 0.75 * Math.min(a.seen, b.seen);
    context.strokeStyle = boneColor(keypoints.joints, bone);
    context.lineWidth = thick;
    context.beginPath();
    context.moveTo(a.x, a.y);
    context.lineTo(b.x, b.y);
    context.stroke();
  }
  for (let j = 0; j < count; j++) {
    const { x, y, seen } = joint(j);
    if (Number.isNaN(x + y)) continue;
    context.globalAlpha = 0.2 + 0.8 * seen;
    context.fillStyle = color(`side-${sideOf(keypoints.joints[j])}`);
    context.beginPath();
    context.arc(x, y, thick * 1.25, 0, 2 * Math.PI);
    context.fill();
  }
  context.globalAlpha = 1;
}

function videoOf(path, label, clock) {
  const video = element("video", { preload: "auto", playsinline: true, disablepictureinpicture: true, "aria-label": label });
  load(video, path, () => clock.seek(clock.time));
  return video;
}

// What is laid over the videos.
export class Layers extends EventTarget {
  joints = true;
  heat = false;
  opacity = 0.6;

  set(changes) {
    Object.assign(this, changes);
    this.dispatchEvent(new Event("change"));
  }
}
