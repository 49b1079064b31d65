// The k most probable tokens of each row of logits, and their log-probabilities, in one pass over memory.
#include "ranking.h"

extern "C" void transformer_best_tokens(const float* logits, long rows, long columns, long k, const bool* never,
                                        float* log_p, int64_t* tokens, int threads) {
  using namespace transformer;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long i = 0; i < rows; ++i) {
    const Ranking ranking(columns, 1, k, never, 1);
    for (long part = 0; part < ranking.parts; ++part) {
      const PartRanking own = ranking.begin(0);
      const long first = part * PART_COLUMNS;
      own.add(logits + i * columns + first, 0, first, std::min(PART_COLUMNS, columns - first));
      ranking.end(own, part);
    }
    ranking.join(log_p + i * k, tokens + i * k);
  }
}
