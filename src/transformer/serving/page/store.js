// Values that stay in the browser. Where storage is blocked or full, the page works without them.

const PREFIX = "transformer.";
const MAX_ENTRIES = 100;
const MAX_CHARACTERS = 10_000;

export function read(name, fallback = null) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function write(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Nothing depends on the value.
  }
}

export const history = {
  get isOn() {
    return read("history-on", true);
  },

  set isOn(value) {
    write("history-on", value);
  },

  // Returns the entries, newest first.
  entries() {
    const entries = read("history", []);
    return Array.isArray(entries) ? entries.filter((entry) => typeof entry?.text === "string") : [];
  },

  // Adds {text, translation, from, to}. A text that continues the newest one, or is continued by it, replaces it.
  add(entry) {
    if (!this.isOn || !entry.text.trim() || entry.text.length > MAX_CHARACTERS) return;
    const entries = this.entries();
    const [newest] = entries;
    if (newest && newest.from === entry.from && newest.to === entry.to
      && (entry.text.startsWith(newest.text) || newest.text.startsWith(entry.text))) entries.shift();
    const older = entries.filter((other) => other.text !== entry.text || other.to !== entry.to);
    write("history", [{ ...entry, time: Date.now() }, ...older].slice(0, MAX_ENTRIES));
  },

  remove(index) {
    write("history", this.entries().toSpliced(index, 1));
  },

  clear() {
    write("history", null);
  },
};
