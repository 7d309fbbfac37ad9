// Load the playback and build the page around one clock, or show the error.
import { Clock } from "./clock.js";
import { bindControls } from "./controls.js";
import { element } from "./draw.js";
import { buildMarking } from "./marking.js";
import { Marks } from "./marks.js";
import { buildKeyPositions } from "./names.js";
import { buildOverlay } from "./overlay.js";
import { buildPanels } from "./panels.js";
import { loadPlayback } from "./playback.js";
import { startTheme } from "./theme.js";
import { Tiles } from "./tiles.js";
import { buildTimeline, keyPositions } from "./timeline.js";
import { showVerdict } from "./verdict.js";
import { buildVideos, Layers } from "./videos.js";

const $ = (id) => document.getElementById(id);

async function start() {
  startTheme();
  try {
    build(await loadPlayback());
  } catch (error) {
    showProblem(error);
  }
}

function build(playback) {
  document.title = `${playback.title} · inphase`;
  $("title").textContent = playback.title;
  showVerdict(playback, { badge: $("badge"), reasons: $("reasons"), warning: $("warning") });
  $("content").hidden = false;
  const timed = playback.tracks.length || playback.skeletons.length;
  const clock = new Clock(timed ? lengthOf(playback) : { duration: 1, rate: 30 });
  const layers = new Layers();
  layers.heat = playback.tracks.length === 1 && !!playback.tracks[0].overlay; // what the page is about
  const tiles = new Tiles($("videos"));
  buildVideos(playback, clock, tiles, layers);
  const marks = new Marks();
  buildTimeline(playback, clock, $("timeline"), marks);
  const actions = buildKeyPositions(() => keyPositions(playback, marks), clock, marks, $("positions"));
  if (playback.tracks.length) actions.push(...buildMarking(playback, clock, marks, $("marking"), $("mark")));
  buildPanels(playback, clock, { details: $("details"), found: $("found"), tiles });
  const overlay = buildOverlay(playback, clock, tiles, layers);
  if (timed) bindControls(playback, clock, layers, { marks, tiles, overlay, actions });
  else $("help").hidden = true;
  $("summary").textContent = summary(playback, clock, timed);
  window.inphase = { playback, clock, marks, tiles }; // for the curious, and for tests
}

// The clock is the reference's; without tracks it runs as long as the skeletons move.
function lengthOf({ tracks, skeletons, reference }) {
  if (tracks.length) return tracks[reference];
  const [{ times: { data } }] = skeletons;
  const duration = Math.max(...skeletons.map(({ times }) => times.data[times.data.length - 1]), 0.04);
  const rate = data.length > 1 ? (data.length - 1) / Math.max(data[data.length - 1] - data[0], 0.04) : 30;
  return { duration, rate };
}

function summary({ tracks, pairs, results }, clock, timed) {
  const parts = [];
  if (tracks.length) parts.push(`${tracks.length} video${tracks.length > 1 ? "s" : ""} on one clock`);
  if (timed) parts.push(`${clock.duration.toFixed(1)} s`);
  if (pairs.length) parts.push(`${pairs.length} alignment${pairs.length > 1 ? "s" : ""}`);
  if (results.length) parts.push(`${results.length} search${results.length > 1 ? "es" : ""}`);
  return parts.join(" · ");
}

function showProblem(error) {
  console.error(error);
  $("content").hidden = true;
  $("transport").hidden = true;
  $("summary").textContent = "";
  $("help").hidden = true;
  $("problem").hidden = false;
  $("problem").append(element("h2", { text: "This playback cannot be shown" }),
    element("p", { class: "reason", text: error.message }),
    element("p", { class: "muted", text: "Fix the playback or write it again, then reload this page." }));
}

start();
