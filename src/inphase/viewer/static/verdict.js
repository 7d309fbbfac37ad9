// The verdict on each alignment in words, and the confidence of every moment as a strip of colors and patterns.
import { element } from "./draw.js";
import { interpolate } from "./timemap.js";

const JUDGMENTS = ["do_not_trust", "check", "good"]; // the worst first
const WORDS = { good: "good", check: "check these moments", do_not_trust: "do not trust" };
const SIGNS = { good: "✓", check: "!", do_not_trust: "✕" };
const LEVELS = [["high", 0.7], ["medium", 0.5], ["low", 0]]; // from which probability
const CELLS = 160; // of a strip
const MOST_MOMENTS = 6; // listed to be checked

export function levelOf(confidence) {
  return LEVELS.find(([, least]) => confidence >= least)[0];
}

export function verdictBadge({ judgment, whole }, words = WORDS[judgment]) {
  return element("span", { class: "verdict", "data-judgment": judgment, title: `probability ${percent(whole)}` },
    element("span", { text: SIGNS[judgment], "aria-hidden": "true" }), element("span", { text: words }));
}

// Put the worst verdict beside the title, its reasons below, and a warning if it is not to be trusted.
export function showVerdict({ tracks }, { badge, reasons, warning }) {
  const judged = tracks.filter(({ certainty }) => certainty)
    .sort((a, b) => JUDGMENTS.indexOf(a.certainty.judgment) - JUDGMENTS.indexOf(b.certainty.judgment));
  if (!judged.length) return;
  badge.replaceChildren(verdictBadge(judged[0].certainty));
  const explained = ({ name, certainty: { judgment, whole, reasons: why = [] } }) =>
    [`${name}: ${WORDS[judgment]} (probability ${percent(whole)}).`, ...why].join(" ");
  const checks = judged.filter(({ certainty }) => certainty.judgment === "check")
    .map((track) => element("p", { text: explained(track) }));
  const summary = element("summary", { text: `${checks.length} videos to check: reasons` });
  reasons.replaceChildren(...(checks.length > 1 ? [element("details", {}, summary, ...checks)] : checks));
  const wrong = judged.filter(({ certainty }) => certainty.judgment === "do_not_trust");
  warning.hidden = !wrong.length;
  warning.replaceChildren(...wrong.map((track) => element("p", {}, element("strong", { text: "Warning. " }), explained(track))));
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

// Parts of the clock with one level of confidence: {level, from, to, least}, in seconds of the reference.
export function confidenceRuns({ certainty }, duration) {
  if (!certainty) return [];
  const runs = [];
  for (let cell = 0; cell < CELLS; cell++) {
    const value = interpolate(certainty.times.data, certainty.probability.data, ((cell + 0.5) / CELLS) * duration);
    const [from, to] = [(cell / CELLS) * duration, ((cell + 1) / CELLS) * duration];
    const last = runs.at(-1);
    if (last?.level === levelOf(value)) Object.assign(last, { to, least: Math.min(last.least, value) });
    else runs.push({ level: levelOf(value), from, to, least: value });
  }
  return runs;
}

// A strip below a lane. Levels differ in color, in height and in pattern.
export function confidenceStrip(track, clock) {
  const runs = confidenceRuns(track, clock.duration);
  if (!runs.length) return null;
  const doubts = runs.filter(({ level }) => level !== "high").map((run) => `${run.level} ${spanOf(run)}`);
  const text = `Confidence of ${track.name}: ${doubts.length ? `${doubts.slice(0, 12).join(", ")}; otherwise high` : "high"}`;
  const strip = element("div", { class: "confidence", role: "img", "aria-label": text });
  for (const run of runs) {
    const part = element("span", { class: run.level, title: `${run.level} confidence, ${spanOf(run)}` });
    part.style.setProperty("--from", run.from / clock.duration);
    part.style.setProperty("--width", (run.to - run.from) / clock.duration);
    strip.append(part);
  }
  return strip;
}

// The legend of the strips, and buttons that go to the least confident moments.
export function confidenceLegend({ tracks }, clock) {
  const shown = tracks.filter(({ certainty }) => certainty);
  if (!shown.length) return null;
  const legend = element("div", { class: "confidence-legend muted" }, element("span", { text: "Confidence of each moment:" }));
  for (const [level] of LEVELS) {
    legend.append(element("span", { class: "key" }, element("i", { class: level, "aria-hidden": "true" }), element("span", { text: level })));
  }
  const doubts = shown.flatMap((track) => confidenceRuns(track, clock.duration).filter(({ level }) => level === "low")
    .map((run) => ({ ...run, track }))).sort((a, b) => a.least - b.least).slice(0, MOST_MOMENTS).sort((a, b) => a.from - b.from);
  if (doubts.length) legend.append(element("span", { text: "Check:" }));
  for (const { track, ...run } of doubts) {
    const text = `${shown.length > 1 ? `${track.short} ` : ""}${spanOf(run)}`;
    const button = element("button", { class: "small", type: "button", text, title: `${track.name}: go to ${spanOf(run)}` });
    button.addEventListener("click", () => clock.seek(run.from));
    legend.append(button);
  }
  return legend;
}

function spanOf({ from, to }) {
  return `${from.toFixed(2)}–${to.toFixed(2)} s`;
}
