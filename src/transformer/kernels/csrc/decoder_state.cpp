#include "decoder_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace transformer {
namespace {

constexpr long MIN_POSITIONS = 32;      // of target caches, which grow by half
constexpr int SOURCE_PROJECTIONS = 50;  // scratch buffer

Memory allocate(size_t n) { return Memory(static_cast<char*>(::operator new(n, std::align_val_t{64}))); }

}  // namespace

DecoderState::DecoderState(const Decoder& decoder, long n_sentences, long beam)
    : decoder_(decoder),
      beam_(beam),
      n_rows_(n_sentences * beam),
      element_size_(decoder.is_rounded ? 2 : 4),
      source_lengths_(n_sentences),
      lengths_(n_sentences),
      source_caches_(decoder.source_keys_values ? decoder.n_layers : 0),
      target_caches_(decoder.n_layers) {}

DecoderState::DecoderState(const std::vector<Continuation>& continuations, long beam)
    : DecoderState(continuations[0].state->decoder_, continuations.size(), beam) {
  long longest = 0;
  for (size_t slot = 0; slot < continuations.size(); ++slot) {
    const auto& [state, old_slot, hypotheses] = continuations[slot];
    source_lengths_[slot] = state->source_lengths_[old_slot], lengths_[slot] = state->lengths_[old_slot];
    max_source_ = std::max<long>(max_source_, source_lengths_[slot]);
    longest = std::max<long>(longest, lengths_[slot]);
  }
  reserve_positions(longest);
  for (Cache& cache : source_caches_) allocate_cache(cache, continuations.size(), max_source_);
  for (size_t slot = 0; slot < continuations.size(); ++slot) {
    const auto& [state, old_slot, hypotheses] = continuations[slot];
    for (size_t layer = 0; layer < source_caches_.size(); ++layer)
      copy_positions(state->source_caches_[layer], old_slot, source_caches_[layer], slot, 0, source_lengths_[slot]);
    for (long w = 0; w < beam; ++w) {
      const long old_row = old_slot * state->beam_ + hypotheses[w], row = slot * beam + w;
      if (beam > 1) std::fill_n(table(row), lengths_[slot], row);
      for (long layer = 0; layer < decoder_.n_layers; ++layer)
        for (long first = 0, count; first < lengths_[slot]; first += count) {
          const int32_t* rows = state->beam_ > 1 ? state->table(old_row) : nullptr;
          for (count = 1; first + count < lengths_[slot] && (!rows || rows[first + count] == rows[first]);) ++count;
          copy_positions(state->target_caches_[layer], rows ? rows[first] : old_row, target_caches_[layer], row, first,
                         count);
        }
    }
  }
}

void DecoderState::begin(const float* source, const int64_t* lengths, int threads) {
  const long count = source_lengths_.size();
  source_lengths_.assign(lengths, lengths + count);
  max_source_ = count ? *std::max_element(lengths, lengths + count) : 0;
  for (size_t layer = 0; layer < source_caches_.size(); ++layer) {
    allocate_cache(source_caches_[layer], count, max_source_);
    project_source(*decoder_.source_keys_values[layer], source, source_caches_[layer], threads);
  }
  if (!decoder_.prompt_encoder || !max_source_) return;
  lengths_ = source_lengths_;
  reserve_positions(max_source_);
  for (long row = 0; beam_ > 1 && row < n_rows_; ++row)
    std::fill_n(table(row), lengths_[row / beam_], row - row % beam_);
  long n_tokens = 0;
  for (long i = 0; i < count; ++i) n_tokens += lengths[i];
  std::vector<float, CacheLineAllocator<float>> x(source, source + n_tokens * decoder_.d_model);
  const long queries = decoder_.heads * decoder_.head_width, keys = decoder_.key_heads * decoder_.head_width;
  encode(*decoder_.prompt_encoder, lengths, count, x.data(), threads,
         [&](long layer, long first, long n, const void* projections, bool is_bf16) {
           const auto store_all = [&](auto* projected) {
             store(projected + queries, queries + 2 * keys, lengths + first, n, first * beam_, beam_,
                   target_caches_[layer]);
           };
           is_bf16 ? store_all(static_cast<const uint16_t*>(projections))
                   : store_all(static_cast<const float*>(projections));
         });
}

const float* DecoderState::step(const int32_t* slots, long n_slots, const float* input, int threads) {
  const long rows = n_slots * beam_, d = decoder_.d_model;
  long longest = 0;
  for (long i = 0; i < n_slots; ++i) longest = std::max<long>(longest, lengths_[slots[i]] + 1);
  reserve_positions(longest);
  rows_.resize(rows), last_source_.resize(n_slots), positions_.resize(rows);
  for (long i = 0; i < rows; ++i) {
    const long slot = slots[i / beam_], row = rows_[i] = slot * beam_ + i % beam_;
    positions_[i] = lengths_[slot];
    last_source_[i / beam_] = source_lengths_[slot] - 1;
    if (beam_ > 1) table(row)[lengths_[slot]] = row;
  }
  hidden_[0].resize(rows * d), hidden_[1].resize(rows * d);
  float *x = hidden_[0].data(), *y = hidden_[1].data();
  for (long layer = 0; layer < decoder_.n_layers; ++layer, std::swap(x, y)) {
    Attention& self_attention = target_caches_[layer].attention;
    self_attention.batch = rows, self_attention.queries = 1, self_attention.positions = longest;
    self_attention.last = positions_.data(), self_attention.cache_rows = rows_.data();
    self_attention.cache_indirection = beam_ > 1 ? table_.data() : nullptr;
    self_attention.indirection_stride = capacity_;
    Attention* cross_attention = source_caches_.empty() ? nullptr : &source_caches_[layer].attention;
    if (cross_attention) {
      cross_attention->batch = n_slots, cross_attention->queries = beam_, cross_attention->positions = max_source_;
      cross_attention->last = last_source_.data(), cross_attention->cache_rows = slots;
    }
    transformer_decoder_layer(decoder_.layers + layer, &self_attention, cross_attention, layer ? x : input, y, rows,
                              threads);
  }
  if (const Norm& norm = decoder_.norm; norm.alpha)
    transformer_add_norm(x, nullptr, norm.alpha, norm.beta, norm.eps, rows, d, x,
                         threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * d, threads));
  for (long i = 0; i < n_slots; ++i) ++lengths_[slots[i]];
  return x;
}

void DecoderState::reorder(long slot, const int32_t* hypotheses) {
  const long first = slot * beam_, length = lengths_[slot];
  bool keeps_order = true;
  for (long w = 0; w < beam_; ++w) keeps_order &= hypotheses[w] == w;
  if (keeps_order) return;
  old_table_.resize(beam_ * length);
  for (long w = 0; w < beam_; ++w) std::copy_n(table(first + hypotheses[w]), length, old_table_.data() + w * length);
  for (long w = 0; w < beam_; ++w) std::copy_n(old_table_.data() + w * length, length, table(first + w));
}

void DecoderState::allocate_cache(Cache& cache, long rows, long positions) const {
  const long heads = decoder_.key_heads, width = decoder_.head_width;
  const size_t n_bytes = static_cast<size_t>(rows) * heads * std::max(1L, positions) * width * element_size_;
  cache.keys = allocate(n_bytes), cache.values = allocate(n_bytes);
  Attention& a = cache.attention;
  a.keys = cache.keys.get(), a.values = cache.values.get();
  a.heads = decoder_.heads, a.key_heads = heads, a.width = width;
  a.key_batch = a.value_batch = heads * positions * width;
  a.key_head = a.value_head = positions * width;
  a.key_stride = a.value_stride = width;
  a.scale = 1 / std::sqrt(static_cast<double>(width));
  a.is_bfloat16 = decoder_.is_rounded;
}

// Stores the keys and values of sentences from their first position on. They are rows of one matrix, `stride` apart.
template <typename T>
void DecoderState::store(const T* projected, long stride, const int64_t* lengths, long count, long first_row,
                         long rows_per_sentence, Cache& cache) const {
  const long heads = decoder_.key_heads, width = decoder_.head_width;
  const Attention& a = cache.attention;
  for (long sentence = 0; sentence < count; ++sentence)
    for (long position = 0; position < lengths[sentence]; ++position, projected += stride) {
      const T* source = projected;
      for (const Memory* memory : {&cache.keys, &cache.values})
        for (long head = 0; head < heads; ++head, source += width) {
          char* target = memory->get() + ((first_row + sentence * rows_per_sentence) * a.key_batch + head * a.key_head +
                                          position * width) *
                                             element_size_;
          if (std::is_same_v<T, float> && decoder_.is_rounded)
            for (long e = 0; e < width; e += LANES)
              transformer::store(reinterpret_cast<uint16_t*>(target) + e, tail_mask(width - e),
                                 load(source + e, tail_mask(width - e)));
          else
            std::memcpy(target, source, width * sizeof(T));
        }
    }
}

// Stores the keys and values of all sources.
void DecoderState::project_source(const PackedMatrix& w, const float* encoded, Cache& cache, int threads) const {
  const long d = decoder_.key_heads * decoder_.head_width, n_sources = source_lengths_.size();
  const bool is_bf16 = HAS_BF16_DOT && decoder_.is_rounded;
  const long rows_at_once = std::max(max_source_, 1024L * threads);
  for (long first = 0, n; first < n_sources; first += n) {
    long rows = 0;
    for (n = 0; first + n < n_sources && (!n || rows + source_lengths_[first + n] <= rows_at_once); ++n)
      rows += source_lengths_[first + n];
    const int n_threads = threads_for(rows * w.inner * w.columns, threads);
    if (is_bf16) {
      uint16_t* projected = scratch<uint16_t, SOURCE_PROJECTIONS>(rows * 2 * d);
      transformer_packed_linear_bf16(&w, encoded, 0, rows, projected, 1, n_threads);
      store(projected, 2 * d, source_lengths_.data() + first, n, first, 1, cache);
    } else {
      float* projected = scratch<float, SOURCE_PROJECTIONS>(rows * 2 * d);
      transformer_packed_linear(&w, encoded, rows, projected, n_threads);
      store(projected, 2 * d, source_lengths_.data() + first, n, first, 1, cache);
    }
    encoded += rows * decoder_.d_model;
  }
}

// Copies some positions of a row.
void DecoderState::copy_positions(const Cache& from, long from_row, Cache& to, long to_row, long first,
                                  long count) const {
  const long position_bytes = decoder_.head_width * element_size_;
  for (long head = 0; head < decoder_.key_heads; ++head) {
    const long from_offset = from_row * from.attention.key_batch + head * from.attention.key_head;
    const long to_offset = to_row * to.attention.key_batch + head * to.attention.key_head;
    const auto copy = [&](const Memory& source, Memory& target) {
      std::memcpy(target.get() + to_offset * element_size_ + first * position_bytes,
                  source.get() + from_offset * element_size_ + first * position_bytes, count * position_bytes);
    };
    copy(from.keys, to.keys), copy(from.values, to.values);
  }
}

// Enlarges the caches and the table of the target to at least this number of positions.
void DecoderState::reserve_positions(long positions) {
  if (positions <= capacity_) return;
  const long capacity = std::max({positions, MIN_POSITIONS, capacity_ + capacity_ / 2});
  for (Cache& cache : target_caches_) {
    Cache grown;
    allocate_cache(grown, n_rows_, capacity);
    for (long row = 0; capacity_ && row < n_rows_; ++row) copy_positions(cache, row, grown, row, 0, capacity_);
    cache = std::move(grown);
  }
  if (beam_ > 1) {
    std::vector<int32_t> grown(n_rows_ * capacity);
    for (long row = 0; row < n_rows_; ++row) std::copy_n(table(row), capacity_, grown.data() + row * capacity);
    table_ = std::move(grown);
  }
  capacity_ = capacity;
}

}  // namespace transformer

extern "C" long transformer_size_of_decoder() { return sizeof(transformer::Decoder); }

// Writes a new state of as many sentences to `state`, with one hypothesis each. The decoder must live as long as it.
// Returns 0, or -1 if there is not enough memory, as do the others.
extern "C" int transformer_decoder_begin(const transformer::Decoder* decoder, const float* source,
                                         const int64_t* lengths, long count, int threads, void** state) {
  using namespace transformer;
  return catch_out_of_memory([&] {
    auto created = std::make_unique<DecoderState>(*decoder, count, 1);
    created->begin(source, lengths, threads);
    *state = created.release();
    return 0;
  });
}

// Appends a token to each hypothesis of some slots, and writes the output of the decoder to `out`.
extern "C" int transformer_decoder_step(void* state, const int32_t* slots, long n_slots, const float* x, float* out,
                                        int threads) {
  using namespace transformer;
  return catch_out_of_memory([&] {
    auto* decoder_state = static_cast<DecoderState*>(state);
    const float* hidden = decoder_state->step(slots, n_slots, x, threads);
    std::copy_n(hidden, n_slots * decoder_state->beam() * decoder_state->d_model(), out);
    return 0;
  });
}

// Replaces the hypotheses of some slots by continuations: those of slot i continue row i of `hypotheses`.
extern "C" int transformer_decoder_reorder(void* state, const int32_t* slots, long n_slots, const int32_t* hypotheses) {
  using namespace transformer;
  return catch_out_of_memory([&] {
    auto* decoder_state = static_cast<DecoderState*>(state);
    for (long i = 0; i < n_slots; ++i) decoder_state->reorder(slots[i], hypotheses + i * decoder_state->beam());
    return 0;
  });
}

// Writes a new state to `state`, whose slot i continues hypotheses of slot `slots[i]` of `states[i]`.
extern "C" int transformer_decoder_select(const void* const* states, const int32_t* slots, const int32_t* hypotheses,
                                          long n_slots, long beam, void** state) {
  using namespace transformer;
  return catch_out_of_memory([&] {
    std::vector<Continuation> continuations;
    for (long i = 0; i < n_slots; ++i)
      continuations.push_back({static_cast<const DecoderState*>(states[i]), slots[i], hypotheses + i * beam});
    *state = new DecoderState(continuations, beam);
    return 0;
  });
}

extern "C" void transformer_decoder_end(void* state) { delete static_cast<transformer::DecoderState*>(state); }
