// The arithmetic of one cell, forward and backward. Pure functions over operands: {key, shape, axes, values}.
//
// A cell is {value, before, factors, terms, plus, after}: lines before a sum, the terms of the sum, what is added to
// it, and lines after it. A term or line lists in `reads` what it read, as pairs of operand and index.

const product = (shape) => shape.reduce((total, size) => total * size, 1);
const range = (count) => Array.from({ length: count }, (_, index) => index);
function flatten(shape, index) {
  let flat = 0;
  for (let axis = 0; axis < index.length; axis += 1) flat = flat * shape[axis] + index[axis];
  return flat;
}
function unflatten(shape, flat) {
  const index = new Array(shape.length);
  for (let axis = shape.length - 1, rest = flat; axis >= 0; axis -= 1) {
    index[axis] = rest % shape[axis];
    rest = Math.floor(rest / shape[axis]);
  }
  return index;
}

/** Returns a number of an operand; of a large table, only some rows are there, and the slices that were asked for. */
function at(operand, index) {
  if (!operand.rows) return operand.values[flatten(operand.shape, index)];
  const [row, column] = index, place = operand.places.get(row);
  if (place !== undefined) return operand.values[place * operand.shape[1] + column];
  return operand.slices[0].get(row)?.[column] ?? operand.slices[1].get(column)?.[row];
}
function total(numbers) {
  let sum = 0;
  for (const number of numbers) sum += number;
  return sum;
}
const mean = (numbers) => total(numbers) / numbers.length;

/** Shows a number in a few characters. */
function show(number) {
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
  if (number === 0) return "0";
  const size = Math.abs(number);
  const text = Number.isInteger(number) && size < 1e6 ? String(size)
    : size < 1e-3 || size >= 1e6 ? size.toExponential(2).replace("e-", "e−").replace("e+", "e")
    : size.toFixed(size < 10 ? 4 : size < 1000 ? 3 : 1);
  return number < 0 ? `−${text}` : text;
}
const enclosed = (number) => (number < 0 ? `(${show(number)})` : show(number));

/** Returns the index that a broadcast operand is read at where its result is at `index`. */
function broadcast(operand, index) {
  const offset = index.length - operand.shape.length;
  return operand.shape.map((size, axis) => (size === 1 ? 0 : index[axis + offset]));
}

/** Returns all indices of a result that read the element `index` of a broadcast operand. */
function readersOf(operand, index, shape) {
  const offset = shape.length - operand.shape.length;
  let found = [[]];
  shape.forEach((size, axis) => {
    const own = axis - offset;
    const choices = own < 0 || (operand.shape[own] === 1 && size > 1) ? range(size) : [index[own]];
    found = found.flatMap((start) => choices.map((choice) => [...start, choice]));
  });
  return found;
}

/** Returns the cell of a sum of products; each pair is [position, read, read, ...]. */
function sumOfProducts(axis, pairs, plus = [], scale = 1) {
  const terms = pairs.map(([position, ...reads]) => {
    const factors = reads.map(([operand, index]) => at(operand, index));
    return { at: position, factors, value: factors.reduce((a, b) => a * b, scale), reads };
  });
  const added = plus.map(([operand, index]) => ({ operand, value: at(operand, index), reads: [[operand, index]] }));
  const factors = pairs.length ? pairs[0].slice(1).map(([operand]) => operand) : [];
  return { axis, factors, terms, plus: added, value: total(terms.map((term) => term.value)) + total(added.map((one) => one.value)) };
}

/** Returns the cell of a single line. */
const oneLine = (label, expression, value, reads) => ({ before: [{ label, expression, value, reads }], value });

function erf(x) {
  if (Math.abs(x) < 2) { // Taylor series
    let term = x, sum = x;
    for (let n = 1; n < 60; n += 1) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0; // continued fraction of the complement
  for (let n = 60; n > 0; n -= 1) fraction = n / 2 / (Math.abs(x) + fraction);
  return Math.sign(x) * (1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / (Math.abs(x) + fraction));
}
const normalCdf = (x) => 0.5 * (1 + erf(x / Math.SQRT2));
const normalDensity = (x) => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const tanhInside = (x) => Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);

const ACTIVATIONS = {
  relu: { text: "max(0, x)", f: (x) => Math.max(0, x), slope: (x) => (x > 0 ? 1 : 0), slopeText: "[x > 0]" },
  tanh: { text: "tanh(x)", f: Math.tanh, slope: (x) => 1 - Math.tanh(x) ** 2, slopeText: "1 − tanh²(x)" },
  silu: {
    text: "x / (1 + e^(−x))", f: (x) => x * sigmoid(x),
    slope: (x) => sigmoid(x) * (1 + x * (1 - sigmoid(x))), slopeText: "s (1 + x (1 − s)), s = 1 / (1 + e^(−x))",
  },
  gelu: {
    text: "x Φ(x)", f: (x) => x * normalCdf(x), slope: (x) => normalCdf(x) + x * normalDensity(x),
    slopeText: "Φ(x) + x φ(x)",
  },
  "gelu tanh": {
    text: "x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))", f: (x) => (x / 2) * (1 + Math.tanh(tanhInside(x))),
    slope: (x) => {
      const inner = Math.tanh(tanhInside(x));
      return 0.5 * (1 + inner) + (x / 2) * (1 - inner ** 2) * Math.sqrt(2 / Math.PI) * (1 + 3 * 0.044715 * x * x);
    },
    slopeText: "(1 + tanh v)/2 + x/2 (1 − tanh² v) v′",
  },
};
const activation = (v) => ACTIVATIONS[v.kind === "gelu" && v.attributes.approximate === "tanh" ? "gelu tanh" : v.kind];

const SIGNS = { add: "+", subtract: "−", multiply: "·", divide: "/" };
const RESULTS = {
  add: (a, b) => a + b, subtract: (a, b) => a - b, multiply: (a, b) => a * b, divide: (a, b) => a / b,
};
const attributeNumber = (v) => Number(String(v.attributes.number).replace("inf", "Infinity"));

/** Returns index and numbers of the row (along the last axis) that an index lies in. */
function rowOf(operand, index) {
  const lead = index.slice(0, -1);
  const reads = range(operand.shape.at(-1)).map((column) => [operand, [...lead, column]]);
  return { reads, numbers: reads.map(([, place]) => at(operand, place)) };
}

/** Writes out the mean of many numbers by its first terms; `power` is what each term is raised to. */
function meanOf(numbers, power = "") {
  const terms = numbers.slice(0, 3).map((number) => `${enclosed(number)}${power}`), more = numbers.length - terms.length;
  return `(${terms.join(" + ")}${more ? ` + ${more} more` : ""}) / ${numbers.length}`;
}

/** Returns mean (0 for the root mean square), standard deviation and normalized numbers of a row. */
function normalized(v, row) {
  const centre = v.kind === "layer_norm" ? mean(row) : 0;
  const variance = mean(row.map((x) => (x - centre) ** 2));
  const deviation = Math.sqrt(variance + v.attributes.eps);
  return { centre, variance, deviation, hats: row.map((x) => (x - centre) / deviation) };
}

function softmaxOf(row) {
  const largest = Math.max(...row);
  const powers = row.map((x) => Math.exp(x - largest));
  const sum = total(powers);
  return { largest, powers, sum, shares: powers.map((power) => power / sum) };
}

function smoothedTarget(v, row) {
  const eps = v.attributes.smoothing || 0, size = v.x.shape.at(-1), label = v.t.values[row];
  return (column) => (column === label ? 1 - eps : 0) + eps / size;
}

/** Returns the input and index that an element of a rearranged tensor comes from. */
function originOf(v, flat) {
  let place = v.origin.values[flat];
  for (const input of v.inputs) {
    if (input.role === "t" || input.role === "m") continue;
    const size = product(input.shape);
    if (place < size) return [input, unflatten(input.shape, place)];
    place -= size;
  }
  return null;
}

/** Returns all elements that are summed into an element of the output of `sum` or `mean`. */
function reducedFrom(v, index) {
  const count = v.x.shape.length;
  const dims = v.attributes.dim == null ? range(count) : [v.attributes.dim].flat().map((dim) => (dim + count) % count);
  let next = 0;
  let found = [[]];
  v.x.shape.forEach((size, axis) => {
    const reduced = dims.includes(axis);
    const kept = !reduced || v.y.shape.length === count ? index[next] : null;
    if (kept !== null) next += 1;
    const choices = reduced ? range(size) : [kept];
    found = found.flatMap((start) => choices.map((choice) => [...start, choice]));
  });
  return found;
}

function forwardElementwise(v, index) {
  const [x, w] = [at(v.x, broadcast(v.x, index)), v.w ? at(v.w, broadcast(v.w, index)) : attributeNumber(v)];
  const reads = [[v.x, broadcast(v.x, index)], ...(v.w ? [[v.w, broadcast(v.w, index)]] : [])];
  return oneLine("", `${show(x)} ${SIGNS[v.kind]} ${enclosed(w)}`, RESULTS[v.kind](x, w), reads);
}

function forwardNorm(v, index) {
  const row = rowOf(v.x, index), column = index.at(-1);
  const { centre, variance, deviation, hats } = normalized(v, row.numbers);
  const x = row.numbers[column], alpha = at(v.w, [column]), beta = v.b ? at(v.b, [column]) : 0, eps = v.attributes.eps;
  const value = alpha * hats[column] + beta;
  const isLayer = v.kind === "layer_norm";
  const before = isLayer ? [
    { label: "μ", expression: meanOf(row.numbers), value: centre, reads: row.reads },
    { label: "σ²", expression: meanOf(row.numbers.map((number) => number - centre), "²"), value: variance },
  ] : [{ label: "mean(x²)", expression: meanOf(row.numbers, "²"), value: variance, reads: row.reads }];
  const top = isLayer ? `(${show(x)} − ${enclosed(centre)})` : show(x);
  before.push(
    { label: "x̂", expression: `${top} / √(${show(variance)} + ${show(eps)})`, value: hats[column] },
    {
      label: v.b ? "α x̂ + β" : "α x̂", expression: `${show(alpha)} · ${enclosed(hats[column])}${v.b ? ` + ${enclosed(beta)}` : ""}`, value,
      reads: [[v.w, [column]], ...(v.b ? [[v.b, [column]]] : [])],
    },
  );
  return { before, value, deviation };
}

const FORWARD = {
  linear: (v, index) => {
    const lead = index.slice(0, -1), unit = index.at(-1);
    const pairs = range(v.w.shape[1]).map((k) => [k, [v.x, [...lead, k]], [v.w, [unit, k]]]);
    return sumOfProducts(v.x.axes.at(-1), pairs, v.b ? [[v.b, [unit]]] : []);
  },
  matmul: (v, index) => {
    const [row, column] = index.slice(-2);
    const [left, right] = [v.x, v.w].map((o) => broadcast({ shape: o.shape.slice(0, -2) }, index.slice(0, -2)));
    const pairs = range(v.x.shape.at(-1)).map((k) => [k, [v.x, [...left, row, k]], [v.w, [...right, k, column]]]);
    return sumOfProducts(v.x.axes.at(-1), pairs);
  },
  embedding: (v, index) => {
    const place = index.slice(0, -1), id = at(v.t, place), cell = [id, index.at(-1)];
    return oneLine("", `row ${id}, column ${cell[1]} of the table`, at(v.w, cell), [[v.t, place], [v.w, cell]]);
  },
  add: forwardElementwise, subtract: forwardElementwise, multiply: forwardElementwise, divide: forwardElementwise,
  layer_norm: forwardNorm, rms_norm: forwardNorm,
  softmax: (v, index) => {
    const { reads, numbers } = rowOf(v.x, index), column = index.at(-1);
    const { largest, powers, sum, shares } = softmaxOf(numbers);
    const terms = reads.map((read, k) => ({ at: k, factors: [numbers[k]], value: powers[k], reads: [read] }));
    return {
      axis: v.x.axes.at(-1), factors: [v.x], terms, plus: [], sumLabel: "e^(s − m)",
      before: [{ label: "m", expression: "largest number of the row", value: largest }],
      after: [{ label: "", expression: `${show(powers[column])} / ${show(sum)}`, value: shares[column] }],
      value: shares[column],
    };
  },
  masked_fill: (v, index) => {
    const place = broadcast(v.m, index), masked = at(v.m, place) !== 0;
    const reads = [[v.m, place], [v.x, broadcast(v.x, index)]];
    const value = masked ? attributeNumber(v) : at(...reads[1]);
    return oneLine("", masked ? "masked" : "not masked: unchanged", value, reads);
  },
  sum: (v, index) => sumOfProducts("", reducedFrom(v, index).map((place, n) => [n, [v.x, place]])),
  mean: (v, index) => {
    const places = reducedFrom(v, index), cell = sumOfProducts("", places.map((place, n) => [n, [v.x, place]]));
    const value = cell.value / places.length;
    return { ...cell, value, after: [{ label: "", expression: `${show(cell.value)} / ${places.length}`, value }] };
  },
  rearrange: (v, index) => {
    const [input, place] = originOf(v, flatten(v.y.shape, index));
    return oneLine("", `copied from the input at [${place.join(", ")}]`, at(input, place), [[input, place]]);
  },
  cross_entropy: (v) => {
    const [count] = v.x.shape;
    const terms = range(count).map((row) => {
      const { reads, numbers } = rowOf(v.x, [row, 0]), { shares } = softmaxOf(numbers), q = smoothedTarget(v, row);
      const loss = -total(shares.map((p, column) => (q(column) ? q(column) * Math.log(p) : 0)));
      return { at: row, factors: [loss], value: loss / count, reads: [reads[0], reads.at(-1), [v.t, [row]]] };
    });
    return {
      axis: v.x.axes[0], factors: ["−Σ q log p"], terms, plus: [], sumLabel: "divided by n", before: [],
      value: total(terms.map((term) => term.value)),
    };
  },
};

const forwardActivation = (v, index) => {
  const x = at(v.x, index), { text, f } = activation(v);
  return oneLine("", `${text}, x = ${show(x)}`, f(x), [[v.x, index]]);
};
for (const kind of ["relu", "gelu", "silu", "tanh"]) FORWARD[kind] = forwardActivation;
