// The translation: its sentences, the words that correspond, and other translations of a sentence.

import { translate } from "./api.js";
import { Highlight } from "./highlight.js";
import { fill, sentencePairs } from "./text.js";

const ALTERNATIVES = 4;
const element = (id) => document.getElementById(id);

export class Output {
  #output = element("output");
  #mirror = element("mirror");
  #source = element("source");
  #popup = element("alternatives");
  #highlight = new Highlight(this.#mirror, this.#output);
  #result = null;
  #open = null;
  #request = null;
  #choices = new Map();
  #onChange;

  // `onChange` is called after another translation of a sentence was chosen.
  constructor(onChange) {
    this.#onChange = onChange;
    this.#output.addEventListener("click", (event) => this.#click(event));
    this.#output.addEventListener("keydown", (event) => this.#key(event));
    this.#output.addEventListener("focusin", ({ target }) => {
      this.#highlight.show("target", target.closest(".sentence"), null);
      this.#explain(target.closest(".sentence"));
    });
    this.#output.addEventListener("focusout", () => this.#leave());
    this.#output.addEventListener("pointerover", (event) => {
      this.#point("target", event.target);
      this.#explain(event.target.closest(".sentence"));
    });
    this.#output.addEventListener("pointerleave", () => this.#leave());
    this.#source.addEventListener("pointermove", (event) => this.#pointAtSource(event));
    this.#source.addEventListener("pointerleave", () => this.#highlight.clear());
    this.#source.addEventListener("keyup", (event) => this.#caret(event));
    this.#popup.addEventListener("keydown", (event) => this.#popupKey(event));
    document.addEventListener("pointerdown", ({ target }) => {
      if (!this.#popup.contains(target) && !target.closest?.(".sentence")) this.closeAlternatives();
    });
  }

  // Translation with the chosen sentences.
  get text() {
    return this.#output.textContent;
  }

  // Shows an answer: {text, translation, from, to, alignment, unsure}.
  show(result) {
    const pairs = sentencePairs(result.text, result.translation, result.from, result.to).map((pair) => {
      const source = result.text.slice(pair.source.start, pair.source.end);
      const best = result.translation.slice(pair.target.start, pair.target.end);
      return { ...pair, text: source, best, key: [result.from, result.to, source, best].join("\n") };
    });
    this.#result = { ...result, pairs };
    this.closeAlternatives();
    this.#output.lang = result.to;
    fill(this.#mirror, `${result.text}\n`, pairs.map((pair) => pair.source));
    this.#render();
    this.#highlight.setLinks(result.alignment ?? []);
  }

  // Forgets the answer: its words no longer correspond to the text. The translation stays visible until the next one.
  detach() {
    this.closeAlternatives();
    this.#explain(null);
    this.#request?.abort();
    this.#highlight.setLinks([]);
    this.#result = null;
    this.#mirror.textContent = `${this.#source.value}\n`;
  }

  clear() {
    this.detach();
    this.#output.replaceChildren();
  }

  // Moves the focus to the translation; returns whether it has a sentence.
  focus() {
    const sentence = this.#output.querySelector(".sentence[tabindex='0']");
    sentence?.focus();
    return sentence !== null;
  }

  closeAlternatives() {
    if (!this.#open) return;
    this.#request?.abort();
    this.#open.setAttribute("aria-expanded", "false");
    if (this.#popup.contains(document.activeElement)) this.#open.focus();
    this.#open = null;
    this.#popup.hidden = true;
  }

  #render() {
    const { translation, pairs } = this.#result;
    const spans = pairs.map((pair) => ({ ...pair.target, text: this.#choices.get(pair.key)?.chosen }));
    fill(this.#output, translation, spans);
    this.#sentences().forEach((sentence, index) => {
      sentence.setAttribute("role", "button");
      sentence.setAttribute("aria-haspopup", "dialog");
      sentence.setAttribute("aria-expanded", "false");
      sentence.tabIndex = index ? -1 : 0;
      if (this.#isUnsure(sentence)) {
        sentence.classList.add("unsure");
        sentence.setAttribute("aria-describedby", "unsure-note");
      }
    });
  }

  // Returns whether a sentence has a word of a part that the model is unsure of; not after another one was chosen.
  #isUnsure(sentence) {
    const numbers = [...sentence.querySelectorAll("[data-word]")].map(({ dataset }) => dataset.word).filter(Boolean);
    return (this.#result.unsure ?? []).some(([first, last]) => numbers.some((word) => first <= word && word <= last));
  }

  // Explains why a sentence is underlined, while the pointer or the focus is on it.
  #explain(sentence) {
    const isShown = Boolean(sentence?.classList.contains("unsure")) && !this.#open;
    element("unsure-note").hidden = !isShown;
    if (isShown) this.#place(element("unsure-note"), sentence);
  }

  #sentences() {
    return [...this.#output.querySelectorAll(".sentence")];
  }

  #click({ target }) {
    const sentence = target.closest(".sentence");
    if (sentence && getSelection().isCollapsed) this.#showAlternatives(sentence);
  }

  #leave() {
    this.#highlight.clear();
    this.#explain(null);
  }

  #point(side, target) {
    this.#highlight.show(side, target.closest(".sentence"), target.closest("[data-word]"));
  }

  #pointAtSource({ clientX, clientY }) {
    const word = document.elementsFromPoint(clientX, clientY).find((other) => this.#mirror.contains(other));
    if (word && word !== this.#mirror) this.#point("source", word);
    else this.#highlight.clear();
  }

  // Marks the word at the caret when the caret is moved by the keyboard.
  #caret({ key }) {
    if (!/^(?:Arrow|Home|End|Page)/u.test(key)) return;
    let place = this.#source.selectionStart;
    const walker = document.createTreeWalker(this.#mirror, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { length } = walker.currentNode;
      if (place < length) break;
      place -= length;
    }
    if (walker.currentNode.parentElement) this.#point("source", walker.currentNode.parentElement);
  }

  #key(event) {
    const sentence = event.target.closest(".sentence");
    if (!sentence || event.altKey || event.ctrlKey || event.metaKey) return;
    const isReversed = getComputedStyle(sentence).direction === "rtl";
    const actions = {
      Enter: () => this.#showAlternatives(sentence),
      " ": () => this.#showAlternatives(sentence),
      ArrowRight: () => this.#moveWord(sentence, isReversed ? -1 : 1),
      ArrowLeft: () => this.#moveWord(sentence, isReversed ? 1 : -1),
      ArrowDown: () => this.#moveSentence(sentence, 1),
      ArrowUp: () => this.#moveSentence(sentence, -1),
      Escape: () => this.closeAlternatives(),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  #moveSentence(sentence, step) {
    const sentences = this.#sentences();
    const next = sentences[sentences.indexOf(sentence) + step];
    if (!next) return;
    this.#makeTabStop(next);
    next.focus();
  }

  #moveWord(sentence, step) {
    const words = [...this.#output.querySelectorAll("[data-word]")];
    const inSentence = words.filter((word) => sentence.contains(word));
    const marked = words.findIndex((word) => word.classList.contains("at-cursor"));
    const before = step > 0 ? words.indexOf(inSentence[0]) - 1 : words.indexOf(inSentence.at(-1)) + 1;
    const isHere = marked >= 0 && sentence.contains(words[marked]);
    const next = words[(isHere ? marked : before) + step];
    if (!next) return;
    words[marked]?.classList.remove("at-cursor");
    next.classList.add("at-cursor");
    this.#makeTabStop(next.closest(".sentence"));
    next.closest(".sentence").focus();
    this.#point("target", next);
  }

  #makeTabStop(sentence) {
    for (const other of this.#sentences()) other.tabIndex = other === sentence ? 0 : -1;
  }

  async #showAlternatives(sentence) {
    const isOpen = this.#open === sentence;
    this.closeAlternatives();
    if (isOpen || !this.#result) return;
    const pair = this.#result.pairs[sentence.dataset.sentence];
    this.#open = sentence;
    this.#explain(null);
    sentence.setAttribute("aria-expanded", "true");
    this.#makeTabStop(sentence);
    this.#popup.hidden = false;
    this.#fillPopup(pair, [], "Looking for other translations …");
    this.#place(this.#popup, sentence);
    try {
      const choice = await this.#choiceOf(pair);
      if (this.#open !== sentence) return;
      if (choice.options.length > 1) this.#fillPopup(pair, choice.options, "");
      else this.#fillPopup(pair, [], "There is no other translation of this sentence.");
    } catch (error) {
      if (this.#open === sentence) this.#fillPopup(pair, [], error.message);
    }
  }

  // Returns the possible translations of a sentence, the best one first.
  async #choiceOf(pair) {
    if (!this.#choices.has(pair.key)) {
      this.#request = new AbortController();
      const { from, to } = this.#result;
      const fields = { q: pair.text, source: from, target: to, alternatives: ALTERNATIVES };
      const answer = await translate(fields, this.#request.signal);
      const others = [answer.translatedText, ...(answer.alternatives ?? [])].map((text) => text.trim()).filter(Boolean);
      this.#choices.set(pair.key, { options: [...new Set([pair.best, ...others])], chosen: undefined });
    }
    return this.#choices.get(pair.key);
  }

  #fillPopup(pair, options, state) {
    const chosen = this.#choices.get(pair.key)?.chosen ?? pair.best;
    const hadFocus = this.#popup.contains(document.activeElement) || document.activeElement === this.#open;
    element("alternatives-state").textContent = state;
    element("alternatives-state").hidden = !state;
    this.#popup.querySelector("ul").replaceChildren(...options.map((text) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.dir = "auto";
      button.lang = this.#result.to;
      if (text === chosen) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => this.#choose(pair, text));
      item.append(button);
      return item;
    }));
    if (hadFocus) (this.#popup.querySelector("[aria-current]") ?? this.#popup.querySelector("button"))?.focus();
  }

  #place(popup, sentence) {
    const pane = popup.parentElement.getBoundingClientRect();
    popup.style.top = `${sentence.getBoundingClientRect().bottom - pane.top + 6}px`;
  }

  #choose(pair, text) {
    this.#choices.get(pair.key).chosen = text === pair.best ? undefined : text;
    const index = this.#result.pairs.indexOf(pair);
    this.closeAlternatives();
    this.#render();
    const sentence = this.#sentences()[index];
    this.#makeTabStop(sentence);
    sentence.focus();
    this.#onChange();
  }

  #popupKey(event) {
    const buttons = [...this.#popup.querySelectorAll("button")];
    const place = buttons.indexOf(document.activeElement);
    const next = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      buttons.at(next % buttons.length)?.focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      this.closeAlternatives();
    }
  }
}
