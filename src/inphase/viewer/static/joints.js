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

// Draw the joints of a track at a second of the clock, `scale` pixels for one of its own; in one color, or in those of the sides.
export function drawJoints(context, track, second, { scale, thick, paint = null }) {
  const { keypoints } = track;
  const opacity = context.globalAlpha;
  const [, count, columns] = keypoints.points.shape;
  const points = pointsShown(keypoints, track.map.at(second));
  // (0, 0) is the middle of the first pixel.
  const joint = (j) => ({ x: (points[j * columns] + 0.5) * scale, y: (points[j * columns + 1] + 0.5) * scale,
    seen: columns === 3 ? Math.min(Math.max(points[j * columns + 2], 0), 1) : 1 });
  context.lineCap = "round";
  for (const bone of keypoints.bones ?? []) {
    const [a, b] = bone.map(joint);
    if (Number.isNaN(a.x + a.y + b.x + b.y)) continue;
    context.globalAlpha = opacity * (0.15 + 0.75 * Math.min(a.seen, b.seen));
    context.strokeStyle = paint ?? boneColor(keypoints.joints, bone);
    context.lineWidth = thick;
    context.beginPath();
    context.moveTo(a.x, a.y);
    context.lineTo(b.x, b.y);
    context.stroke();
  }
  for (let j = 0; j < count; j++) {
    const { x, y, seen } = joint(j);
    if (Number.isNaN(x + y)) continue;
    context.globalAlpha = opacity * (0.2 + 0.8 * seen);
    context.fillStyle = paint ?? color(`side-${sideOf(keypoints.joints[j])}`);
    context.beginPath();
    context.arc(x, y, thick * 1.25, 0, 2 * Math.PI);
    context.fill();
  }
  context.globalAlpha = opacity;
}
