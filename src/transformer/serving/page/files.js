// A file that is dropped or chosen is sent, and its translation offered for download. One file at a time.

import { deleteDocument, documentState, fetchDocument, sendDocument } from "./api.js";

const POLL_MS = 300;
const MAX_POLL_MS = 3000;
const SHOWN_PROBLEMS = 20;

const element = (id) => document.getElementById(id);
const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export class Files {
  #languages;
  #askForKey;
  #extensions = [];
  #maxBytes = Infinity;
  #current = null;
  #handle = null;
  #address = "";
  #depth = 0;

  // `askForKey` is called with a message where the server needs another API key.
  constructor(languages, askForKey) {
    this.#languages = languages;
    this.#askForKey = askForKey;
    const input = element("file-input");
    element("choose-file").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length) this.translate(input.files[0]);
      input.value = "";
    });
    element("file-close").addEventListener("click", () => {
      this.#cancel();
      element("file").hidden = true;
      element("choose-file").focus();
    });
    addEventListener("pagehide", () => this.#cancel());
    this.#listenToDrops();
  }

  // Takes the answer of /frontend/settings.
  set({ filesTranslation, supportedFilesFormat, fileBytes }) {
    this.#extensions = filesTranslation ? supportedFilesFormat : [];
    this.#maxBytes = fileBytes ?? Infinity;
    element("choose-file").hidden = !this.#extensions.length;
    element("file-input").accept = this.#extensions.join();
  }

  // Translates a file; another one that is being translated is cancelled.
  async translate(file) {
    this.#cancel();
    this.#current = new AbortController();
    const { signal } = this.#current;
    this.#show(file.name);
    try {
      if (file.size > this.#maxBytes) throw new Error(`The file has more than ${counted(this.#maxBytes, "byte")}.`);
      await this.#run(file, signal);
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
  }

  async #run(file, signal) {
    const { from, to } = this.#languages;
    const handle = await sendDocument({ file, source_lang: from === "auto" ? "" : from, target_lang: to }, signal);
    this.#handle = handle;
    const details = await this.#waitFor(handle, signal);
    const content = await fetchDocument(handle, signal);
    this.#handle = null;
    this.#finish(content, details);
  }

  // Asks for the state until the file is translated, and returns the summary.
  async #waitFor(handle, signal) {
    for (let pause = POLL_MS; ; pause = Math.min(1.5 * pause, MAX_POLL_MS)) {
      let state = null;
      try {
        state = await documentState(handle, signal);
      } catch (error) {
        if (signal.aborted || !error.retryAfter) throw error;
        pause = error.retryAfter * 1000;
      }
      if (state?.status === "done") return state.details;
      if (state?.status === "error") throw new Error(sentence(state.error_message));
      if (state) this.#showProgress(state);
      await new Promise((resolve) => {
        setTimeout(resolve, pause);
      });
      signal.throwIfAborted();
    }
  }

  #showProgress({ status, seconds_remaining: seconds, details }) {
    const bar = element("file-progress");
    if (details.lines) {
      bar.max = details.lines;
      bar.value = details.lines_done;
    }
    element("file-state").textContent = status === "queued" ? "Waiting for other files."
      : !details.lines ? "The server reads the file."
        : `${details.lines_done.toLocaleString("en")} of ${counted(details.lines, "line")}`
          + (details.lines_done ? `, about ${counted(seconds, "second")} left` : "");
  }

  #show(name) {
    URL.revokeObjectURL(this.#address);
    element("file").hidden = false;
    element("file").classList.remove("failed");
    element("file-name").textContent = name;
    element("file-progress").hidden = false;
    element("file-progress").removeAttribute("value");
    element("file-state").textContent = "Sending the file.";
    element("file-download").hidden = true;
    element("file-notes").hidden = true;
    this.#labelClose("Cancel the file");
    element("file").scrollIntoView({ block: "nearest" });
  }

  #finish(content, { name, translated, unsure, untranslated, kept, reasons, problems }) {
    this.#address = URL.createObjectURL(content);
    const link = element("file-download");
    link.href = this.#address;
    link.download = name;
    link.textContent = `Download ${name}`;
    link.hidden = false;
    element("file-progress").hidden = true;
    const facts = [`${counted(translated, "segment")} translated${unsure ? ` (${unsure.toLocaleString("en")} unsure)` : ""}`];
    if (untranslated) facts.push(`${untranslated.toLocaleString("en")} left untranslated`);
    if (kept) facts.push(`${kept.toLocaleString("en")} kept`);
    element("file-state").textContent = `${facts.join(", ")}.`;
    this.#labelClose("Close the file");
    this.#showNotes(reasons, problems);
  }

  // Shows why segments are unsure or untranslated, each reason with the places of the first ones.
  #showNotes(reasons, problems) {
    element("file-notes").hidden = !problems.length;
    const places = problems.slice(0, SHOWN_PROBLEMS).map(({ place, reason }) =>
      `${place.slice(place.lastIndexOf(":") + 1)}: ${reason}`);
    const total = Object.values(reasons).reduce((sum, n) => sum + n, 0);
    if (total > places.length) places.push(`and ${(total - places.length).toLocaleString("en")} more`);
    element("file-notes").querySelector("ul").replaceChildren(...places.map((text) => {
      const item = document.createElement("li");
      item.textContent = /^\d/.test(text) ? `Line ${text}` : text;
      return item;
    }));
  }

  #fail(error) {
    element("file").classList.add("failed");
    element("file-progress").hidden = true;
    element("file-state").textContent = sentence(error.message);
    this.#labelClose("Close the file");
    this.#handle = null;
    if (error.needsKey) this.#askForKey(error.message);
  }

  #cancel() {
    this.#current?.abort();
    if (this.#handle) deleteDocument(this.#handle);
    this.#handle = null;
  }

  #labelClose(label) {
    element("file-close").title = label;
    element("file-close").setAttribute("aria-label", label);
  }

  #listenToDrops() {
    const show = (isShown) => {
      element("drop").hidden = !isShown;
    };
    const isFile = (event) => this.#extensions.length && event.dataTransfer?.types.includes("Files");
    addEventListener("dragenter", (event) => {
      if (isFile(event)) show(++this.#depth > 0);
    });
    addEventListener("dragleave", (event) => {
      if (isFile(event)) show(--this.#depth > 0);
    });
    addEventListener("dragover", (event) => {
      if (isFile(event)) event.preventDefault();
    });
    addEventListener("drop", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      this.#depth = 0;
      show(false);
      this.translate(event.dataTransfer.files[0]);
    });
  }
}
