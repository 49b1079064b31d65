// The tabs that show a whole: attention, positions and parameters.

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Draws a small attention map of one head; it is a button that shows the map below. */
function attentionThumb(entry, head, values, choose) {
  const { shape } = facts.tensors[entry.tensor], [rows, columns] = shape.slice(-2);
  const canvas = el("canvas", { width: columns, height: rows });
  const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer);
  const start = head * rows * columns, { limit } = scaleOf(values);
  canvas.redraw = () => {
    const { ramp, masked } = colourTable();
    for (let n = 0; n < rows * columns; n += 1) {
      const value = values[start + n];
      pixels[n] = Number.isFinite(value) ? ramp[255 + Math.round(Math.min(1, Math.max(0, value / limit)) * 255)] : masked;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  canvas.redraw();
  canvas.style.aspectRatio = `${columns} / ${rows}`;
  const isMuted = facts.changes.mute_heads[entry.module]?.includes(head);
  const point = (event) => {
    const box = canvas.getBoundingClientRect(), at = (place, size) => Math.max(0, Math.min(size - 1, Math.floor(place * size)));
    const row = at((event.clientY - box.top) / box.height, rows), column = at((event.clientX - box.left) / box.width, columns);
    canvas.title = `${attends(entry, rows, columns, row, column)}: ${show(values[start + row * columns + column])}`;
  };
  return el("button", { class: "thumb", "aria-label": `${entry.kind}, layer ${entry.layer}, head ${head + 1}`, click: () => choose(entry, head), pointermove: point }, canvas, el("small", {}, `head ${head + 1}${isMuted ? ", muted" : ""}`));
}

/** Says which token attends to which. */
function attends(entry, rows, columns, row, column) {
  return `${(rowsOf(entry.rows, rows) ?? tokensOf(entry.rows, rows))?.[row] ?? row}${writes(entry.rows, rows) ? ":" : ""} attends to ${tokensOf(entry.columns, columns)?.[column] ?? column}`;
}

async function attentionPage() {
  const kinds = Map.groupBy(facts.attention, (entry) => entry.kind);
  const detail = el("section", { class: "maps detail" });
  const thumbs = new Map();
  let map = null;
  const choose = async (entry, head, cell = null) => {
    for (const [key, thumb] of thumbs) thumb.setAttribute("aria-pressed", String(key === `${entry.tensor} ${head}`));
    map?.remove();
    const part = { ...facts.steps[entry.step].output, key: "y", values: await tensor(entry.tensor) };
    map = new HeatMap(part, {
      title: el("span", {}, `${capital(entry.kind)}, layer ${entry.layer}, head ${head + 1}. ${facts.changes.mute_heads[entry.module]?.includes(head) ? "This head is muted: its weights are zero. " : `Rows attend to columns; each row sums to 1. `}`, TABS.forward ? stepLink(facts.steps[entry.step], "forward") : null),
      name: `${entry.kind}, layer ${entry.layer}, head ${head + 1}`, lead: { h: head },
      tokens: (letter, count, isRow) => (isRow && rowsOf(letter, count)) || tokensOf(letter, count),
      describe: (one, index) => attends(entry, ...one.shape.slice(-2), ...index.slice(-2)),
      maxHeight: 560,
    });
    detail.replaceChildren(map.element);
    if (!cell) return;
    map.cursor = map.chosen = cell;
    map.point(cell);
  };
  const groups = await Promise.all([...kinds].map(async ([kind, entries]) => el("section", {}, el("h3", {}, capital(kind)),
    ...await Promise.all(entries.map(async (entry) => {
      const values = await tensor(entry.tensor), { shape } = facts.tensors[entry.tensor];
      const heads = values ? range(shape.at(-3) ?? 1).map((head) => {
        const thumb = attentionThumb(entry, head, values, choose);
        thumbs.set(`${entry.tensor} ${head}`, thumb);
        return thumb;
      }) : [el("p", { class: "absent" }, absentText())];
      return el("div", { class: "layer" }, el("h4", {}, `Layer ${entry.layer}`), el("div", { class: "thumbs" }, ...heads));
    })))));
  const cross = facts.attention.filter((entry) => entry.kind === "cross-attention");
  const page = el("div", { class: "plain" }, el("h2", { tabindex: "-1" }, "Attention"),
    el("p", {}, "The weights of every head, in the order of the layers: the stronger the colour of a cell, the more its row attends to its column. Choose a head to see its tokens and numbers."),
    await pictureAttention(), el("div", { class: "grids" }, ...groups), el("div", { class: "pair" }, detail, cross.length ? await alignment(cross) : null));
  const [kind, layer, head, row, column] = state.place; // e.g. #attention/encoder/5/1, and a cell from 0: /3/2
  const asked = facts.attention.find((entry) => entry.kind.toLowerCase().startsWith(kind) && entry.layer === Number(layer));
  const shown = asked ?? cross.at(-1) ?? facts.attention.at(-1);
  if (shown) await choose(shown, asked ? Number(head) - 1 : 0, row && column ? [Number(row), Number(column)] : null);
  return { page, maps: { remove: () => map?.remove() } };
}

/** Draws which source tokens each target token is translated from: the mean of the heads of cross-attention. */
async function alignment(entries) {
  const holder = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Word alignment" });
  const draw = async (entry) => {
    const values = await tensor(entry.tensor), { shape } = facts.tensors[entry.tensor], [rows, columns] = shape.slice(-2);
    if (!values) return holder.replaceChildren(absentText());
    const heads = values.length / rows / columns;
    const weight = (row, column) => mean(range(heads).map((head) => values[(head * rows + row) * columns + column]));
    const source = tokensOf(entry.columns, columns) ?? range(columns).map(String), target = writes(entry.rows, rows) ?? tokensOf(entry.rows, rows);
    const place = (labels) => {
      let x = 10;
      return labels.map((label) => { const width = textWidth(label) * 1.2 + 18, middle = x + width / 2; x += width; return { label, middle, end: x }; });
    };
    const [top, bottom] = [place(source), place(target)];
    const width = Math.max(top.at(-1).end, bottom.at(-1).end) + 10;
    const shift = (list) => (width - list.at(-1).end - 10) / 2;
    const root = svg("svg", { viewBox: `0 0 ${width} 170`, width, height: 170, role: "img", class: "alignment", "aria-label": "Lines from source tokens to the tokens predicted from them, as thick as the mean weight" });
    bottom.forEach((to, row) => top.forEach((from, column) => {
      const share = weight(row, column);
      if (share < 0.05) return;
      root.append(svg("line", { class: "link", x1: from.middle + shift(top), x2: to.middle + shift(bottom), y1: 30, y2: 140, "stroke-width": 0.5 + 5 * share, "stroke-opacity": Math.min(1, 0.15 + share) }, svg("title", {}, `${to.label} from ${from.label}: ${show(share)}`)));
    }));
    top.forEach((token) => root.append(svg("text", { x: token.middle + shift(top), y: 20, "text-anchor": "middle" }, token.label)));
    bottom.forEach((token) => root.append(svg("text", { x: token.middle + shift(bottom), y: 158, "text-anchor": "middle" }, token.label)));
    holder.replaceChildren(root);
  };
  const buttons = entries.map((entry) => el("button", { "aria-pressed": String(entry === entries.at(-1)), click: (event) => {
    for (const button of event.target.parentElement.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button === event.target));
    draw(entry);
  } }, String(entry.layer)));
  await draw(entries.at(-1));
  return el("section", {}, el("h3", {}, "Word alignment"),
    el("p", { class: "soft" }, "Source tokens are above, predicted tokens below. The thickness of a line shows the cross-attention weight, averaged over the heads of a layer."),
    el("div", { class: "leads", role: "group", "aria-label": "Layer" }, el("span", { class: "soft" }, "Layer"), ...buttons), holder);
}

/** Returns what a model does that adds no vector to the embeddings for each position. */
function otherPositions() {
  const reads = (symbol) => facts.steps.find((one) => one.inputs.some((input) => input.symbol.includes(symbol)));
  const bias = reads("bucket"), step = bias ?? reads("cos");
  if (!step) return el("p", {}, "This model adds no positional encoding.");
  const text = bias ? "It adds a learned bias to the attention scores instead, which depends on the distance between query and key: "
    : "It rotates queries and keys by an angle that grows with the position instead: ";
  return el("p", {}, "This model adds no positional encoding to its embeddings. ", text, stepLink(step, "forward"), ".");
}

async function positionsPage() {
  const table = facts.positions;
  const values = table && await tensor(table.tensor);
  if (!values) return { page: el("div", { class: "plain" }, el("h2", { tabindex: "-1" }, "Positions"), table ? el("p", {}, absentText()) : otherPositions()), maps: null };
  const [count, width] = facts.tensors[table.tensor].shape;
  const name = table.is_learned ? "Learned positions" : "Positional encoding";
  const isPatched = facts.picture && table.is_learned; // the class token comes first
  const map = new HeatMap({ key: "pe", shape: [count, width], axes: ["", ""], values, symbol: "" }, {
    title: el("span", {}, `${name}: one row for each position, one column for each dimension${count < table.count ? `; the first ${count} of ${table.count} positions` : ""}`), name, tokens: () => undefined, lead: {},
    describe: (_, [position, dimension]) => `position ${position}${isPatched ? ` (${position ? `patch ${patchName(position)}` : "class token"})` : ""}, dimension ${dimension}`, maxHeight: 420,
  });
  const chosen = el("input", { type: "text", id: "dimensions", value: [...new Set([0, 1, Math.floor(width / 8), Math.floor(width / 4)])].join(", "), inputmode: "numeric", autocomplete: "off" });
  const curves = fitted((wide) => {
    const list = [...new Set(chosen.value.split(/[^0-9]+/).filter((text) => text).map(Number).filter((one) => one < width))].slice(0, 4);
    const series = list.map((one) => ({ name: `dimension ${one}`, values: range(count).map((row) => values[row * width + one]) }));
    return list.length ? curveChart(series, wide, "Curves of chosen dimensions over positions") : el("p", { class: "soft" }, `Give dimensions from 0 to ${width - 1}.`);
  });
  chosen.addEventListener("input", () => curves.redraw());
  const dot = (a, b) => total(range(width).map((k) => values[a * width + k] * values[b * width + k]));
  const middle = Math.floor(count / 2);
  const distances = [0, middle].map((from) => ({ name: `from position ${from}`, values: range(count).map((to) => dot(from, to)) }));
  const page = el("div", { class: "plain" }, el("h2", { tabindex: "-1" }, "Positions"),
    el("p", {}, "Self-attention alone does not depend on the order of the tokens, so a vector of its own is added to the embedding at each position. ", table.is_learned
      ? `Here the vectors are learned: each row is a parameter.${isPatched ? " Position 0 is the class token; the patches follow, row by row." : ""}`
      : "Here they are sines and cosines, whose frequency falls from dimension to dimension."),
    map.element,
    el("h3", {}, "Curves of dimensions"), el("p", {}, el("label", { for: "dimensions" }, "Dimensions, up to four: "), chosen), curves,
    el("h3", {}, "Dot product of two positions"),
    el("p", { class: "soft" }, table.is_learned
      ? "Nothing forces learned vectors to be ordered: where training has made neighbours similar, the curve is higher near the position itself."
      : "With sines and cosines, it depends on the distance between the positions alone, and is largest at distance 0."),
    fitted((wide) => curveChart(distances, wide, "Dot product with the vector of each position")));
  return { page, maps: map };
}

/** Returns the multiplications of a step's forward pass. */
function multiplications(step) {
  const size = product(step.output.shape);
  if (step.kind === "linear" || step.kind === "matmul") return size * step.inputs[0].shape.at(-1);
  return ["multiply", "divide", "layer_norm", "rms_norm", "softmax"].includes(step.kind) ? size : 0;
}

async function parametersPage() {
  const shares = Object.entries(facts.model.shares).filter(([, value]) => value).map(([name, value]) => ({ name, value }));
  const work = Map.groupBy(facts.steps, (step) => step.block);
  const operations = [...work].map(([name, steps]) => ({ name, value: total(steps.map(multiplications)) })).filter((row) => row.value);
  const stacks = Object.entries(facts.model.layers).map(([name, count]) => (name === "layers" ? `${count} layers` : `${count} ${name} layer${count === 1 ? "" : "s"}`));
  const sizes = Object.entries(facts.model.sizes).map(([name, value]) => el("span", {}, letterText(name.replace("norm_order", "norm")), ` = ${value}`));
  const matrices = new Map();
  for (const step of facts.steps) for (const input of step.inputs) if (input.parameter) {
    const place = step.section;
    matrices.set(place, (matrices.get(place) ?? new Map()).set(input.parameter, product(input.shape)));
  }
  const sections = [...matrices].map(([name, list]) => ({ name, value: total([...list.values()]) }));
  const blockOf = (input) => input.parameter.split(".")[0];
  for (const share of shares) {
    const shared = facts.steps.flatMap((step) => step.inputs).find((input) => input.paths && blockOf(input) === share.name);
    if (shared) share.name = [...new Set(shared.paths.map(([id, place]) => blockOf(facts.steps[id].inputs[place])))].join(" = ");
  }
  const page = el("div", { class: "plain" }, el("h2", { tabindex: "-1" }, "Parameters"),
    el("p", {}, `${facts.model.parameters.toLocaleString("en")} parameters, ${stacks.join(" and ")}. `, el("span", { class: "sizes" }, ...sizes)),
    el("h3", {}, "Parameters by block"), shareBars(shares), el("p", { class: "soft" }, "A shared matrix is counted once."),
    el("h3", {}, "Parameters that each part uses"), shareBars(sections), el("p", { class: "soft" }, "A shared matrix is counted in each part that uses it."),
    el("h3", {}, "Multiplications of this pass by block"), shareBars(operations));
  return { page, maps: null };
}
