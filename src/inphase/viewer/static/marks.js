// Marks that someone makes on this page: named moments of the reference, with undo and redo, and their CSV table.

const FORMULA = /^[=+\-@\t\r]/; // what a spreadsheet would take for a formula

// `list` holds {id, second, label} in order of time. The event "change" follows each change of the list, the selection or the history.
export class Marks extends EventTarget {
  list = [];
  selected = null; // id
  #ids = 0;
  #past = []; // lists of {before, after}: a mark, or null where it does not exist
  #future = [];
  #saved = 0; // length of the history when it was saved

  get canUndo() { return this.#past.length > 0; }
  get canRedo() { return this.#future.length > 0; }
  get dirty() { return this.#past.length !== this.#saved; }
  get current() { return this.find(this.selected); }

  find(id) {
    return this.list.find((mark) => mark.id === id) ?? null;
  }

  // Begin with marks that are saved already.
  load(marks) {
    this.list = marks.map(({ second, label }) => ({ id: ++this.#ids, second, label }));
    [this.#past, this.#future, this.#saved, this.selected] = [[], [], 0, null];
    this.#sort();
    this.#emit();
  }

  add(second, label = this.#freeName()) {
    const after = { id: ++this.#ids, second, label };
    this.selected = after.id;
    this.#do([{ before: null, after }]);
    return after;
  }

  addAll(moments) {
    this.#do(moments.map(({ second, label }) => ({ before: null, after: { id: ++this.#ids, second, label } })));
  }

  change(id, changes) {
    const before = this.find(id);
    if (before && Object.entries(changes).some(([name, value]) => before[name] !== value)) {
      this.#do([{ before, after: { ...before, ...changes } }]);
    }
  }

  remove(id) {
    const before = this.find(id);
    if (before) this.#do([{ before, after: null }]);
  }

  select(id) {
    this.selected = id;
    this.#emit();
  }

  // While a mark is dragged it moves without a history; `drop` makes it one change.
  drag(id, second) {
    const mark = this.find(id);
    this.dragged ??= { ...mark };
    mark.second = second;
    this.#sort();
    this.#emit();
  }

  drop(id) {
    const { dragged } = this;
    this.dragged = null;
    if (!dragged) return;
    const { second } = this.find(id);
    Object.assign(this.find(id), dragged);
    this.change(id, { second });
  }

  undo() {
    const changes = this.#past.pop();
    if (!changes) return;
    this.#apply(changes.map(({ before, after }) => ({ before: after, after: before })));
    this.#future.push(changes);
    this.#emit();
  }

  redo() {
    const changes = this.#future.pop();
    if (!changes) return;
    this.#apply(changes);
    this.#past.push(changes);
    this.#emit();
  }

  markSaved() {
    this.#saved = this.#past.length;
    this.#emit();
  }

  #do(changes) {
    if (this.#saved > this.#past.length) this.#saved = -1; // undoing no longer reaches the saved state
    this.#apply(changes);
    this.#past.push(changes);
    this.#future = [];
    this.#emit();
  }

  #apply(changes) {
    for (const { before, after } of changes) {
      if (before) this.list.splice(this.list.findIndex(({ id }) => id === before.id), 1);
      if (after) this.list.push({ ...after });
      if (!after && this.selected === before.id) this.selected = null;
    }
    this.#sort();
  }

  #sort() {
    this.list.sort((a, b) => a.second - b.second);
  }

  #freeName() {
    const taken = new Set(this.list.map(({ label }) => label));
    let number = this.list.length + 1;
    while (taken.has(`mark ${number}`)) number += 1;
    return `mark ${number}`;
  }

  #emit() {
    this.dispatchEvent(new Event("change"));
  }
}

// The table that `inphase transfer` reads, in the bytes that the server writes.
export function tableOf(marks) {
  const rows = marks.map(({ second, label }) => `${second.toFixed(6)},${cellOf(label)}\r\n`);
  return `second,label\r\n${rows.join("")}`;
}

function cellOf(text) {
  const safe = FORMULA.test(text) && (text.trim() === "" || Number.isNaN(Number(text))) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// The marks in the playback's folder, where the server was started with --edit. Methods throw an Error with the reason.
export class SavedMarks {
  version = "";

  async read() {
    const { marks, version } = await answerOf(await fetch("marks"));
    this.version = version;
    return marks;
  }

  // Save unless the file has changed since it was read; then the error has `changed`.
  async write(marks) {
    const body = JSON.stringify({ marks: marks.map(({ second, label }) => ({ second, label })), version: this.version });
    const response = await fetch("marks", { method: "PUT", headers: { "Content-Type": "application/json" }, body })
      .catch(() => { throw new Error("The marks were not saved: is “inphase view” still running?"); });
    this.version = (await answerOf(response)).version;
  }

  // Take the version that the file has now, so that the next save replaces it.
  async adopt() {
    this.version = (await answerOf(await fetch("marks"))).version;
  }
}

async function answerOf(response) {
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  const error = new Error(content.error ?? `The server answered ${response.status}.`);
  error.changed = response.status === 409;
  throw error;
}
