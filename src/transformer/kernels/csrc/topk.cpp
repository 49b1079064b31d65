// The k most probable tokens of each row of logits, and their log-probabilities, in one pass over memory.
#include "topk.h"

#include "parallel.h"

extern "C" void transformer_log_softmax_topk(const float* logits, long rows, long columns, long k,
                                             const bool* forbidden, float* log_p, int64_t* tokens, int threads) {
  using namespace transformer;
  parallel_for(rows, threads, [=](long i) {
    const TopK topk(columns, 1, k, forbidden, 1);
    for (long chunk_index = 0; chunk_index < topk.n_chunks; ++chunk_index) {
      const ChunkTopK chunk = topk.begin_chunk(0);
      const long first = chunk_index * CHUNK_COLUMNS;
      chunk.add(logits + i * columns + first, 0, first, std::min(CHUNK_COLUMNS, columns - first));
      topk.end_chunk(chunk, chunk_index);
    }
    topk.merge(log_p + i * k, tokens + i * k);
  });
}
