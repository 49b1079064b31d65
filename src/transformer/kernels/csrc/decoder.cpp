// One decoding step of a decoder layer: calls the other kernels in sequence, with intermediate results in reused
// memory. This saves the overhead of a dozen calls from Python, which for a small model takes as long as the kernels.
#include "kernels.h"

#include <cstring>

namespace transformer {
namespace {

enum { PROJECTED = 40, FETCHED, ADDED, NORMED, INNER };  // scratch buffers that the called kernels do not use

void multiply(const PackedMatrix& w, const float* x, long rows, float* y, int threads) {
  transformer_product(&w, x, rows, y, threads_for(rows * w.inner * w.columns, threads));
}

void attend(const Attention& a, int threads) {
  transformer_attention(&a, threads_for(4 * a.batch * a.heads * a.queries * a.positions * a.width, threads));
}

// Applies a sub-layer and its residual connection to the residual stream x. `sublayer` maps its input to its output.
template <typename Sublayer>
void residual(float* x, long rows, long width, const Norm& norm, bool is_pre, int threads, Sublayer sublayer) {
  float* added = scratch<float, ADDED>(rows * width);
  threads = threads_for(NORM_OPERATIONS_PER_ELEMENT * rows * width, threads);
  if (!is_pre) {
    sublayer(x, added);
    transformer_add_norm(x, added, norm.alpha, norm.beta, norm.eps, rows, width, x, threads);
    return;
  }
  float* normed = scratch<float, NORMED>(rows * width);
  transformer_add_norm(x, nullptr, norm.alpha, norm.beta, norm.eps, rows, width, normed, threads);
  sublayer(normed, added);
  for (long i = 0; i < rows * width; i += LANES) {
    const Mask m = tail_mask(rows * width - i);
    store(x + i, m, load(x + i, m) + load(added + i, m));
  }
}

}  // namespace
}  // namespace transformer

// `own` (self-attention) and `source` (cross-attention) describe the caches; their queries and outputs are set here. If
// `source` is null, the layer belongs to a decoder-only model.
extern "C" void transformer_decoder_layer(const transformer::DecoderLayer* layer, transformer::Attention* own,
                                          transformer::Attention* source, const float* from, float* x, long rows,
                                          int threads) {
  using namespace transformer;
  const long heads = own->heads * own->width, width = layer->self_out->columns;
  float* fetched = scratch<float, FETCHED>(rows * heads);
  std::memcpy(x, from, rows * width * sizeof(float));
  own->out = fetched;
  residual(x, rows, width, layer->norms[0], layer->is_pre, threads, [&](const float* from, float* to) {
    float* projected = scratch<float, PROJECTED>(rows * 3 * heads);
    multiply(*layer->queries_keys_values, from, rows, projected, threads);
    const auto remember = [&](const float* fresh, const void* cache, long row, long head, long position) {
      transformer_remember(fresh, 3 * heads, const_cast<void*>(cache), rows, own->heads, own->width, row, head,
                           position, own->last, own->is_bfloat16);
    };
    remember(projected + heads, own->keys, own->key_batch, own->key_head, own->key_stride);
    remember(projected + 2 * heads, own->values, own->value_batch, own->value_head, own->value_stride);
    own->query = projected;
    own->query_batch = own->query_stride = 3 * heads;
    attend(*own, threads);
    multiply(*layer->self_out, fetched, rows, to, threads);
  });
  if (source) {
    source->out = fetched;
    residual(x, rows, width, layer->norms[1], layer->is_pre, threads, [&](const float* from, float* to) {
      float* projected = scratch<float, PROJECTED>(rows * heads);
      multiply(*layer->source_query, from, rows, projected, threads);
      source->query = projected;
      source->query_batch = source->queries * heads;
      source->query_stride = heads;
      attend(*source, threads);
      multiply(*layer->source_out, fetched, rows, to, threads);
    });
  }
  residual(x, rows, width, layer->norms[source ? 2 : 1], layer->is_pre, threads, [&](const float* from, float* to) {
    float* inner = scratch<float, INNER>(rows * layer->linear_1->columns);
    multiply(*layer->linear_1, from, rows, inner, threads);
    multiply(*layer->linear_2, inner, rows, to, threads);
  });
}

extern "C" long transformer_size_of_layer() { return sizeof(transformer::DecoderLayer); }
