// The bar above the scrubber in which marks are named, removed, downloaded and saved. It appears with the first mark.
import { clockText, element } from "./draw.js";
import { SavedMarks, tableOf } from "./marks.js";

const LONGEST = 200; // letters of a name
const OPENED = 0.001; // seconds after the start of a frame, so that it is shown

// Build the bar and return the actions of its keys: [keys, name, action].
export function buildMarking(playback, clock, marks, place, add) {
  const track = playback.tracks[playback.reference];
  const button = (text, title, act, attributes = {}) => {
    const made = element("button", { type: "button", class: "small", text, title, ...attributes });
    made.addEventListener("click", act);
    return made;
  };
  const name = element("input", { type: "text", class: "mark-name", maxlength: LONGEST, "aria-label": "Name of the selected mark",
    placeholder: "name", autocomplete: "off", spellcheck: "false" });
  const where = element("output", { class: "muted mark-time" });
  const status = element("span", { class: "muted mark-status", role: "status" });

  const begin = () => {
    marks.add(momentOf(clock));
    place.hidden = false;
    if (clock.playing) return; // the name can wait until playback stops
    name.focus();
    name.select();
  };
  const rename = () => {
    const label = name.value.replace(/\s+/g, " ").trim();
    if (label && marks.current) marks.change(marks.selected, { label });
  };
  const remove = () => marks.current && marks.remove(marks.selected);
  const nudge = (frames) => {
    if (!marks.current) return;
    const second = Math.min(Math.max(marks.current.second + frames / clock.rate, 0), clock.duration);
    marks.change(marks.selected, { second });
    clock.seek(second + OPENED);
  };
  const download = () => {
    save(tableOf(marks.list), "labels.csv");
    if (!folder) marks.markSaved();
  };
  let copied = false;

  add.hidden = false;
  add.addEventListener("click", begin);
  const copy = button("Edit the labels", `Copy the ${track.events.length} labels of ${track.name} to marks`, () => { copied = true; marks.addAll(track.events); });
  const erase = button("Delete", "Delete the selected mark (Delete)", remove);
  const undo = button("Undo", "Undo (Ctrl Z)", () => marks.undo());
  const redo = button("Redo", "Redo (Ctrl Shift Z)", () => marks.redo());
  const get = button("Download CSV", "Download the marks as labels.csv", download);
  const folder = playback.saves ? savingOf(playback.saves, marks, status, button) : null;
  name.addEventListener("change", rename);
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    if (event.key === "Escape") name.value = marks.current?.label ?? "";
    name.blur();
  });
  place.append(name, where, erase, undo, redo, copy, get, ...(folder?.buttons ?? []), status);

  const update = () => {
    const { current } = marks;
    if (document.activeElement !== name || name.dataset.id !== String(marks.selected)) name.value = current?.label ?? "";
    name.dataset.id = marks.selected;
    name.disabled = erase.disabled = !current;
    where.textContent = current ? clockText(current.second) : "";
    undo.disabled = !marks.canUndo;
    redo.disabled = !marks.canRedo;
    get.disabled = !marks.list.length;
    copied &&= marks.list.length > 0;
    copy.hidden = copied || !track.events.length;
    place.hidden &&= !folder && !marks.list.length;
    if (!folder) status.textContent = marks.dirty ? `${marks.list.length} marked, not saved: download them` : "";
    folder?.update();
  };
  marks.addEventListener("change", update);
  window.addEventListener("beforeunload", (event) => { if (marks.dirty) event.preventDefault(); });
  update();
  folder?.load();
  return [
    [["M"], "Mark this moment", begin],
    [["Enter"], "Name the selected mark", () => { if (marks.current) { name.focus(); name.select(); } }],
    [["Delete", "⌫"], "Delete the selected mark", remove],
    [["<"], "Mark one frame back", () => nudge(-1)],
    [[">"], "Mark one frame forward", () => nudge(1)],
    [["Ctrl Z"], "Undo", () => marks.undo()],
    [["Ctrl Shift Z", "Ctrl Y"], "Redo", () => marks.redo()],
    ...(folder ? [[["Ctrl S"], "Save the marks", folder.save]] : []),
  ];
}

// The start of the frame that is shown, which is the time of a label there.
export function momentOf(clock) {
  return Math.min(Math.max(clock.frame / clock.rate, 0), clock.duration);
}

// Where the server may write: a button to save, and two for when someone else has written.
function savingOf(file, marks, status, button) {
  const saved = new SavedMarks();
  let trouble = "";
  let waiting = false;
  const attempt = async (act) => {
    waiting = true;
    update();
    try {
      await act();
      trouble = "";
      choices.forEach((choice) => { choice.hidden = true; });
    } catch (error) {
      trouble = error.message;
      choices.forEach((choice) => { choice.hidden = !error.changed; });
    }
    waiting = false;
    update();
  };
  const load = () => attempt(async () => marks.load(await saved.read()));
  const write = async () => {
    await saved.write(marks.list);
    marks.markSaved();
  };
  const save = () => attempt(write);
  const keep = button("Save", `Save the marks to ${file} (Ctrl S)`, save, { class: "small main" });
  const choices = [
    button("Replace theirs", `Replace ${file} by the marks of this page`, () => attempt(async () => { await saved.adopt(); await write(); })),
    button("Load theirs", `Drop the marks of this page and load ${file}`, load),
  ];
  choices.forEach((choice) => { choice.hidden = true; });
  const update = () => {
    keep.disabled = waiting || !marks.dirty;
    status.classList.toggle("bad", Boolean(trouble));
    if (trouble) status.textContent = trouble;
    else if (waiting) status.textContent = "…";
    else status.textContent = marks.dirty ? "not saved" : marks.list.length ? `${marks.list.length} saved in ${file}` : "";
  };
  return { buttons: [keep, ...choices], load, save, update };
}

function save(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = element("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
