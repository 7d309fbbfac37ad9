// Joints and bones, as both the videos and the room in 3-D draw them.
import { color } from "./draw.js";
import { fractionalIndex } from "./timemap.js";

// Left and right in their own colors: a body seen from behind is not mistaken.
export function sideOf(name) {
  if (name.startsWith("left")) return "left";
  return name.startsWith("right") ? "right" : "middle";
}

export function boneColor(joints, [a, b]) {
  const sides = new Set([sideOf(joints[a]), sideOf(joints[b])]);
  sides.delete("middle");
  return color(sides.size === 1 ? `side-${[...sides][0]}` : "side-middle");
}

// The points [J, C] of the frame shown at a second; NaN where a joint is not known.
export function pointsShown({ times, points }, second) {
  const size = points.shape[1] * points.shape[2];
  const frame = Math.floor(fractionalIndex(times.data, second + 1e-3));
  return points.data.subarray(frame * size, (frame + 1) * size);
}

// The same on straight lines between frames.
export function pointsBetween({ times, points }, second) {
  const [, joints, columns] = points.shape;
  const at = fractionalIndex(times.data, second);
  const [below, part] = [Math.floor(at), at - Math.floor(at)];
  const size = joints * columns;
  const here = points.data.subarray(below * size, (below + 1) * size);
  if (!part) return here;
  const next = points.data.subarray((below + 1) * size, (below + 2) * size);
  return here.map((value, i) => value + part * (next[i] - value));
}
