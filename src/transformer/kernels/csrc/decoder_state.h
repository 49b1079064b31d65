// The state of decoding a batch of sentences: keys and values of all layers, and one step of the model.
//
// A sentence has a slot: `beam` neighbouring rows of the caches, one for each hypothesis, from start to end. Hypotheses
// that continue the same one share its positions, which never move: a table tells which row holds each position.
#pragma once
#include "compiled_model.h"

#include <memory>

namespace transformer {

// Memory aligned to cache lines, not initialized.
struct FreeMemory {
  void operator()(char* memory) const { ::operator delete(memory, std::align_val_t{64}); }
};
using Memory = std::unique_ptr<char, FreeMemory>;

class DecoderState {
 public:
  // `max_positions` is the largest number of steps.
  DecoderState(const Model& model, const PackedSequences& source, long beam, long max_positions);

  // Encodes the sources. Returns false if a token is out of range.
  bool begin(int threads);

  // Appends a token to each hypothesis of the given slots; `tokens` has one for each row of the caches. Returns hidden
  // states before the projection, valid until the next step, for one hypothesis after the other; null if a token is out
  // of range.
  const float* step(const std::vector<int32_t>& slots, const std::vector<int64_t>& tokens, int threads);

  // Replaces the hypotheses of a slot by continuations: that at row `first + w` continues the one at `parents[w]`.
  void reorder(long first, const int32_t* parents);

 private:
  // Keys and values of one layer, for each row, head and position.
  struct Cache {
    Memory keys, values;
    Attention attention{};
  };

  void allocate_cache(Cache& cache, long rows, long positions) const;
  void project_source(const PackedMatrix& w, const float* encoded, Cache& cache, int threads) const;
  template <typename T>
  void store_source(const T* projected, long first, long count, Cache& cache) const;
  void reserve_positions(long positions);
  int32_t* table(long row) { return table_.data() + row * max_positions_; }

  const Model& model_;
  const PackedSequences source_;
  const long beam_, n_rows_, max_positions_, element_size_;
  long max_source_ = 0, capacity_ = 0;
  long length_ = 0;  // number of steps so far
  std::vector<Cache> source_caches_, target_caches_;
  std::vector<int32_t> table_, old_table_;  // rows that hold the positions of each row

  // Of one step, for each slot or hypothesis.
  std::vector<int32_t> rows_;
  std::vector<int64_t> positions_, last_source_, input_tokens_;
  std::vector<float, CacheLineAllocator<float>> hidden_[2];
};

}  // namespace transformer
