// The embeddings as curves: laid over each other they show how well the moments match.
import { asSlider, color, dragToSeek, element, surface, ticks, trackColor } from "./draw.js";
import { interpolate } from "./timemap.js";

const MARGIN = { left: 12, right: 12, top: 6, bottom: 34 };

export function curvesPanel(playback, clock, card) {
  const lines = playback.tracks.map((track, number) => ({ track, number })).filter(({ track }) => track.curves);
  if (!lines.length) return null;
  let aligned = true;
  const count = Math.max(...lines.map(({ track }) => track.curves.values.shape[1]));
  const names = Array.from({ length: count }, (_, c) => lines[0].track.curves.names?.[c] ?? `PC ${c + 1}`);
  const columns = lines.map(({ track }) => Array.from({ length: track.curves.values.shape[1] }, (_, c) => column(track.curves, c)));
  const span = () => (aligned ? clock.duration : Math.max(...lines.map(({ track }) => track.duration)));

  const canvas = element("canvas", { class: "plot curves" });
  let layer = null;
  const { redraw, refresh } = surface(canvas, (context, width, height) => {
    layer ??= drawLayer(canvas, width, height);
    context.drawImage(layer, 0, 0, width, height);
    const cursors = aligned ? [{ second: clock.time, paint: color("cursor") }]
      : lines.map(({ track, number }) => ({ second: track.map.at(clock.time), paint: trackColor(number) }));
    for (const { second, paint } of cursors) drawCursor(context, width, height, second / span(), paint);
  }, { forget: () => { layer = null; } });

  const drawLayer = (target, width, height) => {
    const made = element("canvas", { width: target.width, height: target.height });
    const context = made.getContext("2d");
    context.scale(target.width / width, target.height / height);
    const inner = { width: width - MARGIN.left - MARGIN.right, height: (height - MARGIN.top - MARGIN.bottom) / count };
    for (let c = 0; c < count; c++) {
      const top = MARGIN.top + c * inner.height;
      const shown = columns.map((values) => values[c]).filter(Boolean);
      const range = [Math.min(...shown.map(least)), Math.max(...shown.map(most))];
      drawBand(context, top, inner, names[c]);
      lines.forEach(({ track, number }, k) => {
        if (columns[k][c]) drawCurve(context, top, inner, { track, values: columns[k][c], range, paint: trackColor(number) });
      });
    }
    drawAxis(context, width, height);
    return made;
  };

  const drawCurve = (context, top, { width, height }, { track, values, range: [low, high], paint }) => {
    context.strokeStyle = paint;
    context.lineWidth = 1.75;
    context.lineJoin = "round";
    context.beginPath();
    const last = aligned ? width : (track.duration / span()) * width;
    for (let x = 0; x <= last; x++) {
      const second = (x / width) * span();
      const value = interpolate(track.curves.times.data, values, aligned ? track.map.at(second) : second);
      context.lineTo(MARGIN.left + x, top + height - 6 - ((value - low) / (high - low || 1)) * (height - 14));
    }
    context.stroke();
  };

  const drawAxis = (context, width, height) => {
    context.fillStyle = color("muted");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    const inner = width - MARGIN.left - MARGIN.right;
    for (const tick of ticks(span(), inner / 70)) {
      context.fillText(tick, MARGIN.left + (tick / span()) * inner, height - MARGIN.bottom + 14);
    }
    context.fillText(aligned ? "seconds of the reference" : "seconds of each video", width / 2, height - 5);
  };

  clock.addEventListener("time", redraw);
  dragToSeek(canvas, clock, (x) => ((x - MARGIN.left) / (canvas.clientWidth - MARGIN.left - MARGIN.right)) * span());
  asSlider(canvas, clock, "Embedding curves");
  const toggle = element("button", { class: "toggle small", type: "button", "aria-pressed": "true", text: "Aligned" });
  toggle.addEventListener("click", () => {
    aligned = !aligned;
    toggle.setAttribute("aria-pressed", aligned);
    refresh();
  });
  const legend = element("ul", { class: "legend" });
  for (const { track, number } of lines) {
    const dot = element("span", { class: "dot", "aria-hidden": "true" });
    dot.style.setProperty("--color", `var(--track-${number % 9})`);
    legend.append(element("li", {}, dot, element("span", { text: track.name })));
  }
  return card("Embedding", [toggle], canvas, legend);
}

function drawBand(context, top, { width, height }, name) {
  context.fillStyle = color("well");
  context.beginPath();
  context.roundRect(MARGIN.left, top, width, height - 6, 6);
  context.fill();
  context.fillStyle = color("muted");
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "left";
  context.fillText(name, MARGIN.left + 6, top + 14);
}

function drawCursor(context, width, height, fraction, paint) {
  const x = MARGIN.left + fraction * (width - MARGIN.left - MARGIN.right);
  context.strokeStyle = paint;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, MARGIN.top);
  context.lineTo(x, height - MARGIN.bottom - 4);
  context.stroke();
}

function column({ values: { data, shape } }, c) {
  return Float32Array.from({ length: shape[0] }, (_, t) => data[t * shape[1] + c]);
}

function least(values) {
  return values.reduce((a, b) => Math.min(a, b), Infinity);
}

function most(values) {
  return values.reduce((a, b) => Math.max(a, b), -Infinity);
}
