// Packing of A and B before they are multiplied. A k-group has four bytes, as in VNNI layouts: one float32, or two
// bfloat16 that are neighbours along K. B is packed into panels of columns, A into contiguous rows. If float32 is split
// into three bfloat16 (bf16x3), each block of sixteen k-groups is stored three times: the first, second and third
// terms.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "bf16x3.h"

namespace transformer {
namespace {

constexpr long PREFETCH_DISTANCE = 16;  // in k-groups

struct Float32 {
  using Input = float;
  static constexpr long K_PER_GROUP = 1, TERMS = 1;
  static VecF32 multiply_add_group(VecF32 sum, const char* a, VecI32 b) {
    float x;
    std::memcpy(&x, a, 4);
    return fmadd(broadcast(x), bitcast_f32(b), sum);
  }
  static VecF32 add_group(VecF32 sum, VecI32 k_groups) { return sum + bitcast_f32(k_groups); }
};

struct Bfloat16 {
  using Input = uint16_t;
  static constexpr long K_PER_GROUP = 2, TERMS = 1;
  static VecF32 multiply_add_group(VecF32 sum, const char* a, VecI32 b) { return dot_bf16_pairs(sum, a, b); }
  static VecF32 add_group(VecF32 sum, VecI32 k_groups) {
    constexpr uint16_t ONES[2] = {0x3f80, 0x3f80};
    return multiply_add_group(sum, reinterpret_cast<const char*>(ONES), k_groups);
  }
};

// float32 split into three bfloat16 terms, see bf16x3.h.
struct Float32AsBf16x3 {
  using Input = float;
  static constexpr long K_PER_GROUP = 2, TERMS = 3;
  static VecF32 add_group(VecF32 sum, VecI32 k_groups) { return Bfloat16::add_group(sum, k_groups); }
};

// Loads one k-group of sixteen neighbouring columns from row-major B: from row `first` and, for bfloat16, the next row.
VecI32 load_k_group_row(Float32, const float* first, long, bool, Mask m) { return bitcast_i32(load(first, m)); }

template <typename T>
VecI32 load_as_bf16_bits(const T* row, Mask m);
template <>
VecI32 load_as_bf16_bits(const uint16_t* row, Mask m) {
  return load_bf16_bits(row, m);
}
template <>
VecI32 load_as_bf16_bits(const float* row, Mask m) {
  return to_bf16_bits(load(row, m));
}

template <typename T>
VecI32 load_k_group_row(Bfloat16, const T* first, long stride, bool has_second, Mask m) {
  const VecI32 low = load_as_bf16_bits(first, m);
  return has_second ? bits_or(low, shift_left(load_as_bf16_bits(first + stride, m), 16)) : low;
}

// Packs one k-group of whole vectors of columns from two rows. Same as `load_k_group_row`, but without a mask.
void interleave_row_pair(const uint16_t* row, long stride, long columns, char* dst) {
  for (long v = 0; v < columns; v += LANES) store_i32(dst + 4 * v, interleave_bf16_rows(row + v, row + stride + v));
}

// Loads up to sixteen k-groups of one column, whose n elements along K start at `src`.
VecI32 load_k_group_column(Float32, const float* src, long n) { return bitcast_i32(load(src, tail_mask(n))); }

VecI32 load_k_group_column(Bfloat16, const uint16_t* src, long n) { return load_bf16_pairs(src, n); }

VecI32 load_k_group_column(Bfloat16, const float* src, long n) {
  return to_bf16_pairs(load(src, tail_mask(n)), n > LANES ? load(src + LANES, tail_mask(n - LANES)) : broadcast(0.0f));
}

// Prefetches n elements.
template <typename T>
void prefetch(const T* src, long n) {
  for (long i = 0; i < n; i += 64 / static_cast<long>(sizeof(T)))
    _mm_prefetch(reinterpret_cast<const char*>(src + i), _MM_HINT_T0);
}

// Packs a block of B. `stride` is the leading dimension: the distance between columns if K is contiguous in memory
// (`is_k_contiguous`), otherwise between rows.
template <typename P, typename T>
void pack_b(const T* src, long stride, bool is_k_contiguous, const PackBlock& block, char* dst) {
  const auto [width, panel_width, inner, k_groups, first_k_group, end_k_group] = block;
  if (!is_k_contiguous && panel_width <= 2 * LANES) {  // panels are the inner loop, so that memory is read contiguously
    for (long group = first_k_group; group < end_k_group; ++group) {
      for (long i = 0; i < P::K_PER_GROUP; ++i)
        prefetch(src + std::min(inner - 1, (group + PREFETCH_DISTANCE) * P::K_PER_GROUP + i) * stride, width);
      for (long start = 0; start < width; start += panel_width) {
        char* tile = dst + 4 * (start * k_groups + group * panel_width);
        if constexpr (P::K_PER_GROUP == 2 && sizeof(T) == 2)
          if (width - start >= panel_width && group * 2 + 1 < inner) {
            interleave_row_pair(src + group * 2 * stride + start, stride, panel_width, tile);
            continue;
          }
        for (long v = 0; v < std::min(panel_width, width - start); v += LANES)
          store_i32(tile + 4 * v, load_k_group_row(P(), src + group * P::K_PER_GROUP * stride + start + v, stride,
                                                   group * P::K_PER_GROUP + 1 < inner,
                                                   group * P::K_PER_GROUP < inner ? tail_mask(width - start - v) : 0));
      }
    }
    return;
  }
  for (long start = 0; start < width; start += panel_width) {
    char* tile = dst + 4 * start * k_groups;
    const long filled_columns =
        std::min(panel_width, ceil_div(width - start, LANES) * LANES);  // vectors beyond these are never read
    if (!is_k_contiguous) {
      for (long group = first_k_group; group < end_k_group; ++group) {
        if (start == 0)
          for (long i = 0; i < P::K_PER_GROUP; ++i)
            prefetch(src + std::min(inner - 1, (group + PREFETCH_DISTANCE) * P::K_PER_GROUP + i) * stride, width);
        if constexpr (P::K_PER_GROUP == 2 && sizeof(T) == 2)
          if (width - start >= panel_width && group * 2 + 1 < inner) {
            interleave_row_pair(src + group * 2 * stride + start, stride, panel_width, tile + 4 * group * panel_width);
            continue;
          }
        for (long i = 0; i < P::K_PER_GROUP; ++i)
          prefetch(src + std::min(inner - 1, (group + PREFETCH_DISTANCE) * P::K_PER_GROUP + i) * stride + start,
                   panel_width);
        for (long v = 0; v < filled_columns; v += LANES)
          store_i32(
              tile + 4 * (group * panel_width + v),
              load_k_group_row(
                  P(), src + group * P::K_PER_GROUP * stride + start + v, stride, group * P::K_PER_GROUP + 1 < inner,
                  group * P::K_PER_GROUP < inner ? tail_mask(std::clamp(width - start - v, 0L, LANES)) : 0));
      }
      continue;
    }
    for (long v = 0; v < filled_columns; v += LANES)
      for (long group = first_k_group; group < end_k_group; group += LANES) {
        VecI32 loaded[16];
        for (long i = 0; i < 16; ++i)
          loaded[i] = start + v + i < width
                          ? load_k_group_column(P(), src + (start + v + i) * stride + group * P::K_PER_GROUP,
                                                inner - group * P::K_PER_GROUP)
                          : broadcast_i32(0);
        transpose(loaded);
        for (long i = 0; i < std::min(LANES, end_k_group - group); ++i)
          store_i32(tile + 4 * ((group + i) * panel_width + v), loaded[i]);
      }
  }
}

// Transposes sixteen k-groups of 32 rows of A, one cache line of each row of memory, into packed rows that are
// `row_stride` bytes apart. Whole lines are read at once, because lines at distances of a power of two map to the same
// L1 set and would be evicted before a second read (conflict misses).
void pack_a_cache_lines(const uint16_t* src, long stride, char* dst, long row_stride) {
  VecI32 low[16], high[16];
  for (long i = 0; i < 16; ++i, src += 2 * stride) interleave_bf16_rows(src, src + stride, low[i], high[i]);
  transpose(low);
  for (long i = 0; i < 16; ++i) store_i32(dst + i * row_stride, low[i]);
  transpose(high);
  for (long i = 0; i < 16; ++i) store_i32(dst + (16 + i) * row_stride, high[i]);
}

// Packs `rows` rows of A, `row_stride` bytes apart. If A is transposed, each row is a column in memory. Rows are padded
// with zeros to whole vectors.
template <typename P, typename T>
void pack_a(const T* src, long stride, bool is_transposed, long inner, long rows, char* dst, long row_stride) {
  const long k_groups = ceil_div(inner, P::K_PER_GROUP);
  for (long group = 0; group < k_groups; group += LANES)
    for (long start = 0; start < rows; start += LANES) {
      const long first = group * P::K_PER_GROUP;
      if constexpr (P::K_PER_GROUP == 2 && sizeof(T) == 2)
        if (is_transposed && start + 2 * LANES <= rows && first + 2 * LANES <= inner) {
          pack_a_cache_lines(src + first * stride + start, stride, dst + start * row_stride + 4 * group, row_stride);
          start += LANES;
          continue;
        }
      const long width = std::min(LANES, rows - start);
      VecI32 loaded[16];
      if (is_transposed) {
        for (long i = 0; i < 16; ++i) {
          const long row = first + i * P::K_PER_GROUP;
          loaded[i] = row < inner
                          ? load_k_group_row(P(), src + row * stride + start, stride, row + 1 < inner, tail_mask(width))
                          : broadcast_i32(0);
        }
        transpose(loaded);
      } else {
        for (long i = 0; i < width; ++i)
          loaded[i] = load_k_group_column(P(), src + (start + i) * stride + first, inner - first);
      }
      for (long i = 0; i < width; ++i) store_i32(dst + (start + i) * row_stride + 4 * group, loaded[i]);
    }
}

// Packs `rows` rows of A, starting at `first`, `row_stride` bytes apart. Packed rows are contiguous along K.
template <typename P>
void pack_a(const MatrixView& x, long first, long inner, long rows, char* dst, long row_stride) {
  const long offset = first * (x.is_transposed ? 1 : x.stride);
  if constexpr (sizeof(typename P::Input) == 2)
    if (x.is_bfloat16)
      return pack_a<P>(static_cast<const uint16_t*>(x.data) + offset, x.stride, x.is_transposed, inner, rows, dst,
                       row_stride);
  const auto* src = static_cast<const float*>(x.data) + offset;
  if constexpr (P::TERMS == 3)
    pack_a_bf16x3(src, x.stride, x.is_transposed, inner, rows, dst, row_stride);
  else
    pack_a<P>(src, x.stride, x.is_transposed, inner, rows, dst, row_stride);
}

}  // namespace
}  // namespace transformer
