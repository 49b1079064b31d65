// The facts of the page and the numbers of its tensors.

const facts = JSON.parse(document.getElementById("facts").textContent);
for (const step of facts.steps) {
  step.formula = facts.formulas[step.formula];
  for (const role of Object.keys(step.chain)) step.chain[role] = facts.formulas[step.chain[role]];
  for (const part of [...step.inputs, step.output]) part.symbol = facts.formulas[part.symbol];
}
const packed = JSON.parse(document.getElementById("packed").textContent);
window.INSPECTOR = JSON.parse(document.getElementById("inspector").textContent);

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

/** Returns the bytes of a text in base 85, five characters for four of them. */
function bytesOf(text) {
  const digits = new Uint8Array(128);
  for (let n = 0; n < 85; n += 1) digits[ALPHABET.charCodeAt(n)] = n;
  const padding = (5 - (text.length % 5)) % 5, padded = text + "~".repeat(padding);
  const bytes = new Uint8Array((padded.length / 5) * 4);
  for (let from = 0, to = 0; from < padded.length; from += 5, to += 4) {
    let word = 0;
    for (let n = 0; n < 5; n += 1) word = word * 85 + digits[padded.charCodeAt(from + n)];
    bytes[to] = word / 16777216;
    bytes[to + 1] = word / 65536;
    bytes[to + 2] = word / 256;
    bytes[to + 3] = word;
  }
  return bytes.subarray(0, bytes.length - padding);
}

/** Returns the embedded numbers; they are stored as deflated planes of bytes, then matrices of int8, in base 85. */
async function unpack() {
  const text = document.getElementById("numbers").textContent.trim();
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const { count } = packed;
  const words = new Uint32Array(count);
  for (let n = 0; n < count; n += 1) {
    words[n] = planes[n] | (planes[count + n] << 8) | (planes[2 * count + n] << 16) | (planes[3 * count + n] << 24);
  }
  return { floats: new Float32Array(words.buffer), bytes: new Int8Array(planes.buffer, 4 * count) };
}

/** Returns numbers that are stored as int8 with a scale for each row. */
function dequantized({ floats, bytes }, [start, scales, columns], size) {
  const values = new Float32Array(size);
  for (let n = 0; n < size; n += 1) values[n] = bytes[start + n] * floats[scales + Math.floor(n / columns)];
  return values;
}

/** Returns the tensors of a step. */
const tensorsOf = (step) => [...step.inputs, step.output].flatMap((part) => [part.tensor, part.gradient]).concat(step.attributes.origin ?? []).filter((id) => id !== null);

/** Titles of the parts of the model whose numbers are neither embedded nor served. */
const absentParts = new Set(window.INSPECTOR.served ? [] : facts.steps.filter((step) => tensorsOf(step).some((id) => packed.places[id] === -1)).map((step) => step.section));

const numbers = unpack();
const known = new Map();

/** Returns the numbers of a tensor, or null where they are neither embedded nor served. */
async function tensor(id) {
  if (!known.has(id)) {
    const reading = read(id);
    known.set(id, reading);
    reading.catch(() => known.delete(id)); // so that it is asked for again
  }
  return known.get(id);
}

async function read(id) {
  const place = packed.places[id], { shape, rows } = facts.tensors[id], size = product(rows ? [rows.length, ...shape.slice(1)] : shape);
  if (place === -1) return ask(id);
  return Array.isArray(place) ? dequantized(await numbers, place, size) : (await numbers).floats.subarray(place, place + size);
}

/** Asks the server for a tensor, or for one row or column of it. */
async function ask(id, slice = "") {
  if (!window.INSPECTOR.served) return null;
  const reply = await answerOf(`tensor/${facts.pass}/${id}?token=${encodeURIComponent(window.INSPECTOR.token)}${slice}`);
  return new Float32Array(await reply.arrayBuffer());
}

/** Returns the answer of the server to a request; what is said to the user otherwise is the message of the error. */
async function answerOf(address, request) {
  const reply = await fetch(address, request).catch(() => {
    throw new Error("The server does not answer. Start transformer inspect again, and open the address that it prints.");
  });
  if (reply.ok) return reply;
  if (reply.status === 403) throw new Error("This page is from an earlier server. Open the address that transformer inspect has printed.");
  const { error } = await reply.json().catch(() => ({}));
  throw new Error(error ? `${capital(error)}.` : `The server answered with the error ${reply.status}. Reload the page.`);
}

const slices = new Map(); // tensor -> rows and columns of a large table, beyond those that the page has

/** Returns what an operand has more if it is a large table: numbers and names of the rows that are there. */
function tablePart(id) {
  const { rows, names } = facts.tensors[id] ?? {};
  if (!rows) return {};
  if (!slices.has(id)) slices.set(id, [new Map(), new Map()]);
  return { rows, names, places: new Map(rows.map((row, place) => [row, place])), slices: slices.get(id) };
}

/** Returns the row (axis 0) or column (axis 1) of a large table that the arithmetic of a number reads, or null. */
function sliceRead(view, index, input) {
  if (!view.w?.rows || view.kind !== "linear") return null;
  if (input) return input.role === "x" ? { axis: 1, place: index.at(-1) } : null;
  return view.w.places.has(index.at(-1)) ? null : { axis: 0, place: index.at(-1) };
}

/** Returns the arithmetic of a number: forward, or backward of an input; `absent` is what it would need. */
async function cellOf(view, index, input) {
  const needed = sliceRead(view, index, input);
  if (needed) {
    const { axis, place } = needed, there = view.w.slices[axis];
    if (!there.has(place)) {
      const values = await ask(view.w.tensor, `&${axis ? "column" : "row"}=${place}`);
      if (!values) return complete({ absent: needed });
      there.set(place, values);
    }
  }
  return input ? backwardCell(view, input, index) : forwardCell(view, index);
}

const ELEMENTWISE = ["add", "subtract", "multiply", "divide", "masked_fill"];

/** Names axes without a letter by those of the output that they are aligned with. */
function axesOf(step, input) {
  if (step.kind === "cross_entropy" && input.role === "t") return [step.inputs[0].axes[0]];
  if (!ELEMENTWISE.includes(step.kind)) return input.axes;
  const offset = step.output.shape.length - input.shape.length;
  return input.axes.map((letter, axis) =>
    letter || (input.shape[axis] === step.output.shape[axis + offset] ? step.output.axes[axis + offset] : ""));
}

const operand = (part, key, values, axes = part.axes) => ({ ...part, key, values, axes, ...tablePart(part.tensor) });

/** Returns the operands of a step with their numbers: by role, and `inputs`, `y`, `dy` and `origin`. */
async function viewOf(step) {
  const read = await Promise.all(step.inputs.map((input) => tensor(input.tensor)));
  const inputs = step.inputs.map((input, place) => operand(input, String(place), read[place], axesOf(step, input)));
  const view = { id: step.id, kind: step.kind, attributes: step.attributes, inputs };
  for (const input of inputs) view[input.role] ??= input;
  view.y = operand(step.output, "y", await tensor(step.output.tensor));
  const dy = step.output.gradient === null ? null : await tensor(step.output.gradient);
  view.dy = operand(step.output, "dy", dy);
  if (step.kind === "rearrange") {
    view.origin = { values: await tensor(step.attributes.origin) };
  }
  return view;
}

const isReadable = (view) =>
  view.inputs.every((input) => input.values) && (view.kind !== "rearrange" || Boolean(view.origin.values));

/** Returns the gradient of an input along this step's path: the recorded one, or that of a parameter, computed here. */
async function gradientOf(view, input) {
  const place = { ...input, key: `d${input.key}` };
  if (input.gradient !== null) return { ...place, values: await tensor(input.gradient) };
  const isComputable = input.parameter && view.dy.values && isReadable(view) && hasBackward(view.kind, input.role);
  return { ...place, values: isComputable ? cachedGradient(view, input) : null };
}

const MAX_PRODUCTS = 2e8;
const computed = new Map();

function cachedGradient(view, input) {
  const key = `${view.id}.${input.key}`;
  const rows = view.dy.values.length / view.dy.shape.at(-1);
  if (view.kind === "linear" && product(input.rows ? [input.rows.length, input.shape[1]] : input.shape) * rows > MAX_PRODUCTS) return null;
  if (!computed.has(key)) {
    if (computed.size > 8) computed.delete(computed.keys().next().value);
    computed.set(key, parameterGradient(view, input));
  }
  return computed.get(key);
}

/** Returns the gradients of a step's output by reader; they add up to its whole gradient. */
const pathsOf = (step) =>
  [...new Set(step.readers)].flatMap((reader) =>
    facts.steps[reader].inputs
      .filter((input) => input.tensor === step.output.tensor && !input.parameter && input.gradient !== null)
      .map((input) => ({ step: facts.steps[reader], input })));

/** Returns the arithmetic of a number of the gradient of an output that several steps read. */
async function pathsCell(step, index) {
  const paths = pathsOf(step);
  const values = await Promise.all(paths.map(({ input }) => tensor(input.gradient)));
  const terms = paths.map((path, n) => {
    const value = values[n][flatten(step.output.shape, index)];
    return { at: n, label: path.step, factors: [value], value, reads: [] };
  });
  return complete({ axis: "", factors: ["path"], terms, value: total(terms.map((term) => term.value)) });
}

/** What tests and consoles may call. */
window.inspector = {
  facts, tensor, ready: numbers.then(() => true),
  cellForward: async (id, index) => cellOf(await viewOf(facts.steps[id]), index),
  cellBackward: async (id, role, index) => {
    const view = await viewOf(facts.steps[id]);
    return cellOf(view, index, typeof role === "number" ? view.inputs[role] : view[role]);
  },
  sharedGradient: async (id, place) => sharedGradient((await viewOf(facts.steps[id])).inputs[place]),
  cellPaths: (id, index) => pathsCell(facts.steps[id], index),
  parameterGradient: async (id, role) => {
    const view = await viewOf(facts.steps[id]);
    return parameterGradient(view, view[role]);
  },
};
