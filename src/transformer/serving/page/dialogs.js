// History, keyboard and API key, and the switch of the theme.

import { history, read, write } from "./store.js";

const element = (id) => document.getElementById(id);
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

// Connects the dialogs. `restore` takes an entry of the history; `onKey` is called after the key was changed.
export function setUpDialogs({ restore, onKey }) {
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close());
  }
  setUpHistory(restore);
  setUpTheme();
  element("open-keyboard").addEventListener("click", () => element("keyboard").showModal());
  element("open-key").addEventListener("click", openKey);
  element("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    write("key", element("key-value").value.trim() || null);
    element("key").close();
    onKey();
  });
  return {
    openKey,
    openHistory: () => element("open-history").click(),
    offerKey(isOffered) {
      element("open-key").hidden = !isOffered;
    },
  };
}

function openKey() {
  element("key-value").value = read("key", "");
  element("key").showModal();
  element("key-value").focus();
}

function setUpHistory(restore) {
  const dialog = element("history");
  const show = () => showHistory((entry) => {
    dialog.close();
    restore(entry);
  });
  element("open-history").addEventListener("click", () => {
    show();
    dialog.showModal();
  });
  element("history-on").addEventListener("change", ({ target }) => {
    history.isOn = target.checked;
    show();
  });
  element("history-clear").addEventListener("click", () => {
    history.clear();
    show();
    element("history-on").focus();
  });
}

function showHistory(restore) {
  const entries = history.entries();
  element("history-on").checked = history.isOn;
  element("history-clear").hidden = !entries.length;
  element("history-empty").hidden = entries.length > 0;
  element("history-empty").textContent = history.isOn
    ? "There are no translations yet." : "New translations are not kept.";
  element("history-list").replaceChildren(...entries.map((entry, index) => historyItem(entry, restore, () => {
    history.remove(index);
    showHistory(restore);
    const buttons = element("history-list").querySelectorAll(".remove");
    (buttons[Math.min(index, buttons.length - 1)] ?? element("history-on")).focus();
  })));
}

function historyItem(entry, restore, remove) {
  const item = document.createElement("li");
  const choose = document.createElement("button");
  choose.type = "button";
  choose.className = "entry";
  choose.append(line(entry.text, "entry-text"), line(String(entry.translation ?? ""), "entry-translation soft"));
  choose.addEventListener("click", () => restore(entry));
  const drop = document.createElement("button");
  drop.type = "button";
  drop.className = "plain round remove";
  drop.ariaLabel = `Remove “${entry.text.slice(0, 40)}”`;
  drop.title = "Remove";
  drop.append(element("clear").querySelector("svg").cloneNode(true));
  drop.addEventListener("click", remove);
  item.append(choose, drop);
  return item;
}

function line(text, name) {
  const span = document.createElement("span");
  span.className = name;
  span.dir = "auto";
  span.textContent = text;
  return span;
}

// A theme that differs from the system's is stored; otherwise the page follows the system.
function setUpTheme() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const show = () => element("dark").setAttribute("aria-pressed", String(isDark()));
  element("dark").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    const isSystems = (theme === "dark") === prefersDark.matches;
    if (isSystems) delete root.dataset.theme;
    else root.dataset.theme = theme;
    write("theme", isSystems ? null : theme);
    show();
  });
  prefersDark.addEventListener("change", show);
  show();
}
