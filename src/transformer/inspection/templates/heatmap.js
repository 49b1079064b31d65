// Heat maps: a matrix of numbers on a canvas that draws only what is in view, so that size does not matter.

const heatMaps = new Set();
let colours = null;

const probe = document.body.appendChild(el("span", { hidden: true }));

/** Returns a colour of the style sheet as `rgb(...)`, in the theme that is shown. */
function cssColour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** Returns a colour of the style sheet as its red, green and blue. */
const channelsOf = (name) => cssColour(name).match(/\d+/g).map(Number);

/** Returns 511 colours from the lowest number over zero (number 255) to the highest. */
function colourTable() {
  if (colours) return colours;
  const stops = ["negative", "negative-half", "zero", "positive-half", "positive"].map(channelsOf);
  const ramp = new Uint32Array(511);
  for (let n = 0; n < 511; n += 1) {
    const place = (n / 510) * 4, stop = Math.min(3, Math.floor(place)), part = place - stop;
    const [red, green, blue] = stops[stop].map((from, channel) => Math.round(from + (stops[stop + 1][channel] - from) * part));
    ramp[n] = 0xff000000 | (blue << 16) | (green << 8) | red;
  }
  const [red, green, blue] = channelsOf("masked");
  colours = {
    ramp, masked: (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0, text: cssColour("text"), soft: cssColour("soft"),
    page: cssColour("page"), mark: cssColour("mark"),
  };
  return colours;
}

const scales = new WeakMap();

/** Returns the largest number that a colour stands for; few outliers do not make everything else pale. */
function scaleOf(values) {
  if (!scales.has(values)) scales.set(values, measuredScale(values));
  return scales.get(values);
}

function measuredScale(values) {
  const stride = Math.max(1, Math.floor(values.length / 4000));
  const sizes = [];
  let largest = 0, isSigned = false;
  for (let n = 0; n < values.length; n += 1) {
    const size = Math.abs(values[n]);
    if (!(size < Infinity)) continue;
    if (size > largest) largest = size;
    if (values[n] < 0) isSigned = true;
    if (n % stride === 0) sizes.push(size);
  }
  sizes.sort((a, b) => a - b);
  const high = sizes[Math.floor(sizes.length * 0.995)] || largest;
  return { largest, limit: largest > 2.5 * high ? Math.sqrt(high * largest) : largest, isSigned };
}

/** The smallest probability that has a colour, where equal steps of colour are equal ratios. */
const LEAST = 1e-6;

const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const measuring = document.createElement("canvas").getContext("2d");
function textWidth(text) {
  measuring.font = FONT;
  return measuring.measureText(text).width;
}

class HeatMap {
  /**
   * @param {object} operand Operand with numbers.
   * @param {object} options title (Node), tokens (letter, size, isRow -> labels or undefined), lead (letter -> position),
   *   onSelect (index -> void), describe (operand, index -> text), maxHeight, isText, isLogarithmic.
   */
  constructor(operand, options) {
    Object.assign(this, { operand, options, lead: [], scroll: { x: 0, y: 0 }, cursor: null, chosen: null, marks: null });
    this.element = el("figure", { class: "heat" });
    this.status = el("span", { class: "status" });
    if (options.title) this.element.append(el("figcaption", {}, options.title));
    if (!operand.values) {
      this.element.append(el("p", { class: "absent" }, options.absent ?? absentText()));
      return;
    }
    this.scale = scaleOf(operand.values);
    const shape = operand.shape;
    this.isScalar = shape.length === 0;
    this.rows = operand.rows?.length ?? (shape.length > 1 ? shape.at(-2) : 1);
    this.columns = shape.length ? shape.at(-1) : 1;
    this.rowLabels = operand.names ?? (shape.length > 1 ? options.tokens(operand.axes.at(-2), this.rows, true) : undefined);
    this.columnLabels = shape.length ? options.tokens(operand.axes.at(-1), this.columns) : undefined;
    this.build();
    this.setLead(options.lead);
    heatMaps.add(this);
  }

  build() {
    this.canvas = el("canvas", {});
    this.space = el("div", { class: "heat-space" });
    this.frame = el("div", {
      class: "heat-frame", tabindex: "0", role: "application", "aria-roledescription": "heat map",
      "aria-label": `${this.options.name}, ${this.rows} rows, ${this.columns} columns. Arrow keys move, Enter shows the arithmetic.`,
    }, this.canvas, this.space);
    this.status.setAttribute("role", "status");
    this.extent = el("span", { class: "extent" });
    this.element.append(this.frame, el("div", { class: "heat-foot" }, this.options.isText ? null : this.scaleBar(), this.extent, this.status));
    this.frame.addEventListener("scroll", () => {
      this.scroll = { x: this.frame.scrollLeft, y: this.frame.scrollTop };
      this.options.onScroll?.(this);
      this.redraw();
    });
    this.frame.addEventListener("click", (event) => this.choose(this.cellAt(event)));
    this.frame.addEventListener("pointermove", (event) => this.point(this.cellAt(event)));
    this.frame.addEventListener("pointerleave", () => this.point(null));
    this.frame.addEventListener("keydown", (event) => this.onKey(event));
    this.frame.addEventListener("focus", () => { if (!this.cursor) this.moveTo(...(this.chosen ?? [0, 0])); else this.redraw(); });
    this.frame.addEventListener("blur", () => this.redraw());
    this.observer = new ResizeObserver(([entry]) => {
      const width = entry.contentRect.width;
      if (Math.abs(width - (this.room ?? 0)) >= 1) this.layout(width);
    });
    this.observer.observe(this.element);
  }

  remove() {
    this.observer?.disconnect();
    heatMaps.delete(this);
  }

  scaleBar() {
    const { limit, largest, isSigned } = this.scale;
    if (this.options.isLogarithmic) return el("span", { class: "scale" }, `≤ ${show(LEAST)}`, el("span", { class: "bar" }), "1, logarithmic");
    const cut = limit < largest;
    const end = (sign) => (cut ? `${sign < 0 ? "≤" : "≥"} ` : "") + show(sign * limit);
    const bar = el("span", { class: `bar ${isSigned ? "signed" : ""}` });
    const title = cut ? `Largest size: ${show(largest)}` : undefined;
    return el("span", { class: "scale", title }, isSigned ? end(-1) : "0", bar, end(1));
  }

  /** Chooses which matrix of the leading axes is shown. */
  setLead(lead) {
    if (!this.frame) return;
    const { shape, axes } = this.operand;
    this.lead = shape.slice(0, -2).map((size, axis) => Math.min(lead[leadKey(axes, axis)] ?? 0, size - 1));
    this.start = this.lead.reduce((flat, at, axis) => flat * shape[axis] + at, 0) * this.rows * this.columns;
    this.redraw();
  }

  value(row, column) { return this.operand.values[this.start + row * this.columns + column]; }
  index(row, column) {
    const count = this.operand.shape.length;
    if (this.operand.rows) return [this.operand.rows[row], column];
    return count ? [...this.lead, row, column].slice(-count) : [];
  }

  /** Returns the row and the column in which an index is shown; the row is undefined if it is not there. */
  placeOf(index) {
    if (this.operand.rows) return [this.operand.places.get(index[0]), index[1]];
    return index.length > 1 ? index.slice(-2) : [0, index[0] ?? 0];
  }

  layout(width) {
    if (!width) return;
    this.room = width;
    const widest = (labels) => Math.ceil(labels.reduce((most, label) => Math.max(most, textWidth(shortened(label))), 0));
    this.left = this.rowLabels ? Math.min(200, width * 0.45, widest(this.rowLabels)) + 8 : this.rows > 1 ? 30 : 1;
    const room = Math.max(40, width - this.left - 4);
    const fit = room / this.columns;
    this.cellWidth = this.options.isText ? 46 : this.columnLabels ? Math.max(14, Math.min(30, Math.floor(fit))) : Math.min(26, fit >= 6 ? Math.floor(fit) : Math.max(3, fit));
    this.isRotated = this.columnLabels && widest(this.columnLabels) > this.cellWidth - 4;
    this.top = this.isRotated ? Math.min(80, widest(this.columnLabels)) + 8 : 18;
    const limit = this.options.maxHeight ?? 340;
    this.cellHeight = this.rowLabels ? Math.max(16, Math.min(26, this.columnLabels ? this.cellWidth : 18))
      : this.rows === 1 ? 22 : Math.max(3, Math.min(18, Math.floor((limit - this.top) / this.rows)));
    if (this.rowLabels && this.rows > 40) this.cellHeight = this.columnLabels ? Math.min(this.cellWidth, 14) : 14;
    const inner = { width: this.left + this.columns * this.cellWidth + 1, height: this.top + this.rows * this.cellHeight + 1 };
    this.width = Math.min(width, Math.ceil(inner.width));
    this.height = Math.min(Math.max(limit, this.rowLabels && this.rows <= 40 ? inner.height : 0), Math.ceil(inner.height));
    const bar = inner.width > width ? 12 : 0;
    Object.assign(this.frame.style, { width: `${this.width + (inner.height > this.height ? 12 : 0)}px`, height: `${this.height + bar}px`, maxWidth: "100%" });
    Object.assign(this.space.style, { width: `${inner.width}px`, height: `${inner.height - this.height}px` });
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    Object.assign(this.canvas.style, { width: `${this.width}px`, height: `${this.height}px` });
    this.revealMarks();
    this.redraw();
  }

  redraw() {
    if (this.waiting || !this.cellWidth) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  visible() {
    const { x: scrollLeft, y: scrollTop } = this.scroll;
    const columns = [Math.floor(scrollLeft / this.cellWidth), Math.ceil((scrollLeft + this.width - this.left) / this.cellWidth)];
    const rows = [Math.floor(scrollTop / this.cellHeight), Math.ceil((scrollTop + this.height - this.top) / this.cellHeight)];
    return { x: scrollLeft, y: scrollTop, columns: [columns[0], Math.min(columns[1], this.columns)], rows: [rows[0], Math.min(rows[1], this.rows)] };
  }

  draw() {
    if (!this.cellWidth) return;
    const seen = this.visible(), context = this.canvas.getContext("2d"), palette = colourTable();
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, this.width - this.left, this.height - this.top);
    context.clip();
    context.translate(this.left - seen.x, this.top - seen.y);
    this.drawCells(context, seen, palette);
    this.drawMarks(context, palette);
    context.restore();
    this.drawLabels(context, seen, palette);
    this.showExtent(context, seen, palette);
  }

  /** Shades the edges beyond which there is more, and says which part is shown. */
  showExtent(context, seen, palette) {
    const parts = [];
    const sides = [
      ["columns", seen.columns, this.columns, seen.x, this.columns * this.cellWidth - (this.width - this.left), [this.left, this.top, this.width, this.top]],
      ["rows", seen.rows, this.rows, seen.y, this.rows * this.cellHeight - (this.height - this.top), [this.left, this.top, this.left, this.height]],
    ];
    for (const [name, [first, end], count, scrolled, most, [x0, y0, x1, y1]] of sides) {
      if (most < 2) continue;
      parts.push(`${name} ${(first + 1).toLocaleString("en")} to ${end.toLocaleString("en")} of ${count.toLocaleString("en")}`);
      const shade = (isShown, fromX, fromY, toX, toY) => {
        if (!isShown) return;
        const gradient = context.createLinearGradient(fromX, fromY, toX, toY);
        gradient.addColorStop(0, palette.soft);
        gradient.addColorStop(1, "transparent");
        context.fillStyle = gradient;
        context.globalAlpha = 0.35;
        context.fillRect(Math.min(fromX, toX), Math.min(fromY, toY), fromX === toX ? this.width - this.left : 14, fromX === toX ? 14 : this.height - this.top);
        context.globalAlpha = 1;
      };
      const isAcross = name === "columns";
      shade(scrolled > 1, x0, y0, isAcross ? x0 + 14 : x0, isAcross ? y0 : y0 + 14);
      shade(scrolled < most - 1, x1, y1, isAcross ? x1 - 14 : x1, isAcross ? y1 : y1 - 14);
    }
    const text = parts.length ? `scroll: ${parts.join(", ")}` : "";
    if (this.extent.textContent !== text) this.extent.textContent = text;
  }

  drawCells(context, seen, palette) {
    const [firstColumn, lastColumn] = seen.columns, [firstRow, lastRow] = seen.rows;
    const wide = lastColumn - firstColumn, high = lastRow - firstRow;
    if (wide <= 0 || high <= 0) return;
    const image = new ImageData(wide, high), pixels = new Uint32Array(image.data.buffer);
    const factor = 255 / (this.scale.limit || 1);
    const shade = this.options.isLogarithmic ? (value) => 255 * Math.max(0, 1 - Math.log(value) / Math.log(LEAST)) : (value) => value * factor;
    for (let row = 0; row < high; row += 1) {
      for (let column = 0; column < wide; column += 1) {
        const value = this.value(firstRow + row, firstColumn + column);
        pixels[row * wide + column] = Number.isFinite(value)
          ? palette.ramp[Math.max(0, Math.min(510, Math.round(255 + shade(value))))] : palette.masked;
      }
    }
    if (this.options.isText) {
      this.drawTexts(context, seen, palette);
      return;
    }
    const small = new OffscreenCanvas(wide, high);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, firstColumn * this.cellWidth, firstRow * this.cellHeight, wide * this.cellWidth, high * this.cellHeight);
    if (this.cellWidth < 9 || this.cellHeight < 9) return;
    context.fillStyle = palette.page;
    for (let column = firstColumn + 1; column < lastColumn; column += 1) context.fillRect(column * this.cellWidth - 0.5, firstRow * this.cellHeight, 1, high * this.cellHeight);
    for (let row = firstRow + 1; row < lastRow; row += 1) context.fillRect(firstColumn * this.cellWidth, row * this.cellHeight - 0.5, wide * this.cellWidth, 1);
  }

  drawTexts(context, seen, palette) {
    context.font = FONT;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = palette.text;
    for (let column = seen.columns[0]; column < seen.columns[1]; column += 1) {
      const x = (column + 0.5) * this.cellWidth;
      for (let row = seen.rows[0]; row < seen.rows[1]; row += 1) context.fillText(show(this.value(row, column)), x, (row + 0.5) * this.cellHeight);
    }
  }

  drawMarks(context, palette) {
    const box = (rows, columns, colour, width) => {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect(columns[0] * this.cellWidth, rows[0] * this.cellHeight,
        (columns[1] - columns[0] + 1) * this.cellWidth, (rows[1] - rows[0] + 1) * this.cellHeight);
    };
    if (this.marks) box(this.marks.rows, this.marks.columns, palette.mark, 2);
    if (this.chosen) box([this.chosen[0], this.chosen[0]], [this.chosen[1], this.chosen[1]], palette.text, 2.5);
    if (this.cursor && document.activeElement === this.frame) {
      context.setLineDash([3, 2]);
      box([this.cursor[0], this.cursor[0]], [this.cursor[1], this.cursor[1]], palette.text, 1.5);
      context.setLineDash([]);
    }
  }

  drawLabels(context, seen, palette) {
    context.font = FONT;
    context.textBaseline = "middle";
    const strong = this.cursor ?? this.chosen;
    const label = (labels, at) => (labels ? shortened(labels[at]) : String(at));
    const every = (labels, size, room) => (labels ? Math.max(1, Math.ceil(12 / size)) : niceStep(room / size));
    if (this.rows > 1) {
      context.textAlign = "right";
      const step = every(this.rowLabels, this.cellHeight, 18);
      for (let row = Math.ceil(seen.rows[0] / step) * step; row < seen.rows[1]; row += step) {
        const y = this.top + (row + 0.5) * this.cellHeight - seen.y;
        if (y < this.top + 2 && seen.y > 0) continue;
        context.fillStyle = strong?.[0] === row ? palette.text : palette.soft;
        context.fillText(label(this.rowLabels, row), this.left - 6, y);
      }
    }
    const step = every(this.columnLabels, this.cellWidth, 34);
    for (let column = Math.ceil(seen.columns[0] / step) * step; column < seen.columns[1]; column += step) {
      const x = this.left + (column + 0.5) * this.cellWidth - seen.x;
      if (x < this.left) continue;
      context.fillStyle = strong?.[1] === column ? palette.text : palette.soft;
      context.save();
      context.translate(x, this.top - 6);
      if (this.isRotated) context.rotate(-Math.PI / 2);
      context.textAlign = this.isRotated ? "left" : "center";
      context.fillText(label(this.columnLabels, column), 0, this.isRotated ? 0 : -2);
      context.restore();
    }
  }

  cellAt(event) {
    const box = this.frame.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left + this.frame.scrollLeft) / this.cellWidth);
    const row = Math.floor((event.clientY - box.top - this.top + this.frame.scrollTop) / this.cellHeight);
    const isInside = event.clientX - box.left >= this.left && event.clientY - box.top >= this.top;
    return isInside && row >= 0 && row < this.rows && column >= 0 && column < this.columns ? [row, column] : null;
  }

  point(cell) {
    const place = cell ?? (document.activeElement === this.frame ? this.cursor : null);
    this.status.textContent = place
      ? `${this.options.describe(this.operand, this.index(...place))}: ${show(this.value(...place))}` : "";
    markPatches(place ? tokensAt(this.operand, this.index(...place)) : []);
  }

  choose(cell) {
    if (!cell) return;
    this.cursor = cell;
    this.options.onSelect?.(this.index(...cell), this);
    this.point(cell);
    this.redraw();
  }

  /** Outlines a chosen cell, and what an arithmetic read; the column is that of a cell chosen in another map. */
  mark(chosen, reads, column = null) {
    if (!this.frame) return;
    this.chosen = chosen;
    this.chosenColumn = column;
    this.marks = null;
    for (const place of reads) {
      const lead = place.slice(0, -2);
      if (lead.some((at, axis) => at !== this.lead[axis])) continue;
      const [row, column] = this.placeOf(place);
      if (row === undefined) continue;
      this.marks ??= { rows: [row, row], columns: [column, column] };
      const { rows, columns } = this.marks;
      this.marks = { rows: [Math.min(rows[0], row), Math.max(rows[1], row)], columns: [Math.min(columns[0], column), Math.max(columns[1], column)] };
    }
    this.revealMarks();
    this.redraw();
  }

  /** Scrolls to the chosen cell, or to the row, column or cell that was read. */
  revealMarks() {
    if (!this.cellWidth) return;
    if (this.chosen) this.reveal(...this.chosen);
    else if (this.marks) {
      const { rows, columns } = this.marks, own = this.chosenColumn;
      this.reveal(rows[0], own !== null && own >= columns[0] && own <= columns[1] ? own : columns[0]);
    }
  }

  moveTo(row, column) {
    this.cursor = [Math.max(0, Math.min(this.rows - 1, row)), Math.max(0, Math.min(this.columns - 1, column))];
    this.reveal(...this.cursor);
    this.point(this.cursor);
    this.redraw();
  }

  /** Scrolls to a cell that is out of view. */
  reveal(row, column) {
    const x = column * this.cellWidth, y = row * this.cellHeight;
    const nearest = (now, start, size, room) => (start < now ? start : start + size > now + room + 1 ? start + size - room : now);
    const next = {
      x: nearest(this.scroll.x, x, this.cellWidth, this.width - this.left),
      y: nearest(this.scroll.y, y, this.cellHeight, this.height - this.top),
    };
    if (next.x !== this.scroll.x || next.y !== this.scroll.y) this.frame.scrollTo(next.x, next.y);
  }

  onKey(event) {
    const [row, column] = this.cursor ?? [0, 0];
    const far = event.ctrlKey ? 10 : 1;
    const moves = {
      ArrowUp: [row - far, column], ArrowDown: [row + far, column], ArrowLeft: [row, column - far],
      ArrowRight: [row, column + far], Home: [row, 0], End: [row, this.columns - 1],
      PageUp: [row - 10, column], PageDown: [row + 10, column],
    };
    if (event.key === "Enter" || event.key === " ") this.choose([row, column]);
    else if (moves[event.key]) this.moveTo(...moves[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

const shortened = (label) => (label.length > 14 && !label.startsWith("reads ") ? `${label.slice(0, 13)}…` : label);
const niceStep = (least) => [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((step) => step >= least) ?? 10000;
const leadKey = (axes, axis) => axes[axis] || `axis ${axis + 1}`;
const absentText = () => el("span", {}, "Not in this file: open with ", el("code", {}, "transformer inspect MODEL TEXT"), " to see it.");
