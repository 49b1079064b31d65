// The page: tabs, the path of steps, and keys.

const NAMES = {
  forward: "Forward Propagation", backward: "Backward Propagation", attention: "Attention", positions: "Positions",
  parameters: "Parameters",
};
const TABS = Object.fromEntries(facts.tabs.map((tab) => [tab, NAMES[tab]]));
const state = { tab: facts.tabs[0], step: 0, place: [], lead: {}, variant: 0 };
const isStepTab = (tab) => tab === "forward" || tab === "backward";
const main = document.getElementById("content");
const pageTitle = document.title;
let shown = null;
let turn = 0;

/** Goes to a tab and a step; the address keeps them, so that a step can be linked to. */
function go(tab, step = state.step) {
  const address = isStepTab(tab) ? `#${tab}/${step}` : `#${tab}`;
  if (location.hash === address) showPage();
  else location.hash = address;
}

function readAddress() {
  const [tab, ...place] = location.hash.slice(1).split("/"), [step] = place;
  const wasTab = state.tab;
  if (TABS[tab]) state.tab = tab;
  state.place = place;
  const last = facts.steps.length - 1;
  if (step !== undefined && facts.steps[Number(step)]) state.step = Number(step);
  else if (state.tab === "backward" && wasTab !== "backward" && step === undefined) state.step = last;
}

async function showPage() {
  readAddress();
  turn += 1;
  const mine = turn;
  for (const button of document.querySelectorAll("[role=tab]")) {
    const isChosen = button.dataset.tab === state.tab;
    button.setAttribute("aria-selected", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
  }
  document.getElementById("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
  document.getElementById("layout").classList.toggle("with-path", isStepTab(state.tab));
  const pages = { forward: forwardPage, backward: backwardPage, attention: attentionPage, positions: positionsPage, parameters: parametersPage };
  const made = await pages[state.tab](facts.steps[state.step]).catch((error) => {
    if (!window.INSPECTOR.served) throw error;
    return { page: el("p", { class: "note", role: "alert", tabindex: "-1" }, error.message), maps: null };
  });
  if (mine !== turn) {
    made.maps?.remove();
    return;
  }
  shown?.maps?.remove();
  shown = made;
  const focus = document.activeElement;
  const wasIn = main.contains(focus) ? focus.getAttribute("aria-label") ?? "" : null;
  if (isChanged()) made.page.prepend(el("p", { class: "note changed" }, el("b", {}, "Changed: "), changedText()));
  main.replaceChildren(made.page);
  if (wasIn !== null) (main.querySelector(`.move[aria-label="${CSS.escape(wasIn)}"]:not(:disabled)`) ?? main.querySelector("h2, [role=alert]")).focus({ preventScroll: true });
  document.title = `${isStepTab(state.tab) ? `${facts.steps[state.step].title}: ` : ""}${TABS[state.tab]} · ${pageTitle}`;
  main.removeAttribute("aria-busy");
  if (isStepTab(state.tab)) showPath();
  const framed = (made.maps?.maps ?? []).filter((map) => map.frame);
  const widths = framed.map((map) => map.element.clientWidth); // all before any change, so that the page is laid out once
  framed.forEach((map, n) => map.layout(widths[n]));
  document.body.dataset.shown = location.hash || `#${state.tab}/0`;
}

/** Shows the path of the tab: parts, blocks and steps, in the order of computation or against it. */
function showPath() {
  const holder = document.getElementById("path");
  if (holder.dataset.tab !== state.tab) {
    holder.dataset.tab = state.tab;
    const ordered = (list) => (state.tab === "forward" ? list : list.toReversed());
    const parts = facts.parts.map((part, n) => ({ ...part, number: n + 1 }));
    holder.replaceChildren(...ordered(parts).map((part) => el("details", { class: "part" },
      el("summary", {}, el("span", { class: "count" }, String(part.number)), part.title),
      ...ordered(part.blocks.map((block, m) => ({ ...block, place: `${part.number}.${m + 1}` }))).map((block) => el("div", { class: "block" },
        el("p", {}, el("span", { class: "count" }, block.place), block.title),
        el("ol", {}, ...ordered(block.steps).map((id) => el("li", {}, el("a", { href: `#${state.tab}/${id}`, "data-step": id, click: () => closeDrawer() }, titled(facts.steps[id].title))))))))));
  }
  for (const link of holder.querySelectorAll("[data-step]")) {
    const isHere = Number(link.dataset.step) === state.step;
    if (isHere) link.setAttribute("aria-current", "step");
    else link.removeAttribute("aria-current");
    if (!isHere) continue;
    link.closest("details").open = true;
    const box = link.getBoundingClientRect(), around = holder.getBoundingClientRect();
    if (box.top < around.top + 40 || box.bottom > around.bottom - 20) holder.scrollTop += box.top - around.top - around.height / 3;
  }
  document.getElementById("here").textContent = `${sectionOf.get(state.step).number} ${facts.steps[state.step].title}`;
}

function closeDrawer() {
  if (window.innerWidth < 900) document.getElementById("drawer").open = false;
}

/** Returns the names of the parts whose numbers are missing, e.g. "Encoder layers 2, 3; Decoder layers 2, 3". */
function absentNames() {
  const stacks = Map.groupBy([...absentParts], (name) => name.replace(/ layer \d+$/, " layers"));
  return [...stacks].map(([stack, names]) => (names.length > 1 ? `${stack} ${names.map((name) => name.match(/\d+$/)[0]).join(", ")}` : names[0])).join("; ");
}

/** Says what the numbers of a file are. */
function numbersText() {
  if (packed.rounded) return "rounded to eight bits with a scale for each row, to make the file small: sums differ from them in the last digits. The server, transformer inspect MODEL TEXT, shows them as computed.";
  return `as computed, in float32${facts.model.is_int8 ? "; the model stores its weights in int8 with a scale for each row, and is read as that" : ""}`;
}

/** Shows the text and the loss of the pass. */
function showText() {
  const { model } = facts;
  const long = { class: "chips long", tabindex: "0", role: "region", "aria-label": "Tokens" };
  const chips = (list) => el("span", list.length > 60 ? long : { class: "chips" }, ...list.map((token) => el("bdi", { class: "chip" }, token)));
  const patches = () => {
    const made = chips(readTokens);
    [...made.children].forEach((chip, token) => {
      chip.addEventListener("pointerenter", () => markPatches([token]));
      chip.addEventListener("pointerleave", () => markPatches([]));
    });
    return made;
  };
  const sides = Object.entries(facts.tokens).map(([letter, list], n) => [n === 0 ? (facts.tokens.S ? "Source" : "Text") : "Target, shifted right", list]);
  document.getElementById("model").textContent = [model.family, `${Object.values(model.layers).join(" + ")} layers`, `${model.parameters.toLocaleString("en")} parameters`].filter((text) => text).join(" · ");
  document.getElementById("sentence").replaceChildren(
    ...(facts.picture ? [el("dt", {}, "Picture"), el("dd", { class: "input-picture" }, patches())] : sides.flatMap(([name, list]) => [el("dt", {}, name), el("dd", {}, chips(list))])),
    el("dt", {}, "To predict"), el("dd", {}, chips(facts.labels)),
    el("dt", {}, "Loss"), el("dd", {}, el("b", {}, show(facts.loss.value)), facts.loss.smoothing ? ` with label smoothing ${facts.loss.smoothing}` : ""),
    ...(isChanged() ? [el("dt", {}, "Changed"), el("dd", {}, changedText())] : []),
    ...(window.INSPECTOR.served ? [] : [el("dt", {}, "Numbers"), el("dd", {}, numbersText())]),
    ...(absentParts.size ? [el("dt", {}, "Not in this file"), el("dd", {}, absentNames(), ": ", el("code", {}, "transformer inspect MODEL TEXT"), " shows the numbers of all parts")] : []));
  document.getElementById("summary").textContent = `Loss ${show(facts.loss.value)} · ${Object.values(facts.tokens).map((list) => list.length).join(" and ")} tokens`;
}

async function showPicture() {
  const picture = await pictureFigure(112).catch(() => null); // said where the step is shown
  if (picture) document.querySelector(".input-picture").prepend(picture);
}

function showTabs() {
  const list = document.getElementById("tabs");
  list.append(...Object.entries(TABS).map(([tab, name]) =>
    el("button", { role: "tab", id: `tab-${tab}`, "data-tab": tab, "aria-controls": "panel", click: (event) => {
      if (event.detail) main.querySelector("h2")?.focus({ preventScroll: true }); // a pointer has no use for the keys of the list of tabs
      go(tab, tab === "backward" && state.step === 0 && state.tab !== "forward" ? facts.steps.length - 1 : state.step);
    } }, name)));
  list.addEventListener("keydown", (event) => {
    const tabs = [...list.children], place = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    const tab = tabs[(next + tabs.length) % tabs.length];
    event.preventDefault();
    event.stopPropagation();
    tab.focus();
    tab.click();
  });
}

/** The arrow keys go along the path, wherever they have no other use. */
document.addEventListener("keydown", (event) => {
  if (!isStepTab(state.tab) || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, .wide, [role=tablist]")) return;
  const inPath = event.target.closest("#path");
  const by = { ArrowRight: 1, ArrowLeft: -1, ...(inPath ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
  if (!by) return;
  const next = state.step + (state.tab === "forward" ? by : -by);
  event.preventDefault();
  if (!facts.steps[next]) return;
  go(state.tab, next);
  if (inPath) requestAnimationFrame(() => document.querySelector("#path [aria-current]")?.focus({ preventScroll: true }));
});

function paint() {
  colours = null;
  for (const map of [...heatMaps, ...document.querySelectorAll(".thumb canvas")]) map.redraw?.();
}

const themes = { dark: "light", light: "dark" };
const darkness = window.matchMedia("(prefers-color-scheme: dark)");
const theme = () => document.documentElement.dataset.theme ?? (darkness.matches ? "dark" : "light");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  paint();
}
document.getElementById("theme").addEventListener("click", () => setTheme(themes[theme()]));
window.addEventListener("message", ({ source, data }) => { // from a page that has this one in a frame
  if (source === window.parent && Object.hasOwn(themes, data?.theme)) setTheme(data.theme);
});
darkness.addEventListener("change", paint);
window.addEventListener("hashchange", showPage);
isNarrow.addEventListener("change", showPage);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.querySelector("h2")?.focus();
});
for (const id of ["drawer", "text"]) document.getElementById(id).open = window.innerWidth >= 900;
document.body.classList.toggle("single", facts.tabs.length === 1);
showText();
showPicture();
showTabs();
document.getElementById("text").append(changesForm() ?? "");
showPage();
