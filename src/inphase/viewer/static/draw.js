// What all canvases share: sharp pixels, the page's colors, and drawing once per frame at most.

const surfaces = new Set();
let known = new Map();

// Give a canvas a function draw(context, width, height) in CSS pixels; `redraw` asks for it, `refresh` drops caches too.
export function surface(canvas, draw, { forget = () => {} } = {}) {
  const context = canvas.getContext("2d");
  let asked = false;
  const redraw = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const { clientWidth: width, clientHeight: height } = canvas;
      if (!width || !height) return;
      const ratio = window.devicePixelRatio || 1;
      const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== w || canvas.height !== h) {
        [canvas.width, canvas.height] = [w, h];
        forget();
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      draw(context, width, height);
    });
  };
  const refresh = () => { forget(); redraw(); };
  surfaces.add(refresh);
  new ResizeObserver(redraw).observe(canvas);
  redraw();
  return { redraw, refresh };
}

// Redraw everything after a change of colors.
export function recolor() {
  known = new Map();
  for (const refresh of surfaces) refresh();
}

// A color of the style sheet, by its variable.
export function color(name) {
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return known.get(name);
}

export function trackColor(number) {
  return color(`track-${number % 9}`);
}

// Make an element; text is always text.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// Round steps for an axis that ends at `span`, about `count` of them.
export function ticks(span, count) {
  const rough = span / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  return Array.from({ length: Math.floor(span / step + 1e-9) + 1 }, (_, i) => +(i * step).toFixed(6));
}

export function clockText(second) {
  const whole = Math.max(0, second);
  const minutes = Math.floor(whole / 60);
  return `${minutes}:${(whole - 60 * minutes).toFixed(2).padStart(5, "0")}`;
}

// Seek by pressing and dragging on a canvas; `secondAt` turns a place on it into a second, or null.
export function dragToSeek(canvas, clock, secondAt) {
  const go = (event) => {
    const box = canvas.getBoundingClientRect();
    const second = secondAt(event.clientX - box.left, event.clientY - box.top);
    if (second !== null) clock.seek(second);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) go(event);
  });
}

// Let a screen reader and the keyboard use a canvas as what it is for time: a slider. The page's keys move it.
export function asSlider(canvas, clock, label) {
  canvas.tabIndex = 0;
  for (const [name, value] of Object.entries({ role: "slider", "aria-label": label, "aria-valuemin": 0,
    "aria-valuemax": clock.duration.toFixed(2) })) canvas.setAttribute(name, value);
  const update = () => {
    canvas.setAttribute("aria-valuenow", clock.time.toFixed(2));
    canvas.setAttribute("aria-valuetext", `${clock.time.toFixed(2)} seconds`);
  };
  clock.addEventListener("time", () => { if (!clock.playing) update(); });
  clock.addEventListener("state", update);
  update();
}
