// Parameters that several steps use: their whole gradient is a sum of paths.

/** Returns the arithmetic of a number of the whole gradient of a parameter that several steps use. */
async function sharedCell(input, index) {
  const flat = flatten(input.shape, input.rows ? [input.places.get(index[0]), index[1]] : index);
  const terms = (await sharedGradients(input)).map(({ step, values }, n) => ({ at: n, label: step, factors: [values[flat]], value: values[flat], reads: [] }));
  return complete({ axis: "", factors: ["path"], terms, value: total(terms.map((term) => term.value)) });
}

/** Returns the gradients of a shared parameter by the steps that use it; null where numbers are missing. */
async function sharedGradients(input) {
  const found = await Promise.all(input.paths.map(async ([id, place]) => {
    const step = facts.steps[id], view = await viewOf(step);
    return { step, values: (await gradientOf(view, view.inputs[place])).values };
  }));
  return found.every(({ values }) => values) ? found : null;
}

/** Returns the whole gradient of a shared parameter; null where numbers are missing. */
async function sharedGradient(input) {
  const found = await sharedGradients(input);
  if (!found) return null;
  const sum = new Float64Array(found[0].values.length);
  for (const { values } of found) values.forEach((value, n) => { sum[n] += value; });
  return Float32Array.from(sum);
}

/** Returns the whole gradient of a parameter that several steps use, and the steps whose gradients add up to it. */
async function sharedSection(step, input, maps) {
  const values = await sharedGradient(input), sum = { ...input, key: `dsum${input.key}`, values };
  const links = input.paths.map(([id, place]) => el("li", {}, id === step.id ? "this step" : stepLink(facts.steps[id], "backward"),
    el("span", { class: "soft" }, ` norm ${show(facts.steps[id].inputs[place].gradient_norm)}`)));
  return el("section", { class: "maps" }, el("h3", {}, "The whole gradient of ", math(input.symbol)),
    el("p", {}, `${input.paths.length} steps use this parameter. The gradient above is that of one of ${input.paths.length} paths; the optimizer uses their sum, of norm ${show(input.whole_norm)}:`),
    el("ul", { class: "paths" }, ...links),
    values ? maps.add(sum, "Whole gradient of the parameter", caption(gradientMath(input.symbol), input), (index) => sharedCell(input, index)) : null);
}
