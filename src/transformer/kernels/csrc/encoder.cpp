// The encoder in one call. Sentences lie one after the other without padding: only attention distinguishes them.
#include "compiled_model.h"
#include "sublayers.h"

#include <algorithm>
#include <cmath>

namespace transformer {
namespace {

constexpr long TOKENS_PER_THREAD = 1024;  // computed at a time, to bound the memory of intermediate results

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

// Self-attention of each sentence. Several sentences are distributed among threads, the heads of a single one likewise.
void attend_sentences(const Model& model, const int64_t* lengths, long count, Activations projections,
                      Activations attended, int threads) {
  const long width = model.encoder_head_width, d = model.encoder_heads * width;
  std::vector<long> starts(count + 1, 0);
  long operations = 0;
  for (long i = 0; i < count; ++i) {
    starts[i + 1] = starts[i] + lengths[i];
    operations += 4 * d * lengths[i] * lengths[i];
  }
  threads = threads_for(operations, threads);
  const int threads_per_sentence = count < threads ? threads : 1;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && threads_per_sentence == 1)
  for (long i = 0; i < count; ++i) {
    Attention a{};
    const char* projected = static_cast<const char*>(projections.row(starts[i], 3 * d));
    a.query = projected;
    a.keys = projected + d * (projections.is_bf16 ? 2 : 4);
    a.values = projected + 2 * d * (projections.is_bf16 ? 2 : 4);
    a.out = attended.row(starts[i], d);
    a.batch = 1, a.queries = a.positions = lengths[i], a.heads = model.encoder_heads, a.width = width;
    a.query_stride = a.key_stride = a.value_stride = 3 * d;
    a.query_batch = a.key_batch = a.value_batch = 3 * d * lengths[i];
    a.key_head = a.value_head = width;
    a.scale = 1 / std::sqrt(static_cast<double>(width));
    a.is_bfloat16 = projections.is_bf16, a.is_full_sequence = 1, a.allow_bf16 = model.is_rounded;
    transformer_attention(&a, threads_per_sentence);
  }
}

void encode_chunk(const Model& model, const PackedSequences& source, long rows, float* x, int threads) {
  const long d = model.d_model, heads = model.encoder_heads * model.encoder_head_width;
  const bool is_bf16 = HAS_BF16_DOT && model.is_rounded;
  for (long i = 0; i < model.n_encoder_layers; ++i) {
    const EncoderLayer& layer = model.encoder_layers[i];
    residual_connection(x, rows, d, layer.norms[0], layer.is_pre, threads, [&](float* input, float* output) {
      const Activations projections = activations<PROJECTIONS>(rows * 3 * heads, is_bf16);
      const Activations attended = activations<ATTENDED>(rows * heads, is_bf16);
      multiply(*layer.queries_keys_values, {input, false}, rows, projections, threads);
      attend_sentences(model, source.lengths, source.count, projections, attended, threads);
      multiply(*layer.attention_out, attended, rows, {output, false}, threads);
    });
    residual_connection(x, rows, d, layer.norms[1], layer.is_pre, threads, [&](float* input, float* output) {
      const Activations inner = activations<INNER>(rows * layer.linear_1->columns, is_bf16);
      multiply(*layer.linear_1, {input, false}, rows, inner, threads);
      multiply(*layer.linear_2, inner, rows, {output, false}, threads);
    });
  }
  if (const Norm& norm = model.encoder_norm; norm.alpha)
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

bool encode(const Model& model, const PackedSequences& source, float* x, int threads) {
  const int64_t* tokens = source.tokens;
  for (long first = 0, n = 0; first < source.count; first += n) {
    long rows = 0;
    for (n = 0; first + n < source.count; ++n) {
      if (n && rows + source.lengths[first + n] > TOKENS_PER_THREAD * threads) break;
      rows += source.lengths[first + n];
    }
    if (!embed_tokens(model.source, tokens, rows, model.d_model, x, threads)) return false;
    float* row = x;
    for (long i = first; i < first + n; ++i)
      for (long position = 0; position < source.lengths[i]; ++position, row += model.d_model)
        add_position(model.source.positions + position * model.d_model, 1, model.d_model, row);
    encode_chunk(model, {tokens, source.lengths + first, n}, rows, x, threads);
    tokens += rows;
    x += rows * model.d_model;
  }
  return true;
}

}  // namespace transformer
