// Arguments and declarations of the kernels, for Python and for one another.
#pragma once
#include "straggler_backoff.h"
#include "vectors.h"

namespace transformer {

// A packed weight, with the fields of `PackedMatrixArgs` in packed_linear.py, in its order.
struct PackedMatrix {
  const char* weight;      // blocks of columns, see packed_linear.cpp
  const float* bias;       // one per column, or null
  const float* scales;     // int8: scale of each column
  const int32_t* offsets;  // int8: 128 times the sum of each column
  long inner, columns;     // dimensions of W^T
  int precision;           // 0 float32, 1 bfloat16, 2 int8
  int activation;          // 0 none, 1 ReLU, 2 SiLU, 3 GELU, 4 GELU with the tanh approximation
};

// Fields of `AttentionArgs` in attention.py, in its order. Strides are in elements. The heads of a query are
// contiguous, and so are the elements of a head.
struct Attention {
  const void *query, *keys, *values;
  const bool* mask;                  // true = may attend; or null
  const int64_t* last;               // the last position that each row may attend to; or null
  const int32_t* cache_indirection;  // cache row that holds each position of a row; null: all are in its own row
  const int32_t* cache_rows;         // own row of each row of the batch, in the cache and the table; null: its index
  void* out;                         // concatenated heads, with the type of the query
  long batch, queries, positions, heads, key_heads, width;  // heads share keys, as many neighbours as divide evenly
  long query_batch, query_stride;
  long key_batch, key_head, key_stride, value_batch, value_head, value_stride;
  long mask_batch, mask_query, indirection_stride;
  float scale;
  int is_bfloat16;       // type of keys and values, and of the query if `is_full_sequence`
  int is_full_sequence;  // several queries are processed together
  int allow_bf16;        // products over full sequences may be computed in bfloat16
};

// A matrix that is not packed, with the fields of `MatrixArgs` in gemm.py, in its order.
struct MatrixView {
  const void* data;
  long stride;  // elements between rows, or between columns if it is transposed
  int is_bfloat16, is_transposed;
  int is_padded;  // rows of odd length are followed by a zero
};

// Operations applied to a product before it is written, with the fields of `EpilogueArgs` in gemm.py, in its order.
struct Epilogue {
  const float* bias;          // one number per column, or null
  const void* factor_matrix;  // of the inputs' type, or null; the result is 0 where it is not positive
  long factor_stride;
  float factor;         // factor of the result if there is a factor matrix
  int has_derivatives;  // the result is multiplied element by element with the factor matrix
  int accumulate;       // the product is added to the previous contents, float32
  int relu;             // ReLU is applied
  float* row_sums;      // output for the sums of A's rows, or null; with `accumulate`, added to its contents
};

// Queries, keys or values of all heads, with strides in elements. The elements of a head are contiguous.
struct StridedHeads {
  const void* data;
  long batch, head, position;
};

// Fields of `TrainingAttentionArgs` in attention_autograd.py, in its order.
struct TrainingAttention {
  StridedHeads query, keys, values;
  StridedHeads d_query, d_keys, d_values;  // written by the backward pass
  const bool* mask;                        // true = may attend; or null
  void *weights, *out;                     // (batch, heads, queries, positions, even); (batch, queries, heads, width)
  long batch, heads, queries, positions, width, mask_batch, mask_query;
  float scale;
  int is_bfloat16, levels;  // levels: dropout probability in units of 1/65536
  uint64_t seed;
};

// Fields of `NormArgs` in compiled_model.py, in its order.
struct Norm {
  const float *alpha, *beta;  // beta: null for RMSNorm
  float eps;
};

// Fields of `LayerArgs` in compiled_model.py, in its order.
struct Layer {
  const PackedMatrix *queries_keys_values, *attention_out, *linear_1, *linear_2;
  const PackedMatrix* gate;                       // of the feed-forward network; or null
  const PackedMatrix *source_query, *source_out;  // null without cross-attention
  const float *cosines, *sines;                   // rotation of each position, half a head wide; or null
  Norm norms[3];                                  // two or three; the last one belongs to the feed-forward network
  int is_pre;
};

// Number of multiplications from which several threads are faster than one, if all of them are scheduled.
constexpr long MIN_PARALLEL_OPERATIONS = 1 << 19;
constexpr long NORM_OPERATIONS_PER_ELEMENT = 8;  // approximate number per element
// Returns the number of threads for a call, which is 1 during a pause of the calling thread's backoff. It is not to be
// called inside a parallel region.
inline int threads_for(long operations, int threads) {
  return operations < MIN_PARALLEL_OPERATIONS || straggler_backoff().is_active() ? 1 : threads;
}

}  // namespace transformer

extern "C" {
void transformer_packed_linear(const transformer::PackedMatrix* w, const float* x, long rows, float* y, int threads);
void transformer_matmul(const transformer::MatrixView* a, const transformer::MatrixView* b,
                        const transformer::Epilogue* epilogue, void* c, int c_is_bfloat16, long stride, long m, long n,
                        long k, int is_bfloat16, int threads);
void transformer_attention(const transformer::Attention* a, int threads);
void transformer_full_attention(const transformer::Attention* a, int threads);
void transformer_append_to_cache(const float* values, long stride, void* cache, long rows, long heads, long width,
                                 long row_stride, long head_stride, long position_stride, const int64_t* positions,
                                 const int32_t* cache_rows, int is_bfloat16);
void transformer_decoder_layer(const transformer::Layer* layer, transformer::Attention* self_attention,
                               transformer::Attention* cross_attention, const float* input, float* x, long rows,
                               int threads);
void transformer_packed_linear_bf16(const transformer::PackedMatrix* w, const void* x, int x_is_bfloat16, long rows,
                                    void* y, int y_is_bfloat16, int threads);
void transformer_packed_linear_topk(const transformer::PackedMatrix* w, const float* x, long rows, long k,
                                    const bool* forbidden, float* log_p, int64_t* tokens, int threads);
int transformer_embedding_lookup(const transformer::PackedMatrix* w, const int64_t* columns, long n, float factor,
                                 float* out, int threads);
void transformer_add_norm(const float* x, const float* y, const float* alpha, const float* beta, float eps, long rows,
                          long width, float* out, int threads);
}
