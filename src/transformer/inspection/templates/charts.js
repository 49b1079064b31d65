// Elements, formulas and charts.

/** Returns an element; a property that is a function listens to the event of its name. */
function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
function svg(name, properties = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** Returns a title in which d_k and d_model have their subscripts. */
const titled = (text) => el("span", {}, ...text.split(/(d_(?:k|model|ff)|h_kv)/).map((part, n) => (n % 2 ? el("span", {}, part[0], el("sub", {}, part.slice(2))) : part)));

/** Returns code that may break after the signs that part its names. */
const codeText = (text) => el("code", {}, ...text.split(/(?<=[/._:])/).flatMap((part) => [part, el("wbr")]));

const MATH = "http://www.w3.org/1998/Math/MathML";
const MATH_TAGS = new Set(["math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "msub", "msup", "msubsup", "mfrac", "msqrt", "mroot", "mover", "munder", "munderover", "mstyle", "mtable", "mtr", "mtd"]);
const MATH_ATTRIBUTES = new Set(["stretchy", "fence", "form", "accent", "mathvariant", "width"]);
const formulas = new Map();

function copiedMath(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data.replaceAll("'", "′"));
  const tag = MATH_TAGS.has(node.localName) ? node.localName : "mrow";
  const copy = document.createElementNS(MATH, tag);
  if (/^[′″]+$/.test(node.textContent)) copy.setAttribute("mathsize", "125%"); // small in most fonts
  for (const { name, value } of node.attributes) if (MATH_ATTRIBUTES.has(name)) copy.setAttribute(name, value);
  copy.append(...[...node.childNodes].map(copiedMath));
  return copy;
}

/** Returns a formula as elements, built only from the tags of MathML. */
function math(text, isBlock = false) {
  if (!text) return document.createTextNode("");
  if (!formulas.has(text)) formulas.set(text, copiedMath(new DOMParser().parseFromString(text, "text/html").querySelector("math")));
  const copy = formulas.get(text).cloneNode(true);
  if (isBlock) copy.setAttribute("display", "block");
  return copy;
}

/** Returns the statements of a formula, which commas part, so that each can stand on a line of its own. */
function statements(text) {
  const whole = math(text), row = whole.children.length === 1 && whole.firstChild.localName === "mrow" ? whole.firstChild : whole;
  const lists = [[]];
  for (const node of [...row.childNodes]) {
    lists.at(-1).push(node);
    if (node.localName === "mo" && node.textContent === ",") lists.push([]);
  }
  return lists.filter((list) => list.length).map((list) => {
    const made = document.createElementNS(MATH, "math"), inner = document.createElementNS(MATH, "mrow");
    made.setAttribute("display", "block");
    inner.append(...list);
    made.append(inner);
    return made;
  });
}

/** Returns the box of a formula; where it is too narrow, it can be scrolled, also by the keyboard. */
function formulaBox(text, kind = "formula") {
  const box = el("div", { class: kind }, ...statements(text));
  new ResizeObserver(() => {
    const isCut = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("cut", isCut);
    for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": "Formula" })) {
      if (isCut) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  }).observe(box);
  return box;
}

/** Returns the formula of the gradient of the loss with respect to a symbol. */
function gradientMath(symbol) {
  const element = (name, ...children) => {
    const made = document.createElementNS(MATH, name);
    made.append(...children);
    return made;
  };
  const part = (...children) => element("mrow", element("mo", "∂"), ...children);
  const inner = symbol ? [...math(symbol).childNodes] : [element("mi", "y")];
  return element("math", element("mfrac", part(element("mi", "L")), part(...inner)));
}

/** Returns an element that draws a chart as wide as there is room. */
function fitted(draw, most = 900) {
  const holder = el("div", { class: "chart" });
  let width = 0;
  holder.redraw = () => holder.replaceChildren(draw(width));
  new ResizeObserver(() => {
    const room = Math.min(most, holder.clientWidth);
    if (!room || room === width) return;
    width = room;
    holder.redraw();
  }).observe(holder);
  return holder;
}

/** Draws norms along the path on a logarithmic scale; values are {label, norm, step}. */
function normChart(values, width, { reference, current, onPick }) {
  const height = 170, left = 46, bottom = 22, top = 10;
  const positive = [...values, ...(reference ?? [])].map((value) => value.norm).filter((norm) => norm > 0);
  const low = Math.floor(Math.log10(Math.min(...positive))), high = Math.ceil(Math.log10(Math.max(...positive)));
  const y = (norm) => top + (height - top - bottom) * (1 - (Math.log10(Math.max(norm, 10 ** low)) - low) / Math.max(1, high - low));
  const x = (n, count) => left + 6 + ((width - left - 12) * n) / Math.max(1, count - 1);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Norms of the gradients along the path, on a logarithmic scale" });
  for (let power = low; power <= high; power += Math.ceil((high - low) / 7)) {
    root.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(10 ** power), y2: y(10 ** power) }));
    const label = svg("text", { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, "10");
    label.append(svg("tspan", { dy: -5, "font-size": 8 }, String(power).replace("-", "−")));
    root.append(label);
  }
  const isEncoder = (value) => value.section?.startsWith("Encoder"); // from its output, gradients do not come through the decoder's input
  const lines = (list, kind) => [true, false].map((side) => svg("polyline", {
    class: kind, points: list.flatMap((value, n) => (Boolean(isEncoder(value)) === side ? [`${x(n, list.length)},${y(value.norm || 10 ** low)}`] : [])).join(" "),
  }));
  if (reference) root.append(...lines(reference, "reference"));
  root.append(...lines(values, "norms"));
  let section = null;
  values.forEach((value, n) => {
    const isHere = current !== undefined && value.step === current;
    if (value.section && value.section !== section) {
      section = value.section;
      root.append(svg("line", { class: "border", x1: x(n, values.length) - 3, x2: x(n, values.length) - 3, y1: top, y2: height - bottom }));
      const count = values.filter((other) => other.section === section).length;
      const room = (count / values.length) * (width - left);
      const text = room > 6.6 * section.length ? section : room > 24 ? section.replace(/[a-z ]/g, "") : "";
      root.append(svg("text", { x: x(n, values.length), y: height - 6 }, text));
    }
    const dot = svg("circle", { class: isHere ? "dot here" : "dot", cx: x(n, values.length), cy: y(value.norm || 10 ** low), r: isHere ? 5 : 2.2 }, svg("title", {}, `${value.label}: ${show(value.norm)}`));
    root.append(dot);
  });
  if (onPick) {
    root.classList.add("pickable");
    root.addEventListener("click", (event) => {
      const box = root.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * width;
      const n = Math.round(((place - left - 6) / (width - left - 12)) * (values.length - 1));
      const value = values[Math.max(0, Math.min(values.length - 1, n))];
      if (value.step !== undefined) onPick(value.step);
    });
  }
  return root;
}

/** Draws curves over positions; series are {name, values}. */
function curveChart(series, wide, label) {
  const height = 220, left = 40, bottom = 24, top = 10;
  const all = series.flatMap((one) => [...one.values]), count = series[0].values.length;
  const spread = Math.max(...all) - Math.min(...all) || 1, power = 10 ** Math.floor(Math.log10(spread));
  const tick = power * (spread / power > 5 ? 2 : spread / power > 2 ? 1 : 0.5);
  const low = Math.floor(Math.min(...all) / tick + 1e-6) * tick, high = Math.ceil(Math.max(...all) / tick - 1e-6) * tick;
  const y = (value) => top + (height - top - bottom) * (1 - (value - low) / (high - low || 1));
  const x = (n) => left + ((wide - left - 8) * n) / Math.max(1, count - 1);
  const root = svg("svg", { viewBox: `0 0 ${wide} ${height}`, width: wide, height, role: "img", "aria-label": label });
  for (let value = low; value <= high + tick / 2; value += tick) {
    root.append(svg("line", { class: "grid", x1: left, x2: wide, y1: y(value), y2: y(value) }), svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(Number(value.toFixed(2))).replace("-", "−")));
  }
  const step = niceStep(count / 8);
  for (let n = 0; n < count; n += step) root.append(svg("text", { x: x(n), y: height - 6, "text-anchor": "middle" }, String(n)));
  series.forEach((one, place) => {
    root.append(svg("polyline", { class: `series-${1 + (place % 5)}`, points: [...one.values].map((value, n) => `${x(n)},${y(value)}`).join(" ") }, svg("title", {}, one.name)));
  });
  const key = el("p", { class: "keys" }, ...series.map((one, place) => el("span", { class: `key series-${1 + (place % 5)}` }, one.name)));
  return el("div", {}, root, key);
}

/** Draws shares as bars; rows are {name, value, text}. */
function shareBars(rows) {
  const sum = total(rows.map((row) => row.value)) || 1, most = Math.max(...rows.map((row) => row.value));
  return el("table", { class: "shares" }, el("tbody", {}, ...rows.map((row) => {
    const bar = el("span", { class: "share" });
    bar.style.width = `${Math.max(0.3, (100 * row.value) / most)}%`;
    return el("tr", {}, el("th", { scope: "row" }, row.name), el("td", { class: "track" }, bar),
      el("td", { class: "number" }, row.value.toLocaleString("en")), el("td", { class: "number soft" }, `${((100 * row.value) / sum).toFixed(1)} %`));
  })));
}
