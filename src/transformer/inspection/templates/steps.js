// The pages of a step: forward (what it computes) and backward (what flows through it).

const sectionOf = new Map(); // step -> {section, block, number}
const pieces = new Map(); // token id -> token
facts.parts.forEach((section, n) => section.blocks.forEach((block, m) => block.steps.forEach((id, k) =>
  sectionOf.set(id, { section: section.title, block: block.title, number: `${n + 1}.${m + 1}.${k + 1}` }))));
facts.label_ids.forEach((id, n) => pieces.set(id, facts.labels[n]));
for (const { rows, names } of facts.tensors) rows?.forEach((id, n) => { if (!pieces.has(id)) pieces.set(id, names[n]); });
for (const row of facts.probabilities) for (const { id, token } of row) pieces.set(id, token);

const readTokens = facts.tokens.S ?? facts.tokens.T; // of the source, or of the only text
const ofLength = (labels, size) => (labels?.length === size ? labels : undefined);
const tokensOf = (letter, size) => ofLength(facts.tokens[letter] ?? (letter === "V" ? facts.vocabularies.target : undefined), size);

/** Returns the tokens that the positions of an axis write; undefined where they write none. */
const writes = (letter, size) => (letter === "T" && tokensOf(letter, size) ? ofLength(facts.labels, size) : undefined);

/** Returns the labels of the rows of attention weights: the token that a position reads, and the one that it writes. */
const rowsOf = (letter, size) => writes(letter, size)?.map((written, n) => `reads ${shortened(facts.tokens[letter][n])}, writes ${shortened(written)}`);

/** Returns the function that names the positions of an axis in a step: the loss compares with the tokens to predict. */
function namesIn(step) {
  const rows = step.kind === "cross_entropy" ? step.inputs[0].axes[0] : null, source = step.section === "Encoder input" ? facts.vocabularies.source : null;
  const isAttention = /attention/.test(step.block) && ["S", "T"].includes(step.output.axes.at(-1));
  return (letter, size, isRow) => (isRow && isAttention && rowsOf(letter, size)) || (letter && letter === rows ? ofLength(facts.labels, size) : letter === "V" && source ? ofLength(source, size) : tokensOf(letter, size));
}

/** Returns a letter with its subscript, e.g. d_k. */
function letterText(letter) {
  const [name, below] = letter.split("_");
  return el("span", { class: "letter" }, name, below ? el("sub", {}, below) : null);
}

/** Returns letters and sizes of a shape: (B, h, T, d_k) = 1 × 4 × 9 × 32. */
function shapeText(part, axes = part.axes) {
  if (!part.shape.length) return el("span", { class: "shape" }, "a number");
  const sizes = part.shape.join(" × ");
  if (!axes.some((letter) => letter)) return el("span", { class: "shape" }, sizes);
  const letters = axes.flatMap((letter, axis) => [axis ? ", " : "", letter ? letterText(letter) : String(part.shape[axis])]);
  return el("span", { class: "shape" }, "(", ...letters, ") = ", sizes);
}

function describeIndex(part, index, names = tokensOf) {
  const words = index.map((at, axis) => {
    const letter = part.axes[axis];
    if (part.rows && axis === 0) return part.names[part.places.get(at)];
    if (part.shape[axis] === 1 && (letter === "B" || !letter) && axis < index.length - 1) return "";
    if (letter === "h" || letter === "h_kv") return `head ${at + 1}`;
    return names(letter, part.shape[axis], axis === index.length - 2)?.[at] ?? (letter === "V" ? pieces.get(at) ?? `token ${at}` : String(at));
  });
  return words.filter((word) => word).join(", ");
}

const stepLink = (step, tab = state.tab) =>
  el("a", { href: `#${tab}/${step.id}` }, `${sectionOf.get(step.id).number} `, titled(step.title));

/** Returns the step that wrote what another one reads. */
const writerOf = (step, input) =>
  facts.steps.findLast((other) => other.id < step.id && other.output.tensor === input.tensor && other.readers.includes(step.id));

function meaningOf(step, input) {
  if (input.parameter) {
    const others = (input.paths ?? []).filter(([id]) => id !== step.id).map(([id]) => facts.steps[id]);
    return el("span", {}, "parameter ", codeText(input.parameter), ...others.flatMap((other, n) => [n ? ", " : "; shared with ", stepLink(other)]));
  }
  const writer = writerOf(step, input);
  if (writer) return el("span", {}, "from ", stepLink(writer));
  if (input.symbol.includes("bucket")) return "the bucket of each distance";
  if (input.symbol.includes("pixels")) return "the picture, normalized";
  if (input.role === "t") return step.kind === "cross_entropy" ? "ids of the correct tokens" : "token ids of the text";
  if (input.role === "m") return "mask: 1 where attention is not allowed";
  return input.symbol.includes("PE") ? "positional encoding, a constant table" : "a constant";
}

function symbolTable(step) {
  const rows = step.inputs.map((input) => [math(input.symbol), shapeText(input, axesOf(step, input)), meaningOf(step, input)]);
  rows.push([math(step.output.symbol), shapeText(step.output), "the output"]);
  if (step.attributes.eps) rows.push(["ε", show(step.attributes.eps), "keeps the divisor above zero"]);
  if (step.attributes.smoothing) rows.push(["ε", show(step.attributes.smoothing), "label smoothing"]);
  if (["multiply", "divide", "add", "subtract"].includes(step.kind) && step.attributes.number !== undefined) {
    rows.push([/d_k|d_model/.test(step.title) ? titled(`√${step.title.split("√")[1]}`) : "number", show(attributeNumber(step)), "a constant"]);
  }
  const letters = [...new Set([...step.inputs, step.output].flatMap((part) => part.axes))].filter((letter) => facts.axes[letter]);
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Symbols" },
    el("table", { class: "symbols" },
      el("thead", {}, el("tr", {}, ...["Symbol", "Shape", "Meaning"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...rows.map(([symbol, ...cells]) => el("tr", {}, el("td", {}, symbol), ...cells.map((cell) => el("td", {}, cell)))))),
    letters.length ? el("p", { class: "legend" }, ...letters.map((letter) => el("span", {}, letterText(letter), `: ${facts.axes[letter]}`))) : null);
}

function sourceLine(step) {
  return el("dl", { class: "source" },
    ...(step.paper ? [el("dt", {}, "Paper"), el("dd", {}, step.paper)] : []),
    ...(step.file ? [el("dt", {}, "Code"), el("dd", {}, codeText(`${step.file}:${step.line}`))] : []),
    ...(step.module ? [el("dt", {}, "Module"), el("dd", {}, codeText(step.module))] : []));
}

/** Returns what stands beside a step: the picture that it reads, the arithmetic of a chosen number, and the source. */
async function side(step, maps) {
  const picture = isNarrow.matches ? null : await pictureFigure(168);
  return el("div", { class: "side" }, picture, isNarrow.matches ? null : maps.aside, sourceLine(step));
}

function heading(step, tab) {
  const { section, block, number } = sectionOf.get(step.id);
  const order = tab === "forward" ? facts.steps : facts.steps.toReversed();
  const place = order.indexOf(step);
  const move = (by, name, sign) => {
    const other = order[place + by];
    return el("button", { class: "move", "aria-label": name, title: `${name} (${by < 0 ? "←" : "→"})`, disabled: !other, click: () => go(tab, other.id) }, sign);
  };
  return el("div", { class: "heading" },
    el("div", {}, el("p", { class: "trail" }, `${section} · ${block}`),
      el("h2", { tabindex: "-1" }, el("span", { class: "count" }, number), " ", titled(step.title))),
    el("div", { class: "moves" }, move(-1, "Previous step", "←"), el("span", { class: "soft" }, `${place + 1} of ${order.length}`), move(1, "Next step", "→")));
}

const LEADS = { h: "Head", h_kv: "Head of keys and values", channels: "Channel" };

/** Shows the heat maps of a page, which share leading axes (such as the head) and the chosen cell. */
class Maps {
  constructor(step) {
    this.maps = [];
    this.names = namesIn(step);
    this.aside = el("aside", { class: "arithmetic", "aria-label": "Arithmetic of the chosen cell" });
  }

  /** Returns a heat map; `explain` returns the arithmetic of an index. */
  add(operand, name, title, explain, options = {}) {
    const map = new HeatMap(operand, {
      title, name, tokens: this.names, lead: state.lead, describe: (part, index) => describeIndex(part, index, this.names),
      onScroll: (scrolled) => this.follow(scrolled), ...options,
      onSelect: explain ? (index) => this.choose(map, index) : (index) => this.peek(map, index),
    });
    map.explain = explain;
    this.maps.push(map);
    return map.element;
  }

  /** Scrolls the maps with the same columns as one that was scrolled, so that their numbers can be compared. */
  follow(scrolled) {
    for (const map of this.maps) {
      if (map === scrolled || !map.frame || map.columns !== scrolled.columns || map.operand.axes.at(-1) !== scrolled.operand.axes.at(-1)) continue;
      const left = (scrolled.scroll.x * map.cellWidth) / scrolled.cellWidth;
      if (Math.abs(map.frame.scrollLeft - left) > 1) map.frame.scrollLeft = left;
    }
  }

  /** Returns the choice of leading axes, e.g. of the head. */
  leads() {
    const found = new Map();
    for (const { operand } of this.maps) operand.shape.slice(0, -2).forEach((size, axis) => {
      if (size > 1) found.set(leadKey(operand.axes, axis), size);
    });
    return [...found].map(([key, size]) => {
      const choices = range(size).map((at) => el("button", {
        "aria-pressed": String((state.lead[key] ?? 0) === at), click: (event) => {
          state.lead[key] = at;
          for (const button of event.target.parentElement.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button === event.target));
          for (const map of this.maps) map.setLead(state.lead);
          if (this.chosen) this.choose(this.chosen.map, this.chosen.map.index(...this.chosen.map.placeOf(this.chosen.index)), false);
        },
      }, String(at + 1)));
      const name = LEADS[key] ?? capital(key);
      return el("div", { class: "leads", role: "group", "aria-label": name }, el("span", { class: "soft" }, name), ...choices);
    });
  }

  peek(map, index) {
    map.chosen = map.placeOf(index);
  }

  async choose(map, index, isUser = true) {
    this.chosen = { map, index };
    const cell = await map.explain(index);
    if (this.chosen.map !== map || this.chosen.index !== index) return;
    const reads = new Map(this.maps.map((other) => [other.operand.key, []]));
    for (const part of [cell.before, cell.terms, cell.plus, cell.after]) for (const line of part) {
      for (const [operand, place] of line.reads ?? []) reads.get(operand.key)?.push(place);
    }
    for (const other of this.maps) {
      const own = reads.get(other.operand.key);
      const isChosen = other === map;
      const isAligned = other.columns === map.columns && other.operand.axes.at(-1) === map.operand.axes.at(-1);
      other.mark(isChosen ? other.placeOf(index) : null, own, isAligned ? index.at(-1) : null);
    }
    this.aside.replaceChildren(...arithmetic(map, index, cell, this.names));
    if (isUser && isNarrow.matches) this.aside.scrollIntoView({ block: "nearest", behavior: "smooth" });
  }

  /** Chooses the largest number of a map, so that a page opens with an example. */
  chooseLargest(map = this.maps.find((one) => one.explain && one.frame), columns = null) {
    if (!map) return;
    if (columns) {
      this.choose(map, map.index(0, columns.reduce((best, column) => (map.value(0, column) > map.value(0, best) ? column : best))), false);
      return;
    }
    let best = 0, size = -1;
    for (let n = 0; n < Math.min(map.rows * map.columns, 200000); n += 1) {
      const value = Math.abs(map.operand.values[map.start + n]);
      if (value < Infinity && value > size) [best, size] = [n, value];
    }
    this.choose(map, map.index(Math.floor(best / map.columns), best % map.columns), false);
  }

  remove() { for (const map of this.maps) map.remove(); }
}

const FEW = 8;
const isNarrow = window.matchMedia("(max-width: 1099px)");
const isGradient = (part) => part.key.startsWith("d");
const symbolOf = (part) => (typeof part === "string" ? document.createTextNode(part) : isGradient(part) ? gradientMath(part.symbol) : math(part.symbol));

/** Returns an arithmetic, written out. */
function arithmetic(map, index, cell, names) {
  const { operand } = map;
  const position = (at) => names(cell.axis, facts.tokens[cell.axis]?.length)?.[at] ?? (cell.axis === "V" ? pieces.get(at) ?? String(at) : String(at));
  const line = ({ label, expression, value }) => el("tr", {}, ...(label ? [el("th", { scope: "row" }, label), el("td", {}, expression)] : [el("td", { class: "last", colspan: 2 }, expression)]), el("td", { class: "equals" }, "="), el("td", { class: "number" }, show(value)));
  const lines = (list) => (list.length ? [el("table", { class: "lines" }, el("tbody", {}, ...list.map(line)))] : []);
  const parts = [
    el("h3", {}, "How one number is computed"),
    el("p", { class: "chosen" }, symbolOf(operand), el("span", { class: "at" }, index.length ? `[${describeIndex(operand, index, names)}]` : ""), el("span", { class: "equals" }, "="), el("b", {}, show(cell.value ?? map.value(...map.placeOf(index))))),
    ...lines(cell.before),
  ];
  if (cell.absent) parts.push(absentSlice(cell.absent));
  else if (cell.terms.length || cell.factors.length) parts.push(termTable(cell, position));
  else if (!cell.before.length) parts.push(el("p", { class: "soft" }, "Nothing reads this number: its gradient is zero."));
  const note = packed.rounded ? [el("p", { class: "fine" }, "The numbers of this file are rounded, so results differ in the last digits.")] : [];
  return [...parts, ...lines(cell.after), ...note];
}

/** Returns the text about a row or column of a large table that is neither embedded nor served. */
const absentSlice = ({ axis, place }) => el("p", {}, axis
  ? `Computed from all ${facts.axes.V ? "tokens of the vocabulary" : "rows"}: column ${place} of the matrix. ` : `Computed from row ${place} of the matrix, the row of a token that is neither correct nor among the most probable. `, absentText());

/** Returns the head of a column of factors; a text is for readers that skip formulas. */
function symbolHead(factor) {
  const symbol = symbolOf(factor);
  if (typeof factor === "string") return el("th", { scope: "col" }, symbol);
  symbol.setAttribute("aria-hidden", "true");
  const name = math(factor.symbol).textContent;
  return el("th", { scope: "col" }, symbol, el("span", { class: "heard" }, isGradient(factor) ? `∂L/∂${name || "y"}` : name || "factor"));
}

/** Returns the terms of a sum over the vocabulary, the largest first. */
const byLikelihood = (cell) => cell.terms.toSorted((one, other) => Math.abs(other.value) - Math.abs(one.value));

function termTable(cell, position) {
  const isProduct = cell.factors.length > 1 || cell.sumLabel;
  const head = el("tr", {}, cell.axis ? el("th", { scope: "col" }, letterText(cell.axis)) : el("td", {}),
    ...cell.factors.flatMap((factor, n) => [...(n ? [el("td", { class: "sign" }, "×")] : []), symbolHead(factor)]),
    ...(isProduct ? [el("td", {}), el("th", { scope: "col" }, cell.sumLabel ?? "product")] : []));
  const row = (term) => el("tr", {}, el("th", { scope: "row" }, term.label ? stepLink(term.label) : position(term.at)),
    ...term.factors.flatMap((factor, n) => [...(n ? [el("td", { class: "sign" }, "×")] : []), el("td", { class: "number" }, show(factor))]),
    ...(isProduct ? [el("td", { class: "equals" }, "="), el("td", { class: "number" }, show(term.value))] : []));
  const width = 1 + cell.factors.length * 2 - 1 + (isProduct ? 1 : 0);
  const few = cell.terms.length <= FEW + 2 ? cell.terms.length : FEW;
  const terms = cell.axis === "V" && cell.terms.length > few ? byLikelihood(cell) : cell.terms;
  const body = el("tbody", {}, ...terms.slice(0, few).map(row));
  const rest = terms.length - few;
  const foot = el("tfoot", {});
  if (rest > 0) {
    const more = el("button", { class: "more", click: () => { more.closest("tr").remove(); body.append(...terms.slice(few, 600).map(row)); } }, `… ${rest.toLocaleString("en")} more`);
    const sum = total(terms.slice(few).map((term) => term.value));
    foot.append(el("tr", {}, el("td", { colspan: width }, more), el("td", { class: "number soft" }, show(sum))));
  }
  for (const one of cell.plus) foot.append(el("tr", {}, el("td", { colspan: width }, el("span", { class: "soft" }, "plus "), math(one.operand.symbol)), el("td", { class: "number" }, show(one.value))));
  const sum = total(cell.terms.map((term) => term.value)) + total(cell.plus.map((one) => one.value));
  if (cell.terms.length + cell.plus.length > 1) foot.append(el("tr", { class: "sum" }, el("th", { scope: "row", colspan: width }, "sum"), el("td", { class: "number" }, show(sum))));
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Terms of the sum" }, el("table", { class: "terms" }, el("thead", {}, head), body, foot));
}

const caption = (symbol, part, axes) => el("span", {}, symbol, " ", shapeText(part, axes),
  facts.tensors[part.tensor]?.rows ? el("span", { class: "shape" }, `, of which ${facts.tensors[part.tensor].rows.length} rows: the tokens of this text and the most probable ones`) : null);

/** Returns the most probable tokens at each position. */
function probabilityTable() {
  const hasBefore = facts.tokens.T?.length === facts.labels.length;
  const heads = [...(hasBefore ? ["After"] : []), "Correct token", "Most probable"];
  const name = (n) => (hasBefore ? [el("th", { scope: "row" }, el("bdi", {}, facts.tokens.T[n])), el("td", {}, el("bdi", {}, facts.labels[n]))] : [el("th", { scope: "row" }, el("bdi", {}, facts.labels[n]))]);
  return el("section", {}, el("h3", {}, "Most probable tokens"),
    el("p", { class: "soft" }, "The softmax of each row of logits. The correct token is marked."),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Most probable tokens" }, el("table", { class: "tokens" },
      el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...facts.probabilities.map((row, n) => el("tr", {}, ...name(n),
        el("td", {}, el("span", { class: "guesses" }, ...row.slice(0, 5).map(({ token, p }) => {
          const bar = el("span", { class: "level" });
          bar.style.width = `${Math.max(1, p * 100)}%`;
          return el("span", { class: token === facts.labels[n] ? "guess right" : "guess" }, el("bdi", {}, token), el("small", {}, p < 0.0005 ? "<0.001" : p.toFixed(3)), bar);
        })))))))));
}

/** Returns the page of a step whose numbers are neither embedded nor served: formulas and shapes alone. */
async function absentPage(step, tab) {
  const lines = tab === "forward" ? [step.formula] : Object.values(step.chain);
  const number = step.section.match(/ layer (\d+)$/)?.[1];
  const page = el("div", { class: "step" }, heading(step, tab), el("div", { class: "columns" },
    el("div", { class: "main" },
      tab === "backward" ? gradientOverview(step) : null,
      ...lines.map((line) => formulaBox(line)),
      step.note ? el("p", { class: "note" }, titled(step.note)) : null,
      symbolTable(step),
      el("p", { class: "absent" }, "The numbers of ", el("b", {}, step.section), " are missing. ", absentText(),
        number ? el("span", {}, " To write them to a file, add ", el("code", {}, `--layers ${number}`), ".") : null)),
    await side(step, new Maps(step))));
  return { page, maps: null };
}

async function forwardPage(step) {
  if (absentParts.has(step.section)) return absentPage(step, "forward");
  const view = await viewOf(step), maps = new Maps(step);
  const explain = isReadable(view) ? (index) => cellOf(view, index) : null;
  const inputs = view.inputs.map((input) => maps.add(input, `Input ${input.role}`, caption(math(input.symbol), input, input.axes), null, { maxHeight: 240, isText: input.role === "t" }));
  const output = view.y.shape.length
    ? maps.add(view.y, "Output", caption(math(step.output.symbol), step.output), explain, { isLogarithmic: step.kind === "softmax" && step.output.axes.at(-1) === "V" })
    : el("p", { class: "scalar" }, math(step.output.symbol), " = ", el("b", {}, view.y.values ? show(view.y.values[0]) : "?"));
  const isLogits = ["Output", "Probabilities", "Loss"].includes(step.section) && (step.kind === "cross_entropy" || step.output.axes.at(-1) === "V");
  const page = el("div", { class: "step" }, heading(step, "forward"),
    el("div", { class: "columns" },
      el("div", { class: "main" },
        formulaBox(step.formula),
        step.note ? el("p", { class: "note" }, titled(step.note)) : null,
        symbolTable(step),
        ...maps.leads(),
        el("section", { class: "maps" }, el("h3", {}, "Result"), output),
        isNarrow.matches ? maps.aside : null,
        el("section", { class: "maps" }, el("h3", {}, "Computed from"), ...inputs),
        isLogits ? probabilityTable() : null),
      await side(step, maps)));
  if (view.y.shape.length) maps.chooseLargest(undefined, step.kind === "linear" ? view.w.rows : null);
  else if (explain) maps.aside.replaceChildren(...arithmetic({ operand: view.y }, [], forwardCell(view, []), maps.names));
  return { page, maps };
}

const USED = {
  linear: ["x", "w"], matmul: ["x", "w"], multiply: ["x", "w"], divide: ["x", "w"], layer_norm: ["x", "w"], rms_norm: ["x", "w"],
  softmax: ["y"], masked_fill: ["m"], relu: ["x"], gelu: ["x"], silu: ["x"], tanh: ["x"], cross_entropy: ["x", "t"], embedding: ["t"],
};

function normLine(input, values) {
  const norm = input.gradient_norm === null || input.gradient_norm === undefined ? "" : `Norm ${show(input.gradient_norm)}`;
  if (!input.parameter || !values || input.rows) return norm;
  const own = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
  return `Computed in this page from ∂L/∂y and the input. Norm ${show(own)}; recorded by autograd: ${show(input.gradient_norm)}`;
}

async function backwardPage(step) {
  if (absentParts.has(step.section)) return absentPage(step, "backward");
  const view = await viewOf(step), maps = new Maps(step), paths = pathsOf(step);
  const gradients = await Promise.all(view.inputs.map((input) => gradientOf(view, input)));
  const hasFlow = step.output.gradient !== null;
  const sections = [];
  view.inputs.forEach((input, n) => {
    const line = step.chain[input.role];
    if (!hasFlow || (!line && input.gradient === null)) return;
    const explain = view.dy.values && isReadable(view) && hasBackward(view.kind, input.role) ? (index) => cellOf(view, index, input) : null;
    const isProduct = input.parameter && step.kind === "linear" && !gradients[n].values;
    sections.push(el("section", { class: "maps" },
      el("h3", {}, `Gradient with respect to the ${input.parameter ? "parameter" : "input"} `, math(input.symbol)),
      line ? formulaBox(line, "formula small") : null,
      maps.add(gradients[n], "Gradient of an input", caption(gradientMath(input.symbol), input), explain, { absent: isProduct ? "Too large to be computed in the page; it is the product of the two tensors in the formula." : undefined }),
      el("p", { class: "fine" }, normLine(input, gradients[n].values))));
  });
  for (const input of hasFlow ? view.inputs.filter((one) => one.paths) : []) sections.push(await sharedSection(step, input, maps));
  const arrival = hasFlow && step.output.shape.length ? maps.add(view.dy, "Gradient of the output", caption(gradientMath(step.output.symbol), step.output), paths.length > 1 && view.dy.values ? (index) => pathsCell(step, index) : null) : null;
  const used = (USED[step.kind] ?? []).map((role) => view[role]).filter((part) => part?.shape.length)
    .map((part) => maps.add(part, "Value of the forward pass", caption(math(part.symbol), part), null, { maxHeight: 220, isText: part.role === "t" }));
  const page = el("div", { class: "step" }, heading(step, "backward"),
    el("div", { class: "columns" },
      el("div", { class: "main" },
        gradientOverview(step),
        ...maps.leads(),
        el("section", { class: "maps" }, el("h3", {}, "Gradient with respect to the output"), arrivalText(step, paths), arrival),
        ...sections.slice(0, 1), isNarrow.matches ? maps.aside : null, ...sections.slice(1),
        used.length ? el("section", { class: "maps" }, el("h3", {}, "Values of the forward pass that these gradients need"), ...used) : null,
        step.note ? el("p", { class: "note" }, titled(step.note)) : null),
      await side(step, maps)));
  maps.chooseLargest(maps.maps.find((map) => map.explain && map.frame));
  return { page, maps };
}

function arrivalText(step, paths) {
  if (step.output.gradient === null) return el("p", {}, "No gradient flows through this step.");
  if (!step.readers.length) return el("p", {}, "Backpropagation starts here: the gradient of the loss with respect to itself is 1.");
  const link = ({ step: other, input }) => el("li", {}, stepLink(other, "backward"), el("span", { class: "soft" }, ` norm ${show(input.gradient_norm)}`));
  if (paths.length === 1) return el("p", {}, "One step reads the output: ", stepLink(paths[0].step, "backward"), `. Norm ${show(step.output.gradient_norm)}.`);
  return el("div", {}, el("p", {}, `${paths.length} paths lead back to the output; their gradients add up to the one below, of norm ${show(step.output.gradient_norm)}:`), el("ul", { class: "paths" }, ...paths.map(link)));
}

const ORDERS = "Without residual connections, gradients shrink from layer to layer. With post-norm, those of the last layers are the largest, by which Xiong et al. (2020) explain why training starts with a warm-up; deep models show it best: transformer plot gradients, and question 4 of docs/how-to/inspect.md.";

/** Returns the chart of gradient norms along the path. */
function gradientOverview(step) {
  const own = facts.steps.toReversed().filter((one) => one.output.gradient_norm !== null)
    .map((one) => ({ label: `${sectionOf.get(one.id).number} ${one.title}`, norm: one.output.gradient_norm, step: one.id, section: one.section }));
  const variants = [{ name: "this model", values: own }, ...facts.gradient_norms.slice(1)];
  const holder = fitted((width) => {
    const { values } = variants[state.variant];
    if (values === own) return normChart(own, width, { current: step.id, onPick: (id) => go("backward", id) });
    return el("div", {}, normChart(values, width, { reference: own }), el("p", { class: "fine" }, "In grey: this model. ", ORDERS));
  });
  const buttons = variants.map((variant, n) => el("button", {
    "aria-pressed": String(n === state.variant), click: (event) => {
      state.variant = n;
      for (const button of event.target.parentElement.children) button.setAttribute("aria-pressed", String(button === event.target));
      holder.redraw();
    },
  }, variant.name));
  return el("figure", { class: "overview" },
    el("figcaption", {}, el("b", {}, "Gradient norms along the path, from the loss"), variants.length > 1 ? el("span", { class: "leads", role: "group", "aria-label": "Model" }, ...buttons) : null), holder);
}
