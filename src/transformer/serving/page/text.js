// Sentences and words of a text and its translation.

// White space as in Python's `str.split`, by which the server counts the words of an alignment.
// eslint-disable-next-line no-control-regex
const WORD = /[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/gu;
const ABBREVIATION = /(?:^|[\s(])(?:Mr|Mrs|Ms|Dr|Prof|St|No|Nr|Hr|Fr|vs|bzw|ca|e\.g|i\.e|z\. ?B|d\. ?h|u\. ?a)\.\s*$/u;

// Returns the {start, end} of each word.
export function words(text) {
  return matches(text, WORD);
}

// Returns pairs of sentences as {source: {start, end}, target: {start, end}}. Lines are translated line by line; a
// line whose translation has another number of sentences is one pair, since it is unknown which ones correspond.
export function sentencePairs(source, target, from, to) {
  const [sourceLines, targetLines] = [lines(source), lines(target)];
  const whole = [{ start: 0, end: source.length }, { start: 0, end: target.length }];
  const linePairs = sourceLines.length === targetLines.length
    ? sourceLines.map((line, index) => [line, targetLines[index]]) : [whole];
  return linePairs.flatMap(([sourceLine, targetLine]) => {
    const sourceSpans = sentences(source, sourceLine, from);
    const targetSpans = sentences(target, targetLine, to);
    if (sourceSpans.length === targetSpans.length) {
      return sourceSpans.map((span, index) => ({ source: span, target: targetSpans[index] }));
    }
    return targetSpans.length ? [{ source: trimmed(source, sourceLine), target: trimmed(target, targetLine) }] : [];
  });
}

function matches(text, pattern) {
  return Array.from(text.matchAll(pattern), ({ index, 0: part }) => ({ start: index, end: index + part.length }));
}

function lines(text) {
  return matches(text, /[^\n]*\n|[^\n]+/gu);
}

function sentences(text, { start, end }, language) {
  const spans = [];
  let first = start;
  for (const { index, segment } of segmenter(language).segment(text.slice(start, end))) {
    const last = start + index + segment.length;
    if (last < end && ABBREVIATION.test(text.slice(first, last))) continue;
    const span = trimmed(text, { start: first, end: last });
    if (span.start < span.end) spans.push(span);
    first = last;
  }
  return spans;
}

function segmenter(language) {
  try {
    return new Intl.Segmenter(language, { granularity: "sentence" });
  } catch {
    return new Intl.Segmenter(undefined, { granularity: "sentence" });
  }
}

function trimmed(text, { start, end }) {
  const part = text.slice(start, end);
  return { start: end - part.trimStart().length, end: start + part.trimEnd().length };
}

// Fills an element with a text whose sentences and words are elements: `.sentence[data-sentence]`, `[data-word]`.
// Sentences are {start, end, text}; a `text` replaces the one between `start` and `end`, and its words have no number.
export function fill(element, text, spans) {
  const numbered = words(text).map((span, number) => ({ ...span, number }));
  const nodes = [];
  let place = 0;
  let next = 0;
  spans.forEach((span, index) => {
    nodes.push(text.slice(place, span.start));
    const sentence = document.createElement("span");
    sentence.className = "sentence";
    sentence.dataset.sentence = index;
    while (next < numbered.length && numbered[next].end <= span.start) next += 1;
    let last = next;
    while (last < numbered.length && numbered[last].start < span.end) last += 1;
    sentence.append(...(span.text === undefined
      ? pieces(text, span, numbered.slice(next, last))
      : pieces(span.text, { start: 0, end: span.text.length }, words(span.text))));
    nodes.push(sentence);
    place = span.end;
  });
  nodes.push(text.slice(place));
  element.replaceChildren(...nodes);
}

function pieces(text, { start, end }, spans) {
  const nodes = [];
  let place = start;
  for (const span of spans) {
    const [from, to] = [Math.max(span.start, start), Math.min(span.end, end)];
    nodes.push(text.slice(place, from));
    const word = document.createElement("span");
    word.dataset.word = span.number ?? "";
    word.textContent = text.slice(from, to);
    nodes.push(word);
    place = to;
  }
  nodes.push(text.slice(place, end));
  return nodes;
}
