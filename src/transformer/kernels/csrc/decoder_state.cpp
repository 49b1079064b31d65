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

DecoderState::DecoderState(const Model& model, const PackedSequences& source, long beam, long max_positions)
    : model_(model),
      source_(source),
      beam_(beam),
      n_rows_(source.count * beam),
      max_positions_(max_positions),
      element_size_(model.is_rounded ? 2 : 4) {
  for (long slot = 0; slot < source.count; ++slot) max_source_ = std::max<long>(max_source_, source.lengths[slot]);
  if (beam > 1) table_.resize(n_rows_ * max_positions);
}

bool DecoderState::begin(int threads) {
  long n_tokens = 0;
  for (long i = 0; i < source_.count; ++i) n_tokens += source_.lengths[i];
  std::vector<float, CacheLineAllocator<float>> encoded(n_tokens * model_.d_model);
  if (!encode(model_, source_, encoded.data(), threads)) return false;
  source_caches_.resize(model_.n_decoder_layers), target_caches_.resize(model_.n_decoder_layers);
  for (long layer = 0; layer < model_.n_decoder_layers; ++layer) {
    allocate_cache(source_caches_[layer], source_.count, max_source_);
    project_source(*model_.source_keys_values[layer], encoded.data(), source_caches_[layer], threads);
  }
  return true;
}

const float* DecoderState::step(const std::vector<int32_t>& slots, const std::vector<int64_t>& tokens, int threads) {
  const long n = slots.size(), rows = n * beam_, d = model_.d_model;
  reserve_positions(length_ + 1);
  rows_.resize(rows), input_tokens_.resize(rows), last_source_.resize(n), positions_.assign(rows, length_);
  for (long i = 0; i < rows; ++i) {
    const long row = rows_[i] = slots[i / beam_] * beam_ + i % beam_;
    input_tokens_[i] = tokens[row];
    last_source_[i / beam_] = source_.lengths[slots[i / beam_]] - 1;
    if (beam_ > 1) table(row)[length_] = row;
  }
  hidden_[0].resize(rows * d), hidden_[1].resize(rows * d);
  float *x = hidden_[0].data(), *y = hidden_[1].data();
  if (!embed_tokens(model_.target, input_tokens_.data(), rows, d, x, threads)) return nullptr;
  add_position(model_.target.positions + length_ * d, rows, d, x);
  for (long layer = 0; layer < model_.n_decoder_layers; ++layer, std::swap(x, y)) {
    Attention &self_attention = target_caches_[layer].attention, &cross_attention = source_caches_[layer].attention;
    self_attention.batch = rows, self_attention.queries = 1, self_attention.positions = length_ + 1;
    self_attention.last = positions_.data(), self_attention.cache_rows = rows_.data();
    self_attention.cache_indirection = beam_ > 1 ? table_.data() : nullptr;
    self_attention.indirection_stride = max_positions_;
    cross_attention.batch = n, cross_attention.queries = beam_, cross_attention.positions = max_source_;
    cross_attention.last = last_source_.data(), cross_attention.cache_rows = slots.data();
    transformer_decoder_layer(model_.decoder_layers + layer, &self_attention, &cross_attention, x, y, rows, threads);
  }
  if (const Norm& norm = model_.decoder_norm; norm.alpha)
    transformer_add_norm(x, nullptr, norm.alpha, norm.beta, norm.eps, rows, d, x,
                         threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * d, threads));
  ++length_;
  return x;
}

void DecoderState::reorder(long first, const int32_t* parents) {
  bool keeps_order = true;
  for (long w = 0; w < beam_; ++w) keeps_order &= parents[w] == first + w;
  if (keeps_order) return;
  old_table_.resize(beam_ * length_);
  for (long w = 0; w < beam_; ++w) std::copy_n(table(parents[w]), length_, old_table_.data() + w * length_);
  for (long w = 0; w < beam_; ++w) std::copy_n(old_table_.data() + w * length_, length_, table(first + w));
}

void DecoderState::allocate_cache(Cache& cache, long rows, long positions) const {
  const long heads = model_.decoder_heads, width = model_.decoder_head_width;
  const size_t n_bytes = static_cast<size_t>(rows) * heads * std::max(1L, positions) * width * element_size_;
  cache.keys = allocate(n_bytes), cache.values = allocate(n_bytes);
  Attention& a = cache.attention;
  a.keys = cache.keys.get(), a.values = cache.values.get();
  a.heads = heads, a.width = width;
  a.key_batch = a.value_batch = heads * positions * width;
  a.key_head = a.value_head = positions * width;
  a.key_stride = a.value_stride = width;
  a.scale = 1 / std::sqrt(static_cast<double>(width));
  a.is_bfloat16 = model_.is_rounded;
}

template <typename T>
void DecoderState::store_source(const T* projected, long first, long count, Cache& cache) const {
  const long heads = model_.decoder_heads, width = model_.decoder_head_width;
  for (long sentence = first; sentence < first + count; ++sentence)
    for (long position = 0; position < source_.lengths[sentence]; ++position)
      for (const Memory* memory : {&cache.keys, &cache.values})
        for (long head = 0; head < heads; ++head, projected += width) {
          char* target = memory->get() + ((sentence * heads + head) * max_source_ + position) * width * element_size_;
          if (std::is_same_v<T, float> && model_.is_rounded)
            for (long e = 0; e < width; e += LANES)
              store(reinterpret_cast<uint16_t*>(target) + e, tail_mask(width - e),
                    load(projected + e, tail_mask(width - e)));
          else
            std::memcpy(target, projected, width * sizeof(T));
        }
}

// Stores the keys and values of all sources, which are rows of one matrix.
void DecoderState::project_source(const PackedMatrix& w, const float* encoded, Cache& cache, int threads) const {
  const long d = model_.decoder_heads * model_.decoder_head_width;
  const bool is_bf16 = HAS_BF16_DOT && model_.is_rounded;
  const long rows_at_once = std::max(max_source_, 1024L * threads);
  for (long first = 0, n; first < source_.count; first += n) {
    long rows = 0;
    for (n = 0; first + n < source_.count && (!n || rows + source_.lengths[first + n] <= rows_at_once); ++n)
      rows += source_.lengths[first + n];
    const int n_threads = threads_for(rows * w.inner * w.columns, threads);
    if (is_bf16) {
      uint16_t* projected = scratch<uint16_t, SOURCE_PROJECTIONS>(rows * 2 * d);
      transformer_packed_linear_bf16(&w, encoded, 0, rows, projected, 1, n_threads);
      store_source(projected, first, n, cache);
    } else {
      float* projected = scratch<float, SOURCE_PROJECTIONS>(rows * 2 * d);
      transformer_packed_linear(&w, encoded, rows, projected, n_threads);
      store_source(projected, first, n, cache);
    }
    encoded += rows * model_.d_model;
  }
}

// Enlarges the caches of the target to at least this number of positions.
void DecoderState::reserve_positions(long positions) {
  if (positions <= capacity_) return;
  const long grown = std::max(MIN_POSITIONS, capacity_ + capacity_ / 2);
  const long capacity = std::max(positions, std::min(grown, max_positions_));
  const long head_bytes = model_.decoder_head_width * element_size_;
  for (Cache& cache : target_caches_) {
    Cache old = std::move(cache);
    cache = Cache();
    allocate_cache(cache, n_rows_, capacity);
    for (long i = 0; capacity_ && i < n_rows_ * model_.decoder_heads; ++i) {
      std::memcpy(cache.keys.get() + i * capacity * head_bytes, old.keys.get() + i * capacity_ * head_bytes,
                  capacity_ * head_bytes);
      std::memcpy(cache.values.get() + i * capacity * head_bytes, old.values.get() + i * capacity_ * head_bytes,
                  capacity_ * head_bytes);
    }
  }
  capacity_ = capacity;
}

}  // namespace transformer
