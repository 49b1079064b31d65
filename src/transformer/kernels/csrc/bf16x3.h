// bf16x3: float32 split into the sum of three bfloat16 terms, which AMX can multiply: the upper eight bits of the
// significand, the next eight, and the remaining ones. Each block of sixteen k-groups (pairs of elements along K) is
// stored three times: the first, second and third terms.
#pragma once
#include "vectors.h"

#include <algorithm>

namespace transformer {
namespace {

long ceil_div(long n, long size) { return (n + size - 1) / size; }

// Splits x into three bfloat16 terms, returned as float32. Infinities become NaN, and so do all products with them. The
// lower terms of values below 1e-33 may be subnormal, which AMX treats as zero.
void split_bf16x3(VecF32 x, VecF32 (&terms)[3]) {
  const auto truncate = [](VecF32 y) { return bitcast_f32(bits_and(bitcast_i32(y), broadcast_i32(-65536))); };
  terms[0] = truncate(x);
  const VecF32 remainder = x - terms[0];
  terms[1] = truncate(bitcast_f32(add_i32(bitcast_i32(remainder), broadcast_i32(1 << 15))));  // rounded to nearest
  terms[2] = truncate(remainder - terms[1]);
}

// Packs the upper halves of two rows, which are bfloat16 already, into one pair per lane.
VecI32 pack_bf16_pairs(VecF32 first, VecF32 second) {
  return bits_or(shift_right(bitcast_i32(first), 16), bitcast_i32(second));
}

// Splits sixteen k-groups (32 elements along K) of sixteen lines, which are rows of A or columns of B. If a line is
// contiguous in memory (`is_k_contiguous`), `terms[p][i]` has all k-groups of line i, otherwise k-group i of all lines.
// Missing elements are zero.
template <bool is_k_contiguous>
void split_bf16x3(const float* src, long stride, long n_inputs, long n_lines, VecI32 (&terms)[3][16]) {
  for (long i = 0; i < 16; ++i) {
    VecF32 first[3] = {}, second[3] = {};
    if (is_k_contiguous ? i < n_lines : 2 * i < n_inputs) {
      const float* address = src + (is_k_contiguous ? i : 2 * i) * stride;
      split_bf16x3(load(address, tail_mask(is_k_contiguous ? n_inputs : n_lines)), first);
      if (is_k_contiguous ? n_inputs > LANES : 2 * i + 1 < n_inputs)
        split_bf16x3(is_k_contiguous ? load(address + LANES, tail_mask(n_inputs - LANES))
                                     : load(address + stride, tail_mask(n_lines)),
                     second);
    }
    for (int p = 0; p < 3; ++p)
      terms[p][i] = is_k_contiguous ? to_bf16_pairs(first[p], second[p]) : pack_bf16_pairs(first[p], second[p]);
  }
}

// The block of B that one task packs: `width` columns in panels of `panel_width` columns, and a range of their
// k-groups. There may be more k-groups than the K dimension (`inner`) fills; they are zero.
struct PackBlock {
  long width, panel_width, inner, k_groups, first_k_group, end_k_group;
};

// Packs sixteen columns and k-groups of a block. `stride` is the leading dimension: the distance between columns if K
// is contiguous in memory (`is_k_contiguous`), otherwise between rows. The same holds below.
[[maybe_unused]] void pack_b_tile_bf16x3(const float* src, long stride, bool is_k_contiguous, const PackBlock& block,
                                         char* dst, long column, long group) {
  const long width = block.width, panel_width = block.panel_width, inner = block.inner;
  char* tile = dst + 4 * (column / panel_width * panel_width * 3 * block.k_groups + 3 * group * panel_width +
                          column % panel_width);
  if (!is_k_contiguous && width - column >= LANES && 2 * (group + LANES) <= inner) {  // fast path for full vectors
    const float* address = src + 2 * group * stride + column;
    for (long i = 0; i < 16; ++i, address += 2 * stride, tile += 4 * panel_width) {
      VecF32 first[3], second[3];
      split_bf16x3(load(address), first);
      split_bf16x3(load(address + stride), second);
      for (int p = 0; p < 3; ++p) store_i32(tile + 64 * p * panel_width, pack_bf16_pairs(first[p], second[p]));
    }
    return;
  }
  VecI32 terms[3][16];
  is_k_contiguous
      ? split_bf16x3<true>(src + column * stride + 2 * group, stride, inner - 2 * group, width - column, terms)
      : split_bf16x3<false>(src + 2 * group * stride + column, stride, inner - 2 * group, width - column, terms);
  for (int p = 0; p < 3; ++p) {
    if (is_k_contiguous) transpose(terms[p]);
    for (long i = 0; i < 16; ++i) store_i32(tile + 4 * (16 * p + i) * panel_width, terms[p][i]);
  }
}

// Packs a whole block.
[[maybe_unused]] void pack_b_bf16x3(const float* src, long stride, bool is_k_contiguous, const PackBlock& block,
                                    char* dst) {
  if (is_k_contiguous) {
    for (long column = 0; column < block.width; column += LANES)
      for (long group = block.first_k_group; group < block.end_k_group; group += LANES)
        pack_b_tile_bf16x3(src, stride, true, block, dst, column, group);
  } else {
    for (long group = block.first_k_group; group < block.end_k_group; group += LANES)
      for (long column = 0; column < block.width; column += LANES)
        pack_b_tile_bf16x3(src, stride, false, block, dst, column, group);
  }
}

// Packs `rows` rows of A, `row_stride` bytes apart. If A is transposed, each row is a column in memory. Rows are padded
// with zeros to whole tiles.
[[maybe_unused]] void pack_a_bf16x3(const float* src, long stride, bool is_transposed, long inner, long rows, char* dst,
                                    long row_stride) {
  VecI32 terms[3][16];
  for (long group = 0; 2 * group < inner; group += LANES)
    for (long start = 0; start < rows; start += LANES) {
      const long n_rows = rows - start, n_inputs = inner - 2 * group;
      is_transposed ? split_bf16x3<false>(src + 2 * group * stride + start, stride, n_inputs, n_rows, terms)
                    : split_bf16x3<true>(src + start * stride + 2 * group, stride, n_inputs, n_rows, terms);
      for (int p = 0; p < 3; ++p) {
        if (is_transposed) transpose(terms[p]);
        for (long i = 0; i < std::min(LANES, n_rows); ++i)
          store_i32(dst + (start + i) * row_stride + 4 * (3 * group + 16 * p), terms[p][i]);
      }
    }
}

}  // namespace
}  // namespace transformer
