// Pictures: the image that a model reads, with its patches, and attention from one token laid over it.

const patchName = (token) => facts.tokens.T[token];

/** Returns the image as a small canvas, with the normalization of its pixels undone. */
async function readPicture() {
  const { tensor: id, mean: means, deviation } = facts.picture, [, channels, height, width] = facts.tensors[id].shape;
  const values = await tensor(id);
  if (!values) return null;
  const image = new ImageData(width, height), size = height * width;
  const level = (channel, n) => 255 * (values[channel * size + n] * (deviation[channel] ?? deviation[0]) + (means[channel] ?? means[0]));
  for (let n = 0; n < size; n += 1) {
    for (let colour = 0; colour < 3; colour += 1) image.data[4 * n + colour] = Math.round(level(channels === 3 ? colour : 0, n));
    image.data[4 * n + 3] = 255;
  }
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
let pictureRead = null;
const pictureImage = () => (pictureRead ??= readPicture());

/** A picture with the grid of its patches; tokens are numbered as along the axis T, the class token first. */
class Picture {
  /**
   * @param {OffscreenCanvas} image The image.
   * @param {object} options size (pixels of the longer side), weights (one for each token, drawn over the patches),
   *   largest (the weight of the full colour), grid (whether to draw borders), onPoint and onSelect (token -> void).
   */
  constructor(image, options) {
    Object.assign(this, { image, options, marked: [], query: 0 });
    [this.rows, this.columns] = facts.picture.grid;
    this.scale = options.size / Math.max(image.width, image.height);
    this.canvas = el("canvas", { class: "picture" });
    this.canvas.picture = this;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(image.width * this.scale * ratio);
    this.canvas.height = Math.round(image.height * this.scale * ratio);
    this.canvas.style.width = `${Math.round(image.width * this.scale)}px`;
    this.canvas.style.aspectRatio = `${image.width} / ${image.height}`;
    this.draw();
  }

  /** Marks the patches of tokens, e.g. of those that the pointer is on. */
  mark(tokens) {
    if (String(tokens) === String(this.marked)) return;
    this.marked = tokens;
    this.draw();
  }

  place(token) {
    const [height, width] = facts.picture.patch;
    return [((token - 1) % this.columns) * width, Math.floor((token - 1) / this.columns) * height, width, height];
  }

  draw() {
    const context = this.canvas.getContext("2d"), scale = this.canvas.width / this.image.width;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, 0, 0);
    if (this.options.weights) this.drawWeights(context);
    if (this.options.grid) this.drawGrid(context, scale);
    const box = (token, colour, width) => {
      if (token < 1) return;
      context.strokeStyle = colour;
      context.lineWidth = width / scale;
      context.strokeRect(...this.place(token));
    };
    for (const token of [this.query, ...this.marked]) {
      box(token, cssColour("picture-dark"), 5);
      box(token, cssColour(token === this.query ? "picture-light" : "picture-mark"), 2.5);
    }
  }

  drawWeights(context) {
    const { weights, largest } = this.options;
    context.fillStyle = cssColour("picture-light");
    context.globalAlpha = 0.35; // pale, so that the weights stand out of dark and light pictures
    context.fillRect(0, 0, this.image.width, this.image.height);
    context.fillStyle = cssColour("attention");
    for (let token = 1; token < weights.length; token += 1) {
      context.globalAlpha = 0.9 * Math.min(1, weights[token] / (largest || 1));
      context.fillRect(...this.place(token));
    }
    context.globalAlpha = 1;
  }

  drawGrid(context, scale) {
    const [height, width] = facts.picture.patch, [bottom, right] = [this.rows * height, this.columns * width];
    context.fillStyle = cssColour("picture-grid");
    for (let column = 0; column <= this.columns; column += 1) context.fillRect(column * width - 0.5 / scale, 0, 1 / scale, bottom);
    for (let row = 0; row <= this.rows; row += 1) context.fillRect(0, row * height - 0.5 / scale, right, 1 / scale);
  }

  /** Returns the token of the patch that a pointer is on, or null. */
  tokenAt(event) {
    const box = this.canvas.getBoundingClientRect(), [height, width] = facts.picture.patch;
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.image.width / width);
    const row = Math.floor(((event.clientY - box.top) / box.height) * this.image.height / height);
    return row >= 0 && row < this.rows && column >= 0 && column < this.columns ? 1 + row * this.columns + column : null;
  }
}

/** Marks the patches of tokens in all pictures. */
function markPatches(tokens) {
  if (facts.picture) for (const canvas of document.querySelectorAll("canvas.picture")) canvas.picture.mark(tokens);
}

/** Returns the tokens that an index of an operand belongs to; a row of the patches alone counts without the class token. */
function tokensAt(operand, index) {
  const count = facts.tokens.T?.length;
  return index.flatMap((at, axis) => {
    if (operand.axes[axis] === "T" && operand.shape[axis] === count) return [at];
    return axis === index.length - 2 && !operand.axes[axis] && operand.shape[axis] === count - 1 ? [at + 1] : [];
  });
}

/** Returns a picture with its patches, whose pointer marks them wherever the picture is shown; null without one. */
async function pictureFigure(size) {
  if (!facts.picture) return null;
  const image = await pictureImage();
  if (!image) return null;
  const picture = new Picture(image, { size, grid: true }), [rows, columns] = facts.picture.grid;
  const [height, width] = facts.picture.patch, caption = `${rows} × ${columns} patches of ${height} × ${width} pixels`;
  const status = el("small", {});
  picture.canvas.setAttribute("role", "img");
  picture.canvas.setAttribute("aria-label", `The picture, in ${rows} times ${columns} patches`);
  picture.canvas.addEventListener("pointermove", (event) => {
    const token = picture.tokenAt(event);
    markPatches(token === null ? [] : [token]);
    status.textContent = token === null ? caption : `patch ${patchName(token)}`;
  });
  picture.canvas.addEventListener("pointerleave", () => { markPatches([]); status.textContent = caption; });
  status.textContent = caption;
  return el("figure", { class: "pictured" }, picture.canvas, el("figcaption", {}, status));
}

/** Returns the rows of attention weights from a token: one for each layer and head that computes that row. */
async function attentionFrom(token) {
  return Promise.all(facts.attention.map(async (entry) => {
    const values = await tensor(entry.tensor), [heads, rows, columns] = facts.tensors[entry.tensor].shape.slice(-3);
    const row = rows === 1 ? 0 : token; // the last layer computes the class token alone
    const isComputed = rows > 1 || token === 0;
    return {
      entry, values, isComputed,
      heads: values && isComputed ? range(heads).map((head) => values.subarray((head * rows + row) * columns, (head * rows + row + 1) * columns)) : [],
    };
  }));
}

const largestOf = (weights) => Math.max(...weights.subarray(1));

/** The attention from one token over the picture: layer by head, and one head large. */
class PictureAttention {
  constructor(image) {
    Object.assign(this, { image, token: 0, cursor: 0, layer: facts.attention.length - 1, head: 0 });
    this.grid = el("div", { class: "grids" });
    this.large = el("div", { class: "large-picture" });
  }

  get from() { return this.token ? `patch ${patchName(this.token)}` : "the class token"; }

  async update() {
    this.layers = await attentionFrom(this.token);
    if (!this.layers[this.layer].heads.length) this.layer = Math.max(0, this.layers.findLastIndex((one) => one.heads.length));
    this.grid.replaceChildren(...this.layers.map((layer, n) => el("section", {}, el("h4", {}, `Layer ${layer.entry.layer}`), this.thumbs(layer, n))));
    this.drawLarge();
  }

  async choose(changes, selector) {
    Object.assign(this, changes);
    await this.update();
    this.section.querySelector(selector)?.focus({ preventScroll: true });
  }

  picture(weights, options) {
    const picture = new Picture(this.image, { weights, largest: largestOf(weights), ...options });
    picture.query = this.token;
    picture.draw();
    return picture;
  }

  thumbs({ entry, values, isComputed, heads }, layer) {
    if (!heads.length) return el("p", { class: "absent" }, values && !isComputed ? "Computed for the class token alone: the label needs no other." : absentText());
    return el("div", { class: "thumbs" }, ...heads.map((weights, head) => el("button", {
      class: "thumb", "data-place": `${layer} ${head}`, "aria-pressed": String(layer === this.layer && head === this.head),
      "aria-label": `Attention from ${this.from}, layer ${entry.layer}, head ${head + 1}`,
      click: () => this.choose({ layer, head }, `[data-place="${layer} ${head}"]`),
    }, this.picture(weights, { size: 84 }).canvas, el("small", {}, `head ${head + 1}`))));
  }

  drawLarge() {
    const { entry, heads } = this.layers[this.layer], weights = heads[this.head];
    if (!weights) return this.large.replaceChildren();
    const picture = this.picture(weights, { size: 336, grid: true }), status = el("span", { class: "status", role: "status" });
    const point = (token) => {
      markPatches(token ? [token] : []);
      status.textContent = token ? `patch ${patchName(token)}: ${show(weights[token])}` : "";
    };
    const frame = el("div", {
      class: "frame", tabindex: "0", role: "application", "aria-roledescription": "picture",
      "aria-label": `Attention from ${this.from}. Arrow keys move over the patches, Enter shows the attention from a patch, Escape that from the class token.`,
      click: (event) => this.ask(picture.tokenAt(event)), keydown: (event) => this.onKey(event, picture, point),
      pointermove: (event) => point(picture.tokenAt(event)), pointerleave: () => point(null),
    }, picture.canvas);
    return this.large.replaceChildren(
      el("p", {}, `Layer ${entry.layer}, head ${this.head + 1}, from ${this.from}. `, stepLink(facts.steps[entry.step], "forward")),
      frame,
      el("div", { class: "heat-foot" }, el("span", { class: "scale" }, "0", el("span", { class: "bar overlay" }), show(largestOf(weights))),
        el("span", {}, `to the class token: ${show(weights[0])}`), status),
      this.token ? el("button", { click: () => this.ask(0) }, "From the class token") : el("p", { class: "soft" }, "Choose a patch to see the attention from it."));
  }

  ask(token) {
    if (token !== null) this.choose({ token, cursor: token }, ".frame");
  }

  onKey(event, { rows, columns }, point) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (moves[event.key]) {
      const next = this.cursor ? this.cursor + moves[event.key] : 1;
      if (next >= 1 && next <= rows * columns) this.cursor = next;
      point(this.cursor);
    } else if (event.key === "Enter") this.ask(this.cursor);
    else if (event.key === "Escape") this.ask(0);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** Returns the section of attention over the picture; null without a picture. */
async function pictureAttention() {
  if (!facts.picture) return null;
  const image = await pictureImage();
  if (!image) return null;
  const view = new PictureAttention(image);
  view.section = el("section", {}, el("h3", {}, "From one token to the patches"),
    el("p", {}, "The stronger the colour, the larger the weight; each head has its own scale, up to its largest weight."),
    el("div", { class: "over" }, view.large, view.grid));
  await view.update();
  return view.section;
}
