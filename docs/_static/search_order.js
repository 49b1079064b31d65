// Guides and references come before pages on experiments and development.
Scorer.score = ([page, , , , score]) => (/^(experiments|development)\//.test(page) ? score - 100 : score);

// Pages with all words of a query are found, or where there are none, those with the most of its words. Every word adds
// to the score, so that pages with two words in their headings come before pages with one.
{
  const pagesWith = Search.performTermsSearch;
  Search.performTermsSearch = (words, excludedWords) => {
    const pages = new Map();
    for (const word of words) {
      for (const result of pagesWith(new Set([word]), excludedWords)) {
        const page = pages.get(result[0]) ?? { result, nWords: 0, score: 0 };
        page.nWords += word.length > 2 ? 1 : 0;
        page.score += result[4];
        pages.set(result[0], page);
      }
    }
    const most = Math.max(...[...pages.values()].map((page) => page.nWords));
    return [...pages.values()]
      .filter((page) => page.nWords === most)
      .map(({ result, score }) => [...result.slice(0, 4), score, ...result.slice(5)]);
  };
}
