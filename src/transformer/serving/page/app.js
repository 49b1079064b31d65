// The page: texts are translated as they are typed, and the last answer wins.

import { detect, getLanguages, getSettings, translate } from "./api.js";
import { setUpDialogs } from "./dialogs.js";
import { Files } from "./files.js";
import { Languages } from "./languages.js";
import { Output } from "./output.js";
import { history, read } from "./store.js";

const TYPING_MS = 300;
const LONG_TYPING_MS = 1000;
const LONG_TEXT = 5000;
const SETTLED_MS = 2500;
const LARGE_PRINT = 400;
const DETECTED_CHARACTERS = 2000;
const SURE_PERCENT = 90;

const element = (id) => document.getElementById(id);
const source = element("source");
const output = new Output(() => settle());
const languages = new Languages(() => {
  showOffer(null);
  update(0);
});
const dialogs = setUpDialogs({ restore, onKey: start });
const files = new Files(languages, askForKey);

let limit = Infinity;
let request = null;
let typing = 0;
let retry = 0;
let settling = 0;
let last = null;
let goesToTranslation = false;

// Asks for languages and limits, again and again while the server cannot be reached.
async function start() {
  clearTimeout(retry);
  showMessage();
  try {
    const [all, settings] = await Promise.all([getLanguages(), getSettings()]);
    limit = settings.charLimit > 0 ? settings.charLimit : Infinity;
    files.set(settings);
    dialogs.offerKey(settings.apiKeys || settings.keyRequired);
    if (!languages.isKnown) languages.set(all, settings);
    if (settings.keyRequired && !read("key")) askForKey("This server needs an API key.");
    else update(0);
  } catch (error) {
    report(error, start);
  }
}

// Translates after a pause in typing. Whatever was asked before is out of date.
function update(delay) {
  request?.abort();
  clearTimeout(typing);
  clearTimeout(settling);
  if (languages.isKnown) clearTimeout(retry);
  goesToTranslation = false;
  showBusy(false);
  showCount();
  if (!source.value.trim()) showNothing();
  else if (countCharacters(source.value) > limit) {
    markStale();
    showMessage("The text is longer than this server allows.");
  } else if (languages.isKnown) typing = setTimeout(send, delay);
}

async function send() {
  const text = source.value;
  request = new AbortController();
  const { signal } = request;
  showBusy(true);
  try {
    const fields = { q: text, source: languages.from, target: languages.to, details: true };
    const answer = await translate(fields, signal);
    if (!signal.aborted) {
      show(text, answer);
      offerReverse(text, answer.detectedLanguage, signal);
    }
  } catch (error) {
    if (!signal.aborted) report(error, send);
  } finally {
    if (!signal.aborted) showBusy(false);
  }
}

function show(text, { translatedText, detectedLanguage, details }) {
  const detected = detectedLanguage?.language;
  const from = detected ?? languages.from;
  languages.detect(detected ?? "");
  last = { text, translation: translatedText, from, to: languages.to, alignment: details?.alignment,
    unsure: details?.unsure };
  output.show(last);
  element("result").classList.remove("stale");
  showMessage();
  showReadiness();
  showNotes(details?.flags ?? [], details?.models ?? []);
  if (goesToTranslation && document.activeElement === source) output.focus();
  goesToTranslation = false;
  settling = setTimeout(() => {
    settle();
    element("status").textContent = `Translated to ${languages.name(last.to)}.`;
  }, SETTLED_MS);
}

// Adds the present translation to the history.
function settle() {
  clearTimeout(settling);
  if (!last) return;
  history.add({ text: last.text, translation: output.text, from: languages.from, to: last.to });
}

// Offers the other direction where the text is in the language of the translation, which is there without the offer.
async function offerReverse(text, detected, signal) {
  const { reverse } = languages;
  let best = detected;
  try {
    if (reverse && !detected) [best] = await detect(text.slice(0, DETECTED_CHARACTERS), signal);
  } catch {
    return;
  }
  if (signal.aborted) return;
  showOffer(reverse && best?.confidence >= SURE_PERCENT && best.language === reverse.from ? reverse : null);
}

function showOffer(reverse) {
  element("offer").hidden = !reverse;
  if (!reverse) return;
  const [from, to] = [languages.name(reverse.from), languages.name(reverse.to)];
  element("offer-text").textContent = `The text seems to be in ${from}.`;
  element("offer-action").textContent = `Translate it to ${to}`;
  element("offer-action").onclick = () => {
    languages.choose(reverse.from, reverse.to);
    showOffer(null);
    update(0);
    source.focus();
  };
}

function showNothing() {
  last = null;
  showOffer(null);
  output.clear();
  languages.detect("");
  element("result").classList.remove("stale");
  element("status").textContent = "";
  if (languages.isKnown) showMessage();
  showReadiness();
  showNotes([], []);
}

// Marks the translation as one of another text than the present one.
function markStale() {
  last = null;
  element("result").classList.add("stale");
  showNotes([], []);
}

// Tells what went wrong; where the same request may succeed later, it is repeated.
function report(error, again) {
  if (error.needsKey) {
    askForKey(error.message);
    return;
  }
  markStale();
  if (!error.retryAfter) {
    showMessage(error.message);
    return;
  }
  const seconds = Math.ceil(error.retryAfter);
  retry = setTimeout(again, seconds * 1000);
  const wait = seconds === 1 ? "in a second" : `in ${seconds} seconds`;
  showMessage(`${error.message} Trying again ${wait}.`, "Try now", () => {
    clearTimeout(retry);
    again();
  });
}

function askForKey(message) {
  dialogs.offerKey(true);
  markStale();
  showMessage(message, "Enter a key", dialogs.openKey);
}

function showMessage(text = "", label = "", action = null) {
  element("message").hidden = !text;
  if (element("message-text").textContent !== text) element("message-text").textContent = text;
  const button = element("message-action");
  button.hidden = !label;
  button.textContent = label;
  button.onclick = action;
  showReadiness();
}

function showBusy(isBusy) {
  element("result").setAttribute("aria-busy", String(isBusy));
}

function showReadiness() {
  element("placeholder").hidden = output.text !== "" || !element("message").hidden;
  element("copy").disabled = !last;
}

function showNotes(flags, models) {
  element("notes").hidden = !flags.length;
  element("notes").querySelector("ul").replaceChildren(...flags.map((flag) => {
    const item = document.createElement("li");
    item.textContent = flag.charAt(0).toUpperCase() + flag.slice(1);
    return item;
  }));
  element("models").textContent = models.length ? `Translated by ${[...new Set(models)].join(", then ")}` : "";
}

// Returns the number of code points, which is what the server counts.
function countCharacters(text) {
  return [...text].length;
}

function showCount() {
  const count = countCharacters(source.value);
  element("count").textContent = count || limit < Infinity
    ? `${count.toLocaleString("en")}${limit < Infinity ? ` / ${limit.toLocaleString("en")}` : ""} characters` : "";
  element("count").classList.toggle("over", count > limit);
  element("clear").hidden = !source.value;
  document.body.classList.toggle("long", count > LARGE_PRINT);
}

function setText(text) {
  source.value = text;
  output.detach();
  update(0);
}

function restore({ text, from, to }) {
  languages.choose(from, to);
  showOffer(null);
  setText(text);
  source.focus();
}

function swap() {
  const text = last ? output.text : source.value;
  settle();
  if (!languages.swap()) return;
  showOffer(null);
  setText(text);
}

function clear() {
  settle();
  setText("");
  source.focus();
}

async function copy() {
  if (!last) return;
  settle();
  const label = element("copy-label");
  label.textContent = await copyText(output.text) ? "Copied" : "Not copied";
  element("status").textContent = label.textContent;
  setTimeout(() => {
    label.textContent = "Copy";
  }, 2000);
}

// Returns whether the clipboard was written. Browsers offer `navigator.clipboard` over HTTPS and to localhost only.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const [area, focused] = [document.createElement("textarea"), document.activeElement];
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return isCopied;
  }
}

function goToTranslation() {
  if (last && source.value === last.text) output.focus();
  else {
    update(0);
    goesToTranslation = true;
  }
}

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  const isControl = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
  if (isControl && event.key === "Enter") {
    event.preventDefault();
    goToTranslation();
  }
  const actions = { KeyS: swap, KeyC: copy, KeyX: clear, KeyH: dialogs.openHistory };
  if (event.altKey && event.shiftKey && !event.ctrlKey && !event.metaKey && actions[event.code]) {
    event.preventDefault();
    actions[event.code]();
  }
});
source.addEventListener("input", () => {
  output.detach();
  update(source.value.length > LONG_TEXT ? LONG_TYPING_MS : TYPING_MS);
});
element("swap").addEventListener("click", swap);
element("clear").addEventListener("click", clear);
element("copy").addEventListener("click", copy);
addEventListener("pagehide", settle);

output.detach();
showCount();
showReadiness();
start();
