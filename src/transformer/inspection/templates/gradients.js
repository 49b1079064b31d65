// The chain rule of one number: the gradient of an input from that of the output.

/** Sums over all elements of dy that an element of a broadcast input reaches. */
const backBroadcast = (input, factor) => (v, index) => {
  const places = readersOf(v[input], index, v.dy.shape);
  return factor(v, places, index);
};
const passOn = (scale) => (v, places) => {
  if (places.length > 1) return sumOfProducts("", places.map((place, n) => [n, [v.dy, place]]), [], scale);
  const dy = at(v.dy, places[0]);
  return oneLine("", scale === 1 ? "∂L/∂y, unchanged" : `−${enclosed(dy)}`, scale * dy, [[v.dy, places[0]]]);
};

/** Computes the backward pass of layer normalization (and RMSNorm) for one number of the input. */
function backNorm(v, index) {
  const row = rowOf(v.x, index), upstream = rowOf(v.dy, index), column = index.at(-1);
  const { deviation, hats } = normalized(v, row.numbers);
  const g = upstream.numbers.map((dy, k) => dy * at(v.w, [k]));
  const [first, second] = [v.kind === "layer_norm" ? mean(g) : 0, mean(g.map((one, k) => one * hats[k]))];
  const value = (g[column] - first - hats[column] * second) / deviation;
  const middle = v.kind === "layer_norm" ? ` − ${enclosed(first)}` : "";
  const last = `(${show(g[column])}${middle} − ${enclosed(hats[column])} · ${enclosed(second)})`;
  const before = [
    { label: "s", expression: "√(variance + ε) of the row of x", value: deviation, reads: row.reads },
    { label: "x̂", expression: "normalized x", value: hats[column] },
    { label: "g", expression: "α · ∂L/∂y", value: g[column], reads: [...upstream.reads, [v.w, [column]]] },
    { label: "mean(g)", expression: meanOf(g), value: first },
    { label: "mean(g ⊙ x̂)", expression: meanOf(g.map((one, k) => one * hats[k])), value: second },
    { label: "", expression: `${last} / ${show(deviation)}`, value },
  ].filter((line) => v.kind === "layer_norm" || line.label !== "mean(g)");
  return { before, value };
}

/** Returns the sum over rows of dy, each times the normalized number for the scale of a norm. */
const backRows = (v, column, times) => {
  const lead = v.dy.shape.slice(0, -1);
  const terms = range(product(lead)).map((row) => {
    const place = [...unflatten(lead, row), column], dy = at(v.dy, place);
    if (!times) return { at: row, factors: [dy], value: dy, reads: [[v.dy, place]] };
    const values = rowOf(v.x, place), hat = normalized(v, values.numbers).hats[column];
    return { at: row, factors: [dy, hat], value: dy * hat, reads: [[v.dy, place], [v.x, place]] };
  });
  return {
    axis: v.dy.axes.at(-2), factors: times ? [v.dy, "x̂"] : [v.dy], terms, plus: [],
    value: total(terms.map((term) => term.value)),
  };
};

function backMatmul(v, index, role) {
  const own = v[role], other = v[role === "x" ? "w" : "x"];
  const lead = v.dy.shape.slice(0, -2), [row, column] = index.slice(-2);
  const leads = readersOf({ shape: own.shape.slice(0, -2) }, index.slice(0, -2), lead);
  const pairs = leads.flatMap((place) => {
    const there = broadcast({ shape: other.shape.slice(0, -2) }, place);
    return role === "x"
      ? range(v.dy.shape.at(-1)).map((n) => [n, [v.dy, [...place, row, n]], [other, [...there, column, n]]])
      : range(v.dy.shape.at(-2)).map((n) => [n, [other, [...there, n, row]], [v.dy, [...place, n, column]]]);
  });
  return sumOfProducts(v.dy.axes.at(role === "x" ? -1 : -2), pairs);
}

const BACKWARD = {
  linear: {
    x: (v, index) => sumOfProducts(
      v.dy.axes.at(-1), range(v.w.shape[0]).map((n) => [n, [v.dy, [...index.slice(0, -1), n]], [v.w, [n, index.at(-1)]]]),
    ),
    w: (v, [unit, k]) => {
      const lead = v.dy.shape.slice(0, -1);
      const rows = range(product(lead)).map((row) => [row, unflatten(lead, row)]);
      return sumOfProducts(v.dy.axes.at(-2), rows.map(([row, place]) => [row, [v.dy, [...place, unit]], [v.x, [...place, k]]]));
    },
    b: (v, [unit]) => backRows(v, unit, false),
  },
  matmul: { x: (v, index) => backMatmul(v, index, "x"), w: (v, index) => backMatmul(v, index, "w") },
  embedding: {
    w: (v, [row, column]) => {
      const places = range(v.t.values.length).filter((place) => v.t.values[place] === row);
      return sumOfProducts(v.t.axes.at(-1), places.map((place) => [place, [v.dy, [...unflatten(v.t.shape, place), column]]]));
    },
  },
  add: { x: backBroadcast("x", passOn(1)), w: backBroadcast("w", passOn(1)) },
  subtract: { x: backBroadcast("x", passOn(1)), w: backBroadcast("w", passOn(-1)) },
  multiply: {
    x: backBroadcast("x", (v, places) => v.w
      ? sumOfProducts("", places.map((place, n) => [n, [v.dy, place], [v.w, broadcast(v.w, place)]]))
      : scaled(v, places[0], attributeNumber(v), "·")),
    w: backBroadcast("w", (v, places) =>
      sumOfProducts("", places.map((place, n) => [n, [v.dy, place], [v.x, broadcast(v.x, place)]]))),
  },
  divide: {
    x: backBroadcast("x", (v, places) => {
      if (!v.w) return scaled(v, places[0], attributeNumber(v), "/");
      const value = total(places.map((place) => at(v.dy, place) / at(v.w, broadcast(v.w, place))));
      return oneLine("", "∂L/∂y / w", value, places.flatMap((place) => [[v.dy, place], [v.w, broadcast(v.w, place)]]));
    }),
    w: backBroadcast("w", (v, places, index) => {
      const value = total(places.map((place) => -at(v.dy, place) * at(v.x, broadcast(v.x, place)))) / at(v.w, index) ** 2;
      return oneLine("", "−∂L/∂y · x / w²", value, places.map((place) => [v.dy, place]));
    }),
  },
  layer_norm: { x: backNorm, w: (v, [column]) => backRows(v, column, true), b: (v, [column]) => backRows(v, column, false) },
  rms_norm: { x: backNorm, w: (v, [column]) => backRows(v, column, true) },
  softmax: {
    x: (v, index) => {
      const y = rowOf(v.y, index), dy = rowOf(v.dy, index), column = index.at(-1);
      const cell = sumOfProducts(v.y.axes.at(-1), y.reads.map((read, k) => [k, dy.reads[k], read]));
      const value = y.numbers[column] * (dy.numbers[column] - cell.value);
      const expression = `${show(y.numbers[column])} · (${show(dy.numbers[column])} − ${enclosed(cell.value)})`;
      return { ...cell, value, after: [{ label: "", expression, value }] };
    },
  },
  masked_fill: {
    x: (v, index) => {
      const place = broadcast(v.m, index), masked = at(v.m, place) !== 0;
      return oneLine("", masked ? "masked: the gradient is zero" : "not masked: unchanged", masked ? 0 : at(v.dy, index),
        [[v.m, place], [v.dy, index]]);
    },
  },
  sum: { x: (v, index) => reducedBack(v, index, 1) },
  mean: { x: (v, index) => reducedBack(v, index, product(v.x.shape) / product(v.y.shape)) },
  cross_entropy: {
    x: (v, [row, column]) => {
      const { reads, numbers } = rowOf(v.x, [row, 0]), p = softmaxOf(numbers).shares[column];
      const q = smoothedTarget(v, row)(column), count = v.x.shape[0], value = ((p - q) / count) * at(v.dy, []);
      return {
        before: [
          { label: "p", expression: "softmax of the row", value: p, reads },
          { label: "q", expression: column === v.t.values[row] ? "1 − ε + ε / V: the correct token" : "ε / V", value: q, reads: [[v.t, [row]]] },
          { label: "", expression: `(${show(p)} − ${show(q)}) / ${count}`, value },
        ],
        value,
      };
    },
  },
};

function scaled(v, place, number, sign) {
  const dy = at(v.dy, place);
  return oneLine("", `${show(dy)} ${sign} ${show(number)}`, sign === "·" ? dy * number : dy / number, [[v.dy, place]]);
}

function reducedBack(v, index, count) {
  const places = range(product(v.y.shape)).map((flat) => unflatten(v.y.shape, flat));
  const own = String(index);
  const place = places.find((candidate) => reducedFrom(v, candidate).some((from) => String(from) === own));
  const dy = at(v.dy, place);
  return oneLine("", count === 1 ? "unchanged" : `${show(dy)} / ${count}`, dy / count, [[v.dy, place]]);
}

for (const kind of ["relu", "gelu", "silu", "tanh"]) {
  BACKWARD[kind] = {
    x: (v, index) => {
      const x = at(v.x, index), dy = at(v.dy, index), { slope, slopeText } = activation(v);
      return {
        before: [
          { label: "slope", expression: `${slopeText}, x = ${show(x)}`, value: slope(x), reads: [[v.x, index]] },
          { label: "", expression: `${show(dy)} · ${enclosed(slope(x))}`, value: dy * slope(x), reads: [[v.dy, index]] },
        ],
        value: dy * slope(x),
      };
    },
  };
}

function rearrangeBack(v, input, index) {
  const before = v.inputs.slice(0, v.inputs.indexOf(input)).filter((one) => one.role !== "t" && one.role !== "m");
  const own = total(before.map((one) => product(one.shape))) + flatten(input.shape, index);
  const places = [];
  v.origin.values.forEach((from, flat) => { if (from === own) places.push(unflatten(v.dy.shape, flat)); });
  return sumOfProducts("", places.map((place, n) => [n, [v.dy, place]]));
}

const complete = (cell) => ({ before: [], factors: [], terms: [], plus: [], after: [], axis: "", ...cell });

/** Returns the arithmetic of one number of the output of a step. */
function forwardCell(v, index) {
  return complete(FORWARD[v.kind](v, index));
}

/** Returns the arithmetic of one number of the gradient of an input of a step. */
function backwardCell(v, input, index) {
  return complete(v.kind === "rearrange" ? rearrangeBack(v, input, index) : BACKWARD[v.kind][input.role](v, index));
}

const hasBackward = (kind, role) => kind === "rearrange" || Boolean(BACKWARD[kind]?.[role]);

/** Returns the sums over all rows of dy, each times the normalized row for the scale of a norm: `backRows` of all columns. */
function rowSums(v, width, times) {
  const sums = new Float64Array(width);
  for (let start = 0; start < v.dy.values.length; start += width) {
    const hats = times ? normalized(v, Array.from(v.x.values.subarray(start, start + width))).hats : null;
    for (let k = 0; k < width; k += 1) sums[k] += v.dy.values[start + k] * (hats ? hats[k] : 1);
  }
  return Float32Array.from(sums);
}

/** Returns the whole gradient of a parameter; of a large table, that of the rows that are there. */
function parameterGradient(v, input) {
  const shape = input.rows ? [input.rows.length, input.shape[1]] : input.shape;
  const width = shape.at(-1), result = new Float32Array(product(shape));
  if (v.kind === "linear" && input.role === "w") {
    const units = input.shape[0], rows = v.dy.values.length / units;
    const sums = new Float64Array(width);
    for (let place = 0; place < shape[0]; place += 1) {
      const unit = input.rows ? input.rows[place] : place;
      sums.fill(0);
      for (let row = 0; row < rows; row += 1) {
        const dy = v.dy.values[row * units + unit];
        if (dy) for (let k = 0; k < width; k += 1) sums[k] += dy * v.x.values[row * width + k];
      }
      result.set(sums, place * width);
    }
    return result;
  }
  if (v.kind === "embedding") {
    v.t.values.forEach((token, place) => {
      const row = input.rows ? input.places.get(token) : token;
      for (let k = 0; k < width; k += 1) result[row * width + k] += v.dy.values[place * width + k];
    });
    return result;
  }
  if (shape.length === 1 && ["linear", "layer_norm", "rms_norm"].includes(v.kind)) return rowSums(v, width, input.role === "w");
  for (let flat = 0; flat < result.length; flat += 1) result[flat] = backwardCell(v, input, unflatten(shape, flat)).value;
  return result;
}
