// Tiles in rows that show as much of the videos as fits, each with a zoom, a place and a mirror image of its own.
import { element } from "./draw.js";

const MOST_ZOOM = 8;
const LEAST_HEIGHT = 180; // pixels for all rows, however low the window is …
const LEAST_SHARE = 0.55; // … and a share of the window, however much is above
const ROOM = 0.12; // share of the window's height that is left to what is below
const SIDE = 0.56; // share of the width, or of the height on a narrow window, of a tile that stands before the others
const NARROW = 640; // pixels

// Arrange ratios (width by height) in rows of one height each, in order; `caption` is what a row needs besides its videos.
export function arrange(ratios, width, height, { gap, caption }) {
  let best = { area: -1 };
  for (let count = 1; count <= ratios.length; count++) {
    const each = Math.ceil(ratios.length / count);
    const rows = Array.from({ length: Math.ceil(ratios.length / each) }, (_, r) => ratios.slice(r * each, (r + 1) * each));
    const most = (height - gap * (rows.length - 1)) / rows.length - caption;
    const heights = rows.map((row) => Math.max(40, Math.min(most, (width - gap * (row.length - 1)) / sum(row))));
    const area = sum(rows.map((row, r) => sum(row) * heights[r] ** 2));
    if (area > best.area * 1.001) best = { area, each, sizes: rows.flatMap((row, r) => row.map((ratio) => [ratio * heights[r], heights[r]])) };
  }
  return best;
}

export class Tiles {
  constructor(grid) {
    this.grid = grid;
    this.list = [];
    this.side = null; // a tile before all others, larger than they
    this.chosen = null; // the tile whose swap button waits for a second one
    new ResizeObserver(() => this.lay()).observe(grid.parentElement);
    window.addEventListener("resize", () => this.lay());
  }

  // Add a tile {root, stage, ratio}; without a stage it is a card, which fills its place.
  add(tile, place = this.list.length) {
    this.list.splice(place, 0, tile);
    this.grid.append(tile.root); // `lay` puts it in its place
    this.prepare(tile);
  }

  addBefore(tile) {
    this.side = tile;
    this.grid.before(tile.root);
    this.prepare(tile);
  }

  prepare(tile) {
    tile.view = { zoom: 1, x: 0, y: 0, mirrored: false };
    tile.mirrored = () => tile.view.mirrored;
    if (tile.stage) this.addTools(tile);
    this.lay();
  }

  removeBefore() {
    this.side.root.remove();
    this.side = null;
    this.lay();
  }

  // The height of a caption depends on its width, so that a second pass may be needed.
  lay() {
    const heights = () => [...this.grid.parentElement.querySelectorAll("figcaption")].map(({ offsetHeight }) => offsetHeight).join();
    const before = heights();
    this.layOnce();
    if (heights() !== before) this.layOnce();
  }

  layOnce() {
    const { grid, list } = this;
    const whole = grid.parentElement.clientWidth;
    if (!whole || !list.length) return;
    const gap = parseFloat(getComputedStyle(grid).columnGap) || 0;
    const captionOf = ({ root }) => (root.querySelector("figcaption")?.offsetHeight ?? 0) + 2;
    const caption = Math.max(...list.map(captionOf));
    const full = document.documentElement.hasAttribute("data-full");
    const below = document.getElementById("transport").offsetHeight;
    const top = full ? 0 : grid.parentElement.getBoundingClientRect().top + window.scrollY;
    let width = whole;
    let height = Math.max(LEAST_HEIGHT, LEAST_SHARE * window.innerHeight, window.innerHeight - top - below - (full ? 24 : ROOM * window.innerHeight));
    if (this.side) {
      const beside = whole > NARROW;
      const most = [beside ? whole * SIDE : whole, (beside ? height : height * SIDE) - captionOf(this.side)];
      const w = Math.min(most[0], most[1] * this.side.ratio);
      this.size(this.side, [w, w / this.side.ratio]);
      if (beside) width -= this.side.root.offsetWidth + gap;
      else height -= w / this.side.ratio + captionOf(this.side) + gap;
    }
    const { each, sizes } = arrange(list.map(({ ratio }) => ratio), width - 2 * list.length, height, { gap, caption });
    for (const old of grid.querySelectorAll(":scope > .row-end")) old.remove();
    list.forEach((tile, k) => {
      const { root, stage } = tile;
      this.size(tile, stage ? sizes[k] : [sizes[k][0], sizes[k][1] + caption]);
      if (grid.children[k + Math.floor(k / each)] !== root) grid.insertBefore(root, grid.children[k + Math.floor(k / each)] ?? null);
      if ((k + 1) % each === 0 && k + 1 < list.length) root.after(element("div", { class: "row-end", "aria-hidden": "true" }));
    });
  }

  size(tile, [w, h]) {
    tile.root.style.setProperty("--w", `${Math.floor(w)}px`);
    tile.root.style.setProperty("--h", `${Math.floor(h)}px`);
    this.show(tile);
  }

  swap(one, other) {
    const [a, b] = [this.list.indexOf(one), this.list.indexOf(other)];
    [this.list[a], this.list[b]] = [other, one];
    this.choose(null);
    this.lay();
  }

  choose(tile) {
    this.chosen = tile;
    for (const each of this.list) each.swapButton?.setAttribute("aria-pressed", each === tile);
  }

  // Two change places at once; of more, the second one is chosen by its own button.
  pick(tile) {
    const others = this.list.filter((other) => other.stage && other !== tile);
    if (this.chosen === tile) this.choose(null);
    else if (others.length === 1) this.swap(tile, others[0]);
    else if (this.chosen) this.swap(this.chosen, tile);
    else this.choose(tile);
  }

  swapFirst() {
    const [one, other] = this.list.filter(({ stage }) => stage);
    if (other) this.swap(one, other);
  }

  mirror(tile) {
    tile.view.mirrored = !tile.view.mirrored;
    tile.mirrorButton.setAttribute("aria-pressed", tile.view.mirrored);
    this.show(tile);
    this.grid.dispatchEvent(new Event("mirror"));
  }

  zoomAll(by) {
    for (const tile of [...this.list, ...(this.side ? [this.side] : [])]) if (tile.stage) this.zoom(tile, by ? tile.view.zoom * by : 1);
  }

  // Zoom about a point, in pixels from the middle of the screen.
  zoom(tile, wanted, [px, py] = [0, 0]) {
    const { view } = tile;
    const zoom = Math.min(Math.max(wanted, 1), MOST_ZOOM);
    const by = zoom / view.zoom;
    Object.assign(view, { zoom, x: px - (px - view.x) * by, y: py - (py - view.y) * by });
    this.show(tile);
  }

  show({ stage, view, root }) {
    if (!stage) return;
    const [w, h] = [stage.clientWidth, stage.clientHeight];
    const inside = (value, size) => Math.min(Math.max(value, -(view.zoom - 1) * size / 2), (view.zoom - 1) * size / 2);
    [view.x, view.y] = [inside(view.x, w), inside(view.y, h)];
    stage.style.transform = view.zoom === 1 && !view.mirrored ? "" // a transform would cost a layer
      : `translate(${view.x}px, ${view.y}px) scale(${view.mirrored ? -view.zoom : view.zoom}, ${view.zoom})`;
    root.toggleAttribute("data-zoomed", view.zoom > 1);
  }

  addTools(tile) {
    const name = tile.name;
    const button = (text, label, act, attributes = {}) => {
      const made = element("button", { type: "button", class: "tool", text, title: label, "aria-label": `${label}: ${name}`, ...attributes });
      made.addEventListener("click", act);
      return made;
    };
    tile.mirrorButton = button("⇋", "Mirror image", () => this.mirror(tile), { "aria-pressed": "false" });
    tile.swapButton = button("⇄", "Swap with another", () => this.pick(tile), { "aria-pressed": "false" });
    const own = tile === this.side ? [] : [tile.mirrorButton, tile.swapButton];
    const tools = element("div", { class: "tools" }, button("−", "Zoom out", () => this.zoom(tile, tile.view.zoom / 1.5)),
      button("+", "Zoom in", () => this.zoom(tile, tile.view.zoom * 1.5)), ...own);
    tile.stage.parentElement.append(tools);
    this.listen(tile);
  }

  // Wheel and pinch zoom, dragging pans, a double click goes back. What was dragged is no click.
  listen(tile) {
    const { stage, view } = tile;
    const screen = stage.parentElement;
    const pointers = new Map();
    let moved = false;
    let apart = 0;
    const point = ({ clientX, clientY }) => {
      const box = screen.getBoundingClientRect();
      return [clientX - box.left - box.width / 2, clientY - box.top - box.height / 2];
    };
    screen.addEventListener("wheel", (event) => {
      const full = document.documentElement.hasAttribute("data-full");
      if (!event.ctrlKey && !event.metaKey && !full && view.zoom === 1) return; // the page scrolls
      event.preventDefault();
      this.zoom(tile, view.zoom * Math.exp(-event.deltaY / 300), point(event));
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      pointers.set(event.pointerId, event);
      moved = false;
      apart = spread(pointers);
    });
    stage.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
      if (!moved && Math.hypot(dx, dy) < 4 && pointers.size === 1) return;
      if (pointers.size === 1 && view.zoom === 1) return;
      if (!moved) stage.setPointerCapture(event.pointerId);
      moved = true;
      pointers.set(event.pointerId, event);
      if (pointers.size === 2) {
        const now = spread(pointers);
        const [one, other] = [...pointers.values()].map(point);
        if (apart) this.zoom(tile, view.zoom * (now / apart), [(one[0] + other[0]) / 2, (one[1] + other[1]) / 2]);
        apart = now;
      } else {
        view.x += dx;
        view.y += dy;
        this.show(tile);
      }
    });
    for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, (event) => pointers.delete(event.pointerId));
    stage.addEventListener("click", (event) => { if (moved) event.stopImmediatePropagation(); }, true);
    stage.addEventListener("dblclick", (event) => this.zoom(tile, view.zoom > 1 ? 1 : 2, point(event)));
  }
}

// Fill the screen with the videos, or leave it again. Where the browser has no full screen, they fill the page.
export function toggleFull() {
  const root = document.documentElement;
  const full = root.toggleAttribute("data-full");
  if (full) root.requestFullscreen?.().catch(() => {});
  else if (document.fullscreenElement) document.exitFullscreen();
  window.dispatchEvent(new Event("resize"));
}

document.addEventListener("fullscreenchange", () => {
  if (document.fullscreenElement) return;
  document.documentElement.removeAttribute("data-full");
  window.dispatchEvent(new Event("resize"));
});

function spread(pointers) {
  const [one, other] = [...pointers.values()];
  return other ? Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) : 0;
}

function sum(values) {
  return values.reduce((a, b) => a + b, 0);
}
