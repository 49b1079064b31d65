// What the kernels take and what they are called, for Python and for one another.
#pragma once
#include "vectors.h"

namespace transformer {

// A packed weight; the same fields in the same order as `Matrix` in product.py.
struct Matrix {
  const char* weight;        // panels
  const float* bias;         // one a column, or null
  const float* scales;       // int8: what one unit of each column is worth
  const int32_t* offsets;    // int8: 128 times the sum of each column
  long inner, columns;       // of W^T
  int precision;             // 0 float32, 1 bfloat16, 2 int8
  int activation;            // 0 none, 1 max(0, y), 2 y / (1 + e^-y), 3 GELU, 4 GELU by tanh
};

// The same fields in the same order as `Attention` in attention.py. Strides are in elements; heads of a query lie side
// by side, and so do the elements of a head.
struct Attention {
  const void *query, *keys, *values;
  const bool* mask;        // true = may attend; or null
  const int64_t* last;     // the last position that each row may attend to; or null
  const int32_t* holders;  // which row of keys and values holds each position of a row; or null: its own
  void* out;               // heads side by side, of the type of the query
  long batch, queries, positions, heads, width;
  long query_batch, query_stride;
  long key_batch, key_head, key_stride, value_batch, value_head, value_stride;
  long mask_batch, mask_query, holders_stride;
  float scale;
  int is_bfloat16;         // keys and values, and of whole sequences the query as well
  int is_whole;            // the queries are those of whole sequences
  int may_round;           // of whole sequences: products may be those of bfloat16
};

// A matrix in memory; the same fields in the same order as `Layout` in matmul.py.
struct Layout {
  const void* data;
  long stride;        // elements from row to row, or from column to column where it is transposed
  int is_bfloat16, is_transposed;
  int is_padded;      // rows of odd length have one more element, which is zero
};

// What becomes of the sums of a product; the same fields in the same order as `FinishFields` in matmul.py.
struct Finish {
  const float* bias;    // of each column, or null
  const void* gate;     // of the inputs' type, or null: where it is not above 0, the result is 0
  long gate_stride;
  float factor;         // of a result with a gate
  int is_slope;         // the gate is a slope, by which the result is multiplied
  int is_added;         // to what is there, float32
  int is_rectified;     // max(0, y)
  float* row_sums;      // where the sums of A's rows go, or null; added to what is there if those of the product are
};

// Queries, keys or values of all heads in memory; strides in elements. The elements of a head lie side by side.
struct Heads {
  const void* data;
  long batch, head, position;
};

// The same fields in the same order as `TrainedAttention` in trained_attention.py.
struct TrainedAttention {
  Heads query, keys, values;
  Heads d_query, d_keys, d_values;     // written by backward
  const bool* mask;                    // true = may attend; or null
  void *weights, *out;                 // (batch, heads, queries, positions, even); (batch, queries, heads, width)
  long batch, heads, queries, positions, width, mask_batch, mask_query;
  float scale;
  int is_bfloat16, levels;             // of 65,536 weights, those that are dropped
  uint64_t seed;
};

// The same fields in the same order as `Norm` in decoder.py.
struct Norm {
  const float *alpha, *beta;
  float eps;
};

// The same fields in the same order as `Layer` in decoder.py.
struct Layer {
  const Matrix *queries_keys_values, *self_out, *linear_1, *linear_2;
  const Matrix *source_query, *source_out;  // or null, where there is no source
  Norm norms[3];                            // the network's last, of two or three
  int is_pre;
};

// Multiplications that one thread finishes sooner than several could agree to share them.
constexpr long ONE_THREAD_UP_TO = 1 << 19;
constexpr long OPERATIONS_OF_A_NORM = 8;  // for each number, about
inline int threads_for(long operations, int threads) { return operations >= ONE_THREAD_UP_TO ? threads : 1; }

}  // namespace transformer

extern "C" {
void transformer_product(const transformer::Matrix* w, const float* x, long rows, float* y, int threads);
void transformer_matmul(const transformer::Layout* a, const transformer::Layout* b, const transformer::Finish* finish,
                        void* c, int c_is_bfloat16, long stride, long m, long n, long k, int is_bfloat16, int threads);
void transformer_attention(const transformer::Attention* a, int threads);
void transformer_attention_of_whole(const transformer::Attention* a, int threads);
void transformer_remember(const float* fresh, long stride, void* cache, long rows, long heads, long width,
                          long row_stride, long head_stride, long position_stride, const int64_t* positions,
                          int is_bfloat16);
void transformer_add_norm(const float* x, const float* y, const float* alpha, const float* beta, float eps, long rows,
                          long width, float* out, int threads);
}
