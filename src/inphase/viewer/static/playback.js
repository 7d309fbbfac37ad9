// Load a playback: its document, then every array it refers to. Throw an Error that names an invalid field.
import { TimeMap } from "./timemap.js";

const ARRAYS = { float64: Float64Array, float32: Float32Array, float16: Uint16Array, int32: Int32Array };
const VERSION = 1;

export async function loadPlayback() {
  const written = window.INPHASE;
  const { content: playback, saves } = written ? { content: written.document, saves: null } : await fetchDocument();
  expect(playback && playback.format === "inphase playback", "The document is not a playback.");
  expect(playback.version === VERSION, `The playback has version ${playback.version}; this page shows ${VERSION}.`);
  await loadArrays(playback, "playback");
  const { tracks = [], pairs = [], skeletons = [], results = [], reference = 0 } = playback;
  for (const [number, track] of tracks.entries()) prepareTrack(track, `tracks[${number}]`);
  shortenNames(tracks);
  shortenNames(results.flatMap(({ query, hits }) => [query, ...hits]));
  for (const [number, pair] of pairs.entries()) {
    const { rows, columns, row_times, column_times, cost, path } = pair;
    expect(tracks[rows] && tracks[columns], `pairs[${number}] names a track that does not exist.`);
    expect(cost.data.length === row_times.data.length * column_times.data.length && path.data.length,
      `pairs[${number}]: cost and times differ in length.`);
  }
  for (const [number, { times, points, joints }] of skeletons.entries()) {
    expect(points.data.length === times.data.length * joints.length * 3, `skeletons[${number}]: lengths differ.`);
  }
  expect(tracks.length || skeletons.length || results.length, "The playback has nothing to show.");
  expect(!tracks.length || tracks[reference], "The reference track does not exist.");
  return { title: playback.title, tracks, pairs, skeletons, results, reference, saves };
}

// A path in the playback's folder as an address; no part of it can lead out of there. A single page holds its media.
const held = new Map();

export function addressOf(path) {
  const [type, text] = window.INPHASE?.media?.[path] ?? [];
  if (text !== undefined) {
    if (!held.has(path)) held.set(path, URL.createObjectURL(new Blob([fromBase64(text)], { type })));
    return held.get(path);
  }
  return "data/" + path.split("/").map(encodeURIComponent).join("/");
}

function prepareTrack(track, where) {
  const { reference, own } = track.time_map ?? {};
  expect(!reference === !own && reference?.length === own?.length, `${where}.time_map: lengths differ.`);
  expect(!own || own.every((second, k) => !k || second >= own[k - 1]), `${where}.time_map runs backwards.`);
  track.map = new TimeMap(reference, own);
  track.phases ??= [];
  track.events ??= [];
  const { curves, keypoints, certainty } = track;
  expect(!certainty || certainty.probability.data.length === certainty.times.data.length, `${where}.certainty: lengths differ.`);
  expect(!curves || curves.values.shape[0] === curves.times.data.length, `${where}.curves: lengths differ.`);
  expect(!keypoints || keypoints.points.shape[0] === keypoints.times.data.length, `${where}.keypoints: lengths differ.`);
}

// Where all names share a prefix, as those of a camera do, `short` is the rest.
function shortenNames(named) {
  const [first = "", ...others] = named.map(({ name }) => name);
  let length = 0;
  while (others.length && length < first.length && others.every((name) => name[length] === first[length])) length += 1;
  length = first.slice(0, length).search(/[^\p{L}\p{N}][\p{L}\p{N}]*$/u) + 1; // whole words
  for (const each of named) {
    const [, stem, number] = each.name.match(/^(.{9,})(#\d+)$/u) ?? []; // a repetition of a session
    each.short = length >= 8 && each.name.length > length ? `…${each.name.slice(length)}` : stem ? `${stem.slice(0, 6)}…${number}` : each.name;
  }
}

async function fetchDocument() {
  let response;
  try {
    response = await fetch("data/playback.json");
  } catch {
    throw new Error("The playback cannot be reached: is “inphase view” still running?");
  }
  const text = await response.text();
  let content;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new Error(`The playback is not JSON: ${error.message}`);
  }
  expect(response.ok, content.error ?? `The server answered ${response.status}.`);
  return { content, saves: response.headers.get("Inphase-Marks") }; // the file that marks are saved to
}

// Replace every reference to an array, {file, dtype, shape}, by the array with its shape.
async function loadArrays(node, where) {
  const waiting = Object.entries(node).map(async ([name, value]) => {
    if (value === null || typeof value !== "object") return;
    if (typeof value.file === "string" && value.dtype && value.shape) {
      node[name] = await loadArray(value, `${where}.${name}`);
    } else if (name !== "time_map") {
      await loadArrays(value, `${where}.${name}`);
    }
  });
  await Promise.all(waiting);
}

async function loadArray({ file, dtype, shape }, where) {
  const Kind = ARRAYS[dtype];
  expect(Kind, `${where}: arrays of ${dtype} are not supported.`);
  const bytes = window.INPHASE ? fromBase64(window.INPHASE.arrays[file] ?? "") : await fetchBytes(file);
  const length = shape.reduce((product, side) => product * side, 1);
  expect(bytes.byteLength === length * Kind.BYTES_PER_ELEMENT,
    `${where}: ${file} has ${bytes.byteLength} bytes, which does not match ${dtype} [${shape.join(", ")}].`);
  return { data: new Kind(bytes), shape };
}

async function fetchBytes(file) {
  const response = await fetch(addressOf(file));
  expect(response.ok, `${file} cannot be loaded: the server answered ${response.status}.`);
  return response.arrayBuffer();
}

function fromBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes.buffer;
}

function expect(holds, message) {
  if (!holds) throw new Error(message);
}
