// Guides and references come before pages on experiments and development.
Scorer.score = ([page, , , , score]) => (/^(experiments|development)\//.test(page) ? score - 100 : score);
