// What a search found: thumbnails that go there, or play it in their place.
import { element } from "./draw.js";
import { addressOf } from "./playback.js";
import { load } from "./source.js";

export function resultsPanel(playback, clock, card) {
  if (!playback.results.length) return null;
  const rows = playback.results.map(({ query, hits }) => {
    const best = Math.max(...hits.map(({ score }) => score ?? -Infinity));
    const list = element("ol", { class: "hits", "aria-label": `Hits for ${query.name} at ${query.second.toFixed(2)} s` });
    for (const hit of hits) list.append(element("li", {}, moment(hit, playback, clock, best)));
    const asked = element("div", { class: "query" }, element("h3", { text: "Query" }), moment(query, playback, clock));
    const found = element("div", { class: "found" }, element("h3", { text: `Hits, best first (${hits.length})` }), list);
    return element("div", { class: "result" }, asked, found);
  });
  const made = card("Search results", [], ...rows);
  made.classList.add("wide");
  return made;
}

function moment(found, playback, clock, best) {
  const where = `${found.second.toFixed(2)} s`;
  const picture = element("div", { class: "thumbnail" });
  if (found.thumbnail) picture.append(element("img", { src: addressOf(found.thumbnail), alt: "", loading: "lazy" }));
  else picture.append(element("span", { class: "muted", text: "♪", "aria-hidden": "true" }));
  const text = element("div", { class: "words" }, element("span", { class: "name", text: found.short, title: found.name }),
    element("span", { class: "muted", text: where }));
  const scored = Number.isFinite(found.score);
  if (scored) text.append(element("span", { class: "score", text: found.score.toFixed(3) }));
  if (found.note) text.append(element("span", { class: "muted note", text: found.note }));
  const track = playback.tracks.find(({ media }) => media && media === found.media);
  const label = `${found.name} at ${where}${!scored ? "" : `, score ${found.score.toFixed(3)}`}`;
  if (!track && !found.media) return element("div", { class: "moment" }, picture, text);
  const button = element("button", { class: "moment", type: "button", "aria-label": `${track ? "Go to" : "Play"} ${label}` },
    picture, text);
  if (best !== undefined && found.score === best) button.classList.add("best");
  button.addEventListener("click", () => (track ? clock.seek(track.map.inverse(found.second)) : play(found, picture)));
  return button;
}

// Put a player where the thumbnail was, and stop when the moment is over.
function play(found, picture) {
  let player = picture.querySelector("video");
  if (!player) {
    player = element("video", { playsinline: true, preload: "auto" }); // plays sound alone as well
    load(player, found.media, () => begin(player, found));
    player.addEventListener("timeupdate", () => {
      if (player.currentTime >= found.second + (found.duration ?? 1)) player.pause();
    });
    player.addEventListener("error", () => {
      picture.replaceChildren(element("span", { class: "broken", role: "alert", text: `${found.media} cannot be played.` }));
    });
    if (/\.(mp4|m4v|mov|webm|ogv)$/i.test(found.media)) picture.replaceChildren(player);
    else { player.hidden = true; picture.append(player); }
  }
  begin(player, found);
}

function begin(player, found) {
  player.currentTime = found.second;
  player.play().catch(() => {});
}
