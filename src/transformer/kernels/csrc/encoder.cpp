// The encoder in one call. Sentences lie one after the other without padding: only attention distinguishes them.
#include "compiled_model.h"
#include "parallel.h"
#include "sublayers.h"

#include <algorithm>
#include <cmath>

namespace transformer {
namespace {

constexpr long TOKENS_PER_THREAD = 1024;  // computed at a time, to bound the memory of intermediate results
constexpr int CAUSAL_MASK = 51;           // scratch buffer

// A matrix of activations: float32, or bfloat16 where products read and write it.
struct Activations {
  void* data;
  bool is_bf16;

  void* row(long i, long width) const { return static_cast<char*>(data) + i * width * (is_bf16 ? 2 : 4); }
};

template <int id>
Activations activations(long n, bool is_bf16) {
  return {is_bf16 ? static_cast<void*>(scratch<uint16_t, id>(n)) : scratch<float, id>(n), is_bf16};
}

void multiply(const PackedMatrix& w, Activations x, long rows, Activations y, int threads) {
  threads = threads_for(rows * w.inner * w.columns, threads);
  if (x.is_bf16 || y.is_bf16)
    transformer_packed_linear_bf16(&w, x.data, x.is_bf16, rows, y.data, y.is_bf16, threads);
  else
    transformer_packed_linear(&w, static_cast<const float*>(x.data), rows, static_cast<float*>(y.data), threads);
}

// Returns a square mask by which each query attends to the positions up to its own; valid until the next call.
const bool* causal_mask(long size) {
  bool* mask = reinterpret_cast<bool*>(scratch<char, CAUSAL_MASK>(size * size));
  for (long query = 0; query < size; ++query)
    for (long position = 0; position < size; ++position) mask[query * size + position] = position <= query;
  return mask;
}

// Self-attention of each sentence. Several sentences are distributed among threads, the heads of a single one likewise.
void attend_sentences(const Encoder& encoder, const int64_t* lengths, long count, Activations projections,
                      Activations attended, int threads) {
  const long width = encoder.head_width, d = encoder.heads * width, keys = encoder.key_heads * width;
  const long projected = d + 2 * keys, element_size = projections.is_bf16 ? 2 : 4;
  const long longest = *std::max_element(lengths, lengths + count);
  const bool* mask = encoder.is_causal ? causal_mask(longest) : nullptr;
  std::vector<long> starts(count + 1, 0);
  long operations = 0;
  for (long i = 0; i < count; ++i) {
    starts[i + 1] = starts[i] + lengths[i];
    operations += 4 * d * lengths[i] * lengths[i];
  }
  threads = threads_for(operations, threads);
  const int threads_per_sentence = count < threads ? threads : 1;
  const auto attend = [&](long i) {
    Attention a{};
    const char* first = static_cast<const char*>(projections.row(starts[i], projected));
    a.query = first;
    a.keys = first + d * element_size;
    a.values = first + (d + keys) * element_size;
    a.out = attended.row(starts[i], d);
    a.batch = 1, a.queries = a.positions = lengths[i], a.heads = encoder.heads, a.width = width;
    a.key_heads = encoder.key_heads;
    a.query_stride = a.key_stride = a.value_stride = projected;
    a.query_batch = a.key_batch = a.value_batch = projected * lengths[i];
    a.key_head = a.value_head = width;
    a.scale = 1 / std::sqrt(static_cast<double>(width));
    a.is_bfloat16 = projections.is_bf16, a.is_full_sequence = 1, a.allow_bf16 = encoder.is_rounded;
    a.mask = mask, a.mask_query = mask ? longest : 0;
    transformer_attention(&a, threads_per_sentence);
  };
  const bool is_balanced = false;  // sentences differ in length
  parallel_region(
      threads_per_sentence == 1 ? threads : 1, [&](const Thread& thread) { thread.for_each_task(count, attend); },
      is_balanced);
}

void rotate_sentences(const Encoder& encoder, const Layer& layer, const int64_t* lengths, long count,
                      float* projections, int threads) {
  const long stride = (encoder.heads + 2 * encoder.key_heads) * encoder.head_width;
  for (long i = 0; i < count; ++i, projections += lengths[i - 1] * stride) {
    const int n_threads = threads_for(NORM_OPERATIONS_PER_ELEMENT * lengths[i] * stride, threads);
    parallel_for(lengths[i], n_threads, [&](long position) {
      rotate(layer, projections + position * stride, encoder.heads + encoder.key_heads, encoder.head_width, position);
    });
  }
}

void encode_chunk(const Encoder& encoder, const int64_t* lengths, long first, long count, long rows, float* x,
                  int threads, const OnProjections& on_projections) {
  const long d = encoder.d_model, heads = encoder.heads * encoder.head_width;
  const long projected = heads + 2 * encoder.key_heads * encoder.head_width;
  const bool is_bf16 = HAS_BF16_DOT && encoder.is_rounded;
  for (long i = 0; i < encoder.n_layers; ++i) {
    const Layer& layer = encoder.layers[i];
    const bool is_rotated = layer.cosines;
    residual_connection(x, rows, d, layer.norms[0], layer.is_pre, threads, [&](float* input, float* output) {
      const Activations projections = activations<PROJECTIONS>(rows * projected, is_bf16 && !is_rotated);
      const Activations attended = activations<ATTENDED>(rows * heads, is_bf16 && !is_rotated);
      multiply(*layer.queries_keys_values, {input, false}, rows, projections, threads);
      if (is_rotated)
        rotate_sentences(encoder, layer, lengths + first, count, static_cast<float*>(projections.data), threads);
      if (on_projections) on_projections(i, first, count, projections.data, projections.is_bf16);
      attend_sentences(encoder, lengths + first, count, projections, attended, threads);
      multiply(*layer.attention_out, attended, rows, {output, false}, threads);
    });
    residual_connection(x, rows, d, layer.norms[1], layer.is_pre, threads, [&](float* input, float* output) {
      if (layer.gate) return feed_forward(layer, input, rows, output, threads);
      const Activations inner = activations<INNER>(rows * layer.linear_1->columns, is_bf16);
      multiply(*layer.linear_1, {input, false}, rows, inner, threads);
      multiply(*layer.linear_2, inner, rows, {output, false}, threads);
    });
  }
  if (const Norm& norm = encoder.norm; norm.alpha)
    transformer_add_norm(x, nullptr, norm.alpha, norm.beta, norm.eps, rows, d, x,
                         threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * d, threads));
}

}  // namespace

bool embed_tokens(const Embedding& embedding, const int64_t* tokens, long n, long d_model, float* x, int threads) {
  constexpr long COLUMN_COST = 8;  // multiplications that take as long as loading one element of a column
  return !transformer_embedding_lookup(embedding.tokens, tokens, n, embedding.scale, x,
                                       threads_for(COLUMN_COST * n * d_model, threads));
}

void add_position(const float* position, long rows, long d_model, float* x) {
  for (long row = 0; row < rows; ++row, x += d_model)
    for (long k = 0; k < d_model; k += LANES) {
      const Mask m = tail_mask(d_model - k);
      store(x + k, m, load(x + k, m) + load(position + k, m));
    }
}

bool embed_sentences(const Embedding& embedding, const PackedSequences& sentences, long d_model, float* x,
                     int threads) {
  long n = 0;
  for (long i = 0; i < sentences.count; ++i) n += sentences.lengths[i];
  if (!embed_tokens(embedding, sentences.tokens, n, d_model, x, threads)) return false;
  for (long i = 0; embedding.positions && i < sentences.count; ++i)
    for (long position = 0; position < sentences.lengths[i]; ++position, x += d_model)
      add_position(embedding.positions + position * d_model, 1, d_model, x);
  return true;
}

void encode(const Encoder& encoder, const int64_t* lengths, long count, float* x, int threads,
            const OnProjections& on_projections) {
  for (long first = 0, n = 0; first < count; first += n) {
    long rows = 0;
    for (n = 0; first + n < count; ++n) {
      if (n && rows + lengths[first + n] > TOKENS_PER_THREAD * threads) break;
      rows += lengths[first + n];
    }
    encode_chunk(encoder, lengths, first, n, rows, x, threads, on_projections);
    x += rows * encoder.d_model;
  }
}

}  // namespace transformer

extern "C" long transformer_size_of_encoder() { return sizeof(transformer::Encoder); }

// Encodes embedded sentences in place: one row per token, one sentence after the other. Returns 0, or -1 if there is
// not enough memory.
extern "C" int transformer_encode(const transformer::Encoder* encoder, const int64_t* lengths, long count, float* x,
                                  int threads) {
  using namespace transformer;
  return catch_out_of_memory([&] {
    encode(*encoder, lengths, count, x, threads);
    return 0;
  });
}
