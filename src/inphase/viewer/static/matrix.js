// The costs of matching two tracks and the path through them. The reference runs to the right, the other one upwards.
import { asSlider, color, dragToSeek, element, surface, ticks } from "./draw.js";
import { fractionalIndex } from "./timemap.js";

const MARGIN = { left: 46, right: 10, top: 10, bottom: 34 };

export function matrixPanel(playback, clock, card) {
  if (!playback.pairs.length) return null;
  const views = playback.pairs.map((pair) => new View(pair, playback));
  let view = views[0];
  const canvas = element("canvas", { class: "plot matrix" });
  const readout = element("p", { class: "muted readout", text: "Click or drag in the matrix to seek." });
  let layer = null;
  const { redraw, refresh } = surface(canvas, (context, width, height) => {
    layer ??= view.layer(canvas, width, height);
    context.drawImage(layer, 0, 0, width, height);
    view.drawPlace(context, boxOf(width, height), clock.time);
  }, { forget: () => { layer = null; } });
  clock.addEventListener("time", redraw);

  const at = (x, y) => view.secondsAt(x, y, boxOf(canvas.clientWidth, canvas.clientHeight));
  dragToSeek(canvas, clock, (x, y) => view.xTrack.map.inverse(at(x, y).x));
  canvas.addEventListener("pointermove", (event) => { readout.textContent = view.describe(at(event.offsetX, event.offsetY)); });
  asSlider(canvas, clock, "Cost matrix and path of the alignment");
  const options = [];
  if (views.length > 1) {
    const choice = element("select", { "aria-label": "Pair of videos" });
    views.forEach(({ title }, number) => choice.append(element("option", { value: number, text: title })));
    choice.addEventListener("change", () => {
      view = views[choice.value];
      refresh();
    });
    options.push(choice);
  }
  return card("Cost and path", options, canvas, readout);
}

function boxOf(width, height) {
  const { left, right, top, bottom } = MARGIN;
  return { left, top, width: width - left - right, height: height - top - bottom };
}

class View {
  constructor({ rows, columns, row_times, column_times, cost, path }, { tracks, reference }) {
    this.turned = rows === reference; // rows run to the right
    const sides = [{ track: tracks[rows], times: row_times.data }, { track: tracks[columns], times: column_times.data }];
    const [x, y] = this.turned ? sides : sides.reverse();
    Object.assign(this, { xTrack: x.track, yTrack: y.track, xTimes: x.times, yTimes: y.times });
    this.codes = cost.data;
    this.stride = column_times.data.length;
    this.path = path.data;
    this.title = `${x.track.name} – ${y.track.name}`;
  }

  get spanX() { return span(this.xTimes); }
  get spanY() { return span(this.yTimes); }

  cell(x, y) {
    return this.codes[this.turned ? x * this.stride + y : y * this.stride + x];
  }

  // The costs as an image: one look-up per cell, from the bits of a half float to a color.
  get image() {
    const [width, height] = [this.xTimes.length, this.yTimes.length];
    const colors = palette(this.codes);
    const pixels = new Uint32Array(width * height);
    for (let y = 0; y < height; y++) {
      const row = (height - 1 - y) * width;
      for (let x = 0; x < width; x++) pixels[row + x] = colors[this.cell(x, y)];
    }
    const made = element("canvas", { width, height });
    made.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width, height), 0, 0);
    return made;
  }

  // All that stands still: costs, path and axes, drawn once per size and theme.
  layer(canvas, width, height) {
    const made = element("canvas", { width: canvas.width, height: canvas.height });
    const context = made.getContext("2d");
    context.scale(canvas.width / width, canvas.height / height);
    const box = boxOf(width, height);
    context.imageSmoothingQuality = "high";
    context.imageSmoothingEnabled = this.xTimes.length > box.width || this.yTimes.length > box.height;
    context.drawImage(this.image, box.left, box.top, box.width, box.height);
    this.drawPath(context, box);
    this.drawAxes(context, box);
    return made;
  }

  drawPath(context, box) {
    const line = new Path2D();
    for (let k = 0; k < this.path.length; k += 2) {
      const [x, y] = this.turned ? [this.path[k], this.path[k + 1]] : [this.path[k + 1], this.path[k]];
      line.lineTo(box.left + ((x + 0.5) / this.xTimes.length) * box.width,
        box.top + box.height - ((y + 0.5) / this.yTimes.length) * box.height);
    }
    context.lineJoin = "round";
    for (const [name, thick] of [["path-edge", 4.5], ["path", 2]]) {
      context.strokeStyle = color(name);
      context.lineWidth = thick;
      context.stroke(line);
    }
  }

  drawAxes(context, box) {
    context.fillStyle = color("muted");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    const [x0, y0] = [this.xTimes[0], this.yTimes[0]];
    for (const tick of ticks(this.spanX, box.width / 70)) {
      context.fillText(tick, this.placeX(x0 + tick, box), box.top + box.height + 14);
    }
    context.fillText(`${this.xTrack.name} (s)`, box.left + box.width / 2, box.top + box.height + 29, box.width);
    context.textAlign = "right";
    for (const tick of ticks(this.spanY, box.height / 50)) {
      context.fillText(tick, box.left - 6, this.placeY(y0 + tick, box) + 4);
    }
    context.translate(12, box.top + box.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(`${this.yTrack.name} (s)`, 0, 0, box.height);
  }

  drawPlace(context, box, second) {
    const x = this.placeX(this.xTrack.map.at(second), box);
    const y = this.placeY(this.yTrack.map.at(second), box);
    context.strokeStyle = color("cross");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, box.top);
    context.lineTo(x, box.top + box.height);
    context.moveTo(box.left, y);
    context.lineTo(box.left + box.width, y);
    context.stroke();
    context.beginPath();
    context.arc(x, y, 6, 0, 2 * Math.PI);
    context.fillStyle = color("accent");
    context.fill();
    context.strokeStyle = "#fff";
    context.lineWidth = 2;
    context.stroke();
  }

  placeX(second, box) {
    return box.left + ((fractionalIndex(this.xTimes, second) + 0.5) / this.xTimes.length) * box.width;
  }

  placeY(second, box) {
    return box.top + box.height * (1 - (fractionalIndex(this.yTimes, second) + 0.5) / this.yTimes.length);
  }

  secondsAt(x, y, box) {
    const [i, j] = [inside((x - box.left) / box.width, this.xTimes.length),
      inside(1 - (y - box.top) / box.height, this.yTimes.length)];
    return { i, j, x: this.xTimes[i], y: this.yTimes[j] };
  }

  describe({ i, j, x, y }) {
    const value = halfToNumber(this.cell(i, j)).toPrecision(3);
    return `Cost ${value} of ${this.xTrack.name} at ${x.toFixed(2)} s with ${this.yTrack.name} at ${y.toFixed(2)} s`;
  }
}

function span(times) {
  return Math.max(times[times.length - 1] - times[0], 1e-6);
}

function inside(fraction, length) {
  return Math.min(Math.max(Math.floor(fraction * length), 0), length - 1);
}

export function halfToNumber(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
  return bits & 0x8000 ? -size : size;
}

// A color for each of the 65,536 half floats, spread over what most costs are.
function palette(codes) {
  const sample = Array.from({ length: Math.min(codes.length, 20000) },
    (_, k) => halfToNumber(codes[Math.floor((k * codes.length) / Math.min(codes.length, 20000))])).sort((a, b) => a - b);
  const low = sample[Math.floor(sample.length * 0.005)];
  const high = sample[Math.ceil(sample.length * 0.98) - 1];
  const stops = [0, 1, 2, 3, 4].map((k) => color(`cost-${k}`).match(/[\da-f]{2}/gi).map((pair) => parseInt(pair, 16)));
  const colors = new Uint32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const place = Math.min(Math.max((halfToNumber(bits) - low) / (high - low || 1), 0), 1) * (stops.length - 1);
    const below = Math.min(Math.floor(place), stops.length - 2);
    const [r, g, b] = stops[below].map((value, k) => Math.round(value + (place - below) * (stops[below + 1][k] - value)));
    colors[bits] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return colors;
}
