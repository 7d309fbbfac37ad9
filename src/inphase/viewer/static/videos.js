// The videos in their grid, each with its joints and heat map laid over it.
import { element, surface } from "./draw.js";
import { drawJoints } from "./joints.js";
import { Player } from "./player.js";
import { load } from "./source.js";
import { verdictBadge } from "./verdict.js";

const REASONS = { 2: "the connection was lost", 3: "the file is damaged", 4: "the file is missing, or this browser does not play its format" };

// Build a tile per track and hand its videos to the clock; `show` holds what is laid over them.
export function buildVideos(playback, clock, tiles, show) {
  const places = [];
  playback.tracks.forEach((track, number) => {
    const stage = element("div", { class: "stage" });
    const [height, width] = track.size;
    const place = element("span", { class: "own" });
    const isReference = number === playback.reference;
    const dot = element("span", { class: "dot", "aria-hidden": "true" });
    dot.style.setProperty("--color", `var(--track-${number % 9})`);
    const caption = element("figcaption", {}, dot, element("span", { class: "name", text: track.short, title: track.name }));
    if (isReference && playback.tracks.length > 1) caption.append(element("span", { class: "badge", text: "reference" }));
    if (track.certainty && playback.tracks.length > 2) caption.append(verdictBadge(track.certainty, track.certainty.judgment.replaceAll("_", " ")));
    caption.append(place);
    const root = element("figure", { class: "tile" }, element("div", { class: "screen" }, stage), caption);
    places.push([place, track]);

    const video = track.media ? addVideo(stage, track, clock, isReference) : null;
    tiles.add({ root, stage, track, video, name: track.name, ratio: width / height });
    if (track.overlay) addOverlay(stage, track, clock, show);
    if (track.keypoints) addJoints(stage, track, clock, show);
    stage.addEventListener("click", () => clock.toggle());
  });
  const update = () => {
    for (const [place, track] of places) place.textContent = `${track.map.at(clock.time).toFixed(2)} s`;
  };
  clock.addEventListener("time", update);
  update();
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
  return video;
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
    const look = { scale: width / track.size[1], thick: Math.min(Math.max(width / 140, 1.2), 2.6) };
    if (show.joints) drawJoints(context, track, clock.time, look);
  });
  clock.addEventListener("time", redraw);
  show.addEventListener("change", redraw);
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
