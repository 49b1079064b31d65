// One decoding step of a decoder layer: calls the other kernels in sequence, with intermediate results in reused
// memory. This saves the overhead of a dozen calls from Python, which for a small model takes as long as the kernels.
#include "kernels.h"

#include <cstring>

namespace transformer {
namespace {

enum {
  PROJECTIONS = 40,
  ATTENDED,
  SUBLAYER_OUTPUT,
  NORMALIZED,
  INNER
};  // scratch buffers that the called kernels do not use

void multiply(const PackedMatrix& w, const float* x, long rows, float* y, int threads) {
  transformer_packed_linear(&w, x, rows, y, threads_for(rows * w.inner * w.columns, threads));
}

void attend(const Attention& a, int threads) {
  transformer_attention(&a, threads_for(4 * a.batch * a.heads * a.queries * a.positions * a.width, threads));
}

// Applies a sub-layer and its residual connection to the residual stream x. `sublayer` maps its input to its output.
template <typename Sublayer>
void residual_connection(float* x, long rows, long width, const Norm& norm, bool is_pre, int threads,
                         Sublayer sublayer) {
  float* sublayer_output = scratch<float, SUBLAYER_OUTPUT>(rows * width);
  threads = threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * width, threads);
  if (!is_pre) {
    sublayer(x, sublayer_output);
    transformer_add_norm(x, sublayer_output, norm.alpha, norm.beta, norm.eps, rows, width, x, threads);
    return;
  }
  float* normalized = scratch<float, NORMALIZED>(rows * width);
  transformer_add_norm(x, nullptr, norm.alpha, norm.beta, norm.eps, rows, width, normalized, threads);
  sublayer(normalized, sublayer_output);
  for (long i = 0; i < rows * width; i += LANES) {
    const Mask m = tail_mask(rows * width - i);
    store(x + i, m, load(x + i, m) + load(sublayer_output + i, m));
  }
}

}  // namespace
}  // namespace transformer

// `self_attention` and `cross_attention` describe the caches; their queries and outputs are set here. If
// `cross_attention` is null, the layer belongs to a decoder-only model.
extern "C" void transformer_decoder_layer(const transformer::DecoderLayer* layer,
                                          transformer::Attention* self_attention,
                                          transformer::Attention* cross_attention, const float* input, float* x,
                                          long rows, int threads) {
  using namespace transformer;
  const long heads = self_attention->heads * self_attention->width, width = layer->self_out->columns;
  float* attended = scratch<float, ATTENDED>(rows * heads);
  std::memcpy(x, input, rows * width * sizeof(float));
  self_attention->out = attended;
  residual_connection(x, rows, width, layer->norms[0], layer->is_pre, threads, [&](const float* input, float* output) {
    float* projections = scratch<float, PROJECTIONS>(rows * 3 * heads);
    multiply(*layer->queries_keys_values, input, rows, projections, threads);
    const auto append_to_cache = [&](const float* new_values, const void* cache, long row, long head, long position) {
      transformer_append_to_cache(new_values, 3 * heads, const_cast<void*>(cache), rows, self_attention->heads,
                                  self_attention->width, row, head, position, self_attention->last,
                                  self_attention->is_bfloat16);
    };
    append_to_cache(projections + heads, self_attention->keys, self_attention->key_batch, self_attention->key_head,
                    self_attention->key_stride);
    append_to_cache(projections + 2 * heads, self_attention->values, self_attention->value_batch,
                    self_attention->value_head, self_attention->value_stride);
    self_attention->query = projections;
    self_attention->query_batch = self_attention->query_stride = 3 * heads;
    attend(*self_attention, threads);
    multiply(*layer->self_out, attended, rows, output, threads);
  });
  if (cross_attention) {
    cross_attention->out = attended;
    residual_connection(x, rows, width, layer->norms[1], layer->is_pre, threads,
                        [&](const float* input, float* output) {
                          float* projections = scratch<float, PROJECTIONS>(rows * heads);
                          multiply(*layer->source_query, input, rows, projections, threads);
                          cross_attention->query = projections;
                          cross_attention->query_batch = cross_attention->queries * heads;
                          cross_attention->query_stride = heads;
                          attend(*cross_attention, threads);
                          multiply(*layer->source_out, attended, rows, output, threads);
                        });
  }
  residual_connection(x, rows, width, layer->norms[cross_attention ? 2 : 1], layer->is_pre, threads,
                      [&](const float* input, float* output) {
                        float* inner = scratch<float, INNER>(rows * layer->linear_1->columns);
                        multiply(*layer->linear_1, input, rows, inner, threads);
                        multiply(*layer->linear_2, inner, rows, output, threads);
                      });
}

extern "C" long transformer_size_of_decoder_layer() { return sizeof(transformer::DecoderLayer); }
