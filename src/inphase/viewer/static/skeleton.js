// People in space, to be turned by dragging or with the arrow keys.
import { color, element, surface } from "./draw.js";
import { boneColor, pointsBetween, sideOf } from "./joints.js";

const VIEWS = { Front: [0, 0.12], Side: [Math.PI / 2, 0.12], Above: [0, 1.45] };

export function skeletonPanel(playback, clock, card) {
  if (!playback.skeletons.length) return null;
  const bodies = playback.skeletons.map((skeleton) => ({ skeleton, ...frameOf(skeleton) }));
  const eye = { yaw: -0.6, pitch: 0.2, zoom: 1 };
  const canvas = element("canvas", { class: "plot skeleton", tabindex: 0, role: "img", title: "Drag to rotate",
    "aria-label": `3-D skeleton: ${bodies.map(({ skeleton }) => skeleton.name).join(", ")}. Rotate it with the arrow keys, zoom with plus and minus.` });
  const { redraw } = surface(canvas, (context, width, height) => {
    const columns = Math.min(bodies.length, 3);
    const rows = Math.ceil(bodies.length / columns);
    bodies.forEach((body, k) => {
      const box = { left: (k % columns) * (width / columns), top: Math.floor(k / columns) * (height / rows),
        width: width / columns, height: height / rows };
      drawBody(context, body, box, eye, clock.time);
    });
  });
  clock.addEventListener("time", redraw);
  const turn = (changes) => {
    Object.assign(eye, changes);
    eye.pitch = Math.min(Math.max(eye.pitch, -1.5), 1.5);
    eye.zoom = Math.min(Math.max(eye.zoom, 0.4), 4);
    redraw();
  };
  listen(canvas, eye, turn);
  const options = Object.entries(VIEWS).map(([name, [yaw, pitch]]) => {
    const button = element("button", { class: "small", type: "button", text: name });
    button.addEventListener("click", () => turn({ yaw, pitch }));
    return button;
  });
  return card("3-D skeleton", options, canvas, element("p", { class: "muted readout", text: "Drag to rotate." }));
}

function listen(canvas, eye, turn) {
  canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener("pointermove", (event) => {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    turn({ yaw: eye.yaw + event.movementX * 0.01, pitch: eye.pitch + event.movementY * 0.01 });
  });
  const keys = { ArrowLeft: { yaw: -0.1 }, ArrowRight: { yaw: 0.1 }, ArrowUp: { pitch: 0.1 }, ArrowDown: { pitch: -0.1 } };
  canvas.addEventListener("keydown", (event) => {
    const by = keys[event.key];
    if (by) turn({ yaw: eye.yaw + (by.yaw ?? 0), pitch: eye.pitch + (by.pitch ?? 0) });
    else if (event.key === "+" || event.key === "-") turn({ zoom: eye.zoom * (event.key === "+" ? 1.15 : 1 / 1.15) });
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

// Turn any "up" into z, and find the middle, the floor and the size of all that is ever there.
function frameOf({ up = "z", points: { data } }) {
  const axis = "xyz".indexOf(up.at(-1));
  const sign = up.startsWith("-") ? -1 : 1;
  // A rotation, never a mirror image. What a camera saw, y down and z away from it, is seen from the camera in front.
  const [a, b] = [(axis + 1) % 3, (axis + 2) % 3];
  const upright = (p) => [sign * p[a], p[b], sign * p[axis]];
  const [low, high] = [[Infinity, Infinity, Infinity], [-Infinity, -Infinity, -Infinity]];
  for (let i = 0; i < data.length; i += 3) {
    const point = upright(data.subarray(i, i + 3));
    if (point.some(Number.isNaN)) continue;
    point.forEach((value, k) => { low[k] = Math.min(low[k], value); high[k] = Math.max(high[k], value); });
  }
  const size = Math.max(...high.map((value, k) => value - low[k]), 1e-6);
  return { upright, low, size, center: high.map((value, k) => (value + low[k]) / 2) };
}

function drawBody(context, body, box, eye, second) {
  const { skeleton, upright, center, low, size } = body;
  const project = projection(center, size, box, eye);
  drawFloor(context, project, center, low[2], size);
  const points = pointsBetween(skeleton, second);
  const joints = skeleton.joints.map((_, j) => project(upright(points.subarray(3 * j, 3 * j + 3))));
  const bones = skeleton.bones.map((bone) => ({ bone, a: joints[bone[0]], b: joints[bone[1]] }))
    .filter(({ a, b }) => !Number.isNaN(a.x + b.x)).sort((one, other) => other.a.depth + other.b.depth - one.a.depth - one.b.depth);
  context.lineCap = "round";
  for (const { bone, a, b } of bones) {
    context.strokeStyle = boneColor(skeleton.joints, bone);
    context.lineWidth = 6 * ((a.scale + b.scale) / 2);
    context.beginPath();
    context.moveTo(a.x, a.y);
    context.lineTo(b.x, b.y);
    context.stroke();
  }
  joints.forEach(({ x, y, scale }, j) => {
    if (Number.isNaN(x)) return;
    context.fillStyle = color(`side-${sideOf(skeleton.joints[j])}`);
    context.beginPath();
    context.arc(x, y, (skeleton.joints[j] === "head" ? 8 : 4) * scale, 0, 2 * Math.PI);
    context.fill();
  });
  context.fillStyle = color("muted");
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillText(skeleton.name, box.left + box.width / 2, box.top + box.height - 8, box.width - 12);
}

// From space, z up, to the canvas: turned about the vertical, tilted, seen from not too near.
function projection(center, size, box, { yaw, pitch, zoom }) {
  const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
  const unit = (Math.min(box.width, box.height - 24) / size) * 0.78 * zoom;
  const distance = 4 * size;
  return (point) => {
    const [x, y, z] = point.map((value, k) => value - center[k]);
    const [across, away] = [cy * y - sy * x, cy * x + sy * y];
    const depth = -cp * away - sp * z;
    const scale = distance / (distance + depth);
    const height = cp * z - sp * away;
    return { x: box.left + box.width / 2 + across * unit * scale,
      y: box.top + (box.height - 16) / 2 - height * unit * scale, depth, scale };
  };
}

function drawFloor(context, project, center, floor, size) {
  context.strokeStyle = color("line");
  context.lineWidth = 1;
  const [half, steps] = [size * 0.6, 6];
  for (let k = 0; k <= steps; k++) {
    const at = -half + (2 * half * k) / steps;
    for (const [from, to] of [[[at, -half], [at, half]], [[-half, at], [half, at]]]) {
      const [a, b] = [from, to].map(([x, y]) => project([center[0] + x, center[1] + y, floor]));
      context.beginPath();
      context.moveTo(a.x, a.y);
      context.lineTo(b.x, b.y);
      context.stroke();
    }
  }
}
