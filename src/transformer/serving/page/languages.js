// The choice of languages.

import { read, write } from "./store.js";

const AUTO = "auto";
const element = (id) => document.getElementById(id);

export class Languages {
  #from = element("from");
  #to = element("to");
  #swap = element("swap");
  #languages = [];
  #detected = "";

  // `onChange` is called after another language was chosen.
  constructor(onChange) {
    this.#from.addEventListener("change", () => {
      this.#detected = "";
      this.#update();
      onChange();
    });
    this.#to.addEventListener("change", () => {
      this.#update();
      onChange();
    });
  }

  // "auto" or the tag of the language of the text.
  get from() {
    return this.#from.value;
  }

  get to() {
    return this.#to.value;
  }

  get isKnown() {
    return this.#languages.length > 0;
  }

  // Takes the answers of /languages and /frontend/settings.
  set(languages, settings) {
    this.#languages = languages;
    const sources = languages.filter(({ targets }) => targets.length);
    const options = sources.map(({ code, name }) => new Option(name, code));
    this.#from.replaceChildren(new Option("Detect language", AUTO), ...options);
    const { from = AUTO, to = settings.language?.target?.code } = read("languages", {});
    this.choose(from, to);
  }

  // Chooses languages as far as the server has them.
  choose(from, to) {
    this.#from.value = from;
    if (this.#from.selectedIndex < 0) this.#from.value = AUTO;
    this.#detected = "";
    this.#update(to);
  }

  // Shows the language that the server detected.
  detect(tag) {
    this.#detected = this.from === AUTO ? tag : "";
    this.#update();
  }

  // Returns the name of a language.
  name(tag) {
    return this.#languages.find(({ code }) => code === tag)?.name ?? tag;
  }

  swap() {
    if (this.#swap.disabled) return false;
    const from = this.from === AUTO ? this.#detected : this.from;
    this.choose(this.to, from);
    return true;
  }

  // Returns the languages {from, to} of the other direction; null if no model translates so.
  get reverse() {
    const targets = this.#targets(this.to);
    const to = this.from === AUTO ? targets[0] : this.from;
    return targets.includes(to) ? { from: this.to, to } : null;
  }

  #targets(tag) {
    const all = this.#languages.filter(({ code }) => tag === AUTO || code === tag);
    const tags = new Set(all.flatMap(({ targets }) => targets));
    if (tag !== AUTO) tags.delete(tag);
    return [...tags].sort((one, other) => this.name(one).localeCompare(this.name(other)));
  }

  #update(preferred = this.to) {
    const targets = this.#targets(this.from);
    const target = [preferred, this.to].find((tag) => targets.includes(tag));
    this.#to.replaceChildren(...targets.map((tag) => new Option(this.name(tag), tag)));
    if (target) this.#to.value = target;
    const label = this.#detected ? `${this.name(this.#detected)} (detected)` : "Detect language";
    if (this.#from.options[0].label !== label) this.#from.options[0].label = label;
    const from = this.from === AUTO ? this.#detected : this.from;
    this.#swap.disabled = !from || from === this.to || !this.#targets(this.to).includes(from);
    this.#swap.title = from && this.#swap.disabled
      ? `No model translates from ${this.name(this.to)} to ${this.name(from)}` : "Swap languages";
    if (this.isKnown) write("languages", { from: this.from, to: this.to });
  }
}
