// The state of decoding a batch of sentences: keys and values of all layers, and one step of the decoder.
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

class DecoderState;

// The hypotheses that a new slot continues: one for each row of it, all of the same slot of another state.
struct Continuation {
  const DecoderState* state;
  long slot;
  const int32_t* hypotheses;
};

class DecoderState {
 public:
  // `beam` is the number of hypotheses of each sentence.
  DecoderState(const Decoder& decoder, long n_sentences, long beam);

  // Copies the hypotheses that each new slot continues, which may have different lengths.
  DecoderState(const std::vector<Continuation>& continuations, long beam);

  // Reads the sources, one row per token and one sentence after the other: the output of the encoder, or the embedded
  // prompts of a decoder-only model.
  void begin(const float* source, const int64_t* lengths, int threads);

  // Appends a token to each hypothesis of the given slots. `x` has one row for each, its embedding. Returns the output
  // of the decoder, valid until the next step.
  const float* step(const int32_t* slots, long n_slots, const float* x, int threads);

  // Replaces the hypotheses of a slot by continuations: hypothesis w continues `hypotheses[w]`.
  void reorder(long slot, const int32_t* hypotheses);

  long beam() const { return beam_; }
  long d_model() const { return decoder_.d_model; }
  // The number of positions of a slot so far, those of a prompt included.
  long length(long slot) const { return lengths_[slot]; }

 private:
  // Keys and values of one layer, for each row, head and position.
  struct Cache {
    Memory keys, values;
    Attention attention{};
  };

  void allocate_cache(Cache& cache, long rows, long positions) const;
  void project_source(const PackedMatrix& w, const float* encoded, Cache& cache, int threads) const;
  template <typename T>
  void store(const T* projected, long stride, const int64_t* lengths, long count, long first_row,
             long rows_per_sentence, Cache& cache) const;
  void copy_positions(const Cache& from, long from_row, Cache& to, long to_row, long first, long count) const;
  void reserve_positions(long positions);
  int32_t* table(long row) { return table_.data() + row * capacity_; }
  const int32_t* table(long row) const { return table_.data() + row * capacity_; }

  const Decoder& decoder_;
  const long beam_, n_rows_, element_size_;
  long max_source_ = 0, capacity_ = 0;
  std::vector<int64_t> source_lengths_, lengths_;  // of each slot
  std::vector<Cache> source_caches_, target_caches_;
  std::vector<int32_t> table_, old_table_;  // rows that hold the positions of each row, unless a beam is 1

  // Of one step, for each slot or hypothesis.
  std::vector<int32_t> rows_;
  std::vector<int64_t> positions_, last_source_;
  std::vector<float, CacheLineAllocator<float>> hidden_[2];
};

}  // namespace transformer
