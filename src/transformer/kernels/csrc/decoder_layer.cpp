// One decoding step of a decoder layer: calls the other kernels in sequence, with intermediate results in reused
// memory. This saves the overhead of a dozen calls from Python, which for a small model takes as long as the kernels.
#include "sublayers.h"

#include <cstring>

// `self_attention` and `cross_attention` describe the caches; their queries and outputs are set here. If
// `cross_attention` is null, the layer belongs to a decoder-only model.
extern "C" void transformer_decoder_layer(const transformer::Layer* layer, transformer::Attention* self_attention,
                                          transformer::Attention* cross_attention, const float* input, float* x,
                                          long rows, int threads) {
  using namespace transformer;
  const long heads = self_attention->heads * self_attention->width, width = layer->attention_out->columns;
  const long keys = self_attention->key_heads * self_attention->width, projected = heads + 2 * keys;
  float* attended = scratch<float, ATTENDED>(rows * heads);
  std::memcpy(x, input, rows * width * sizeof(float));
  self_attention->out = attended;
  residual_connection(x, rows, width, layer->norms[0], layer->is_pre, threads, [&](const float* input, float* output) {
    float* projections = scratch<float, PROJECTIONS>(rows * projected);
    multiply(*layer->queries_keys_values, input, rows, projections, threads);
    for (long row = 0; layer->cosines && row < rows; ++row)
      rotate(*layer, projections + row * projected, self_attention->heads + self_attention->key_heads,
             self_attention->width, self_attention->last[row]);
    const auto append_to_cache = [&](const float* new_values, const void* cache, long row, long head, long position) {
      transformer_append_to_cache(new_values, projected, const_cast<void*>(cache), rows, self_attention->key_heads,
                                  self_attention->width, row, head, position, self_attention->last,
                                  self_attention->cache_rows, self_attention->is_bfloat16);
    };
    append_to_cache(projections + heads, self_attention->keys, self_attention->key_batch, self_attention->key_head,
                    self_attention->key_stride);
    append_to_cache(projections + heads + keys, self_attention->values, self_attention->value_batch,
                    self_attention->value_head, self_attention->value_stride);
    self_attention->query = projections;
    self_attention->query_batch = self_attention->query_stride = projected;
    attend(*self_attention, threads);
    multiply(*layer->attention_out, attended, rows, output, threads);
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
                      [&](const float* input, float* output) { feed_forward(*layer, input, rows, output, threads); });
}

extern "C" long transformer_size_of_layer() { return sizeof(transformer::Layer); }
