// Marks corresponding sentences and words in a text and its translation.

export class Highlight {
  #sides;
  #links = { source: new Map(), target: new Map() };
  #marked = [];

  constructor(source, target) {
    this.#sides = { source, target };
  }

  // Takes pairs of word numbers: [word of the source, word of the translation].
  setLinks(pairs) {
    this.clear();
    this.#links = { source: new Map(), target: new Map() };
    for (const [source, target] of pairs) {
      append(this.#links.source, source, target);
      append(this.#links.target, target, source);
    }
  }

  // Marks a word (or null) and its sentence (or null) on a side, and what corresponds to them on the other side.
  show(side, sentence, word) {
    this.clear();
    const other = side === "source" ? "target" : "source";
    if (sentence) {
      const selector = `[data-sentence="${sentence.dataset.sentence}"]`;
      this.#mark(this.#sides.source.querySelectorAll(selector), "marked-sentence");
      this.#mark(this.#sides.target.querySelectorAll(selector), "marked-sentence");
    }
    if (!word) return;
    this.#mark([word], "marked-word");
    if (!word.dataset.word) return;
    for (const number of this.#links[side].get(Number(word.dataset.word)) ?? []) {
      this.#mark(this.#sides[other].querySelectorAll(`[data-word="${number}"]`), "marked-word");
    }
  }

  clear() {
    for (const [element, name] of this.#marked) element.classList.remove(name);
    this.#marked = [];
  }

  #mark(elements, name) {
    for (const element of elements) {
      element.classList.add(name);
      this.#marked.push([element, name]);
    }
  }
}

function append(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}
