// Packing of matrices before they are multiplied. A unit has four bytes: one float32, or two bfloat16 that are
// neighbours along the inner axis. B is packed in panels of columns, A in contiguous rows. If float32 is split into
// three bfloat16, each block of sixteen units is stored three times: the first, second and third parts.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "three.h"

namespace transformer {
namespace {

constexpr long AHEAD = 16;            // prefetch distance in units

struct Float32 {
  using Input = float;
  static constexpr long INPUTS = 1, PARTS = 1;
  static VecF32 multiply(VecF32 sum, const char* a, VecI32 b) {
    float x;
    std::memcpy(&x, a, 4);
    return fmadd(broadcast(x), bitcast_f32(b), sum);
  }
  static VecF32 add(VecF32 sum, VecI32 units) { return sum + bitcast_f32(units); }
};

struct Bfloat16 {
  using Input = uint16_t;
  static constexpr long INPUTS = 2, PARTS = 1;
  static VecF32 multiply(VecF32 sum, const char* a, VecI32 b) { return dot_bf16_pairs(sum, a, b); }
  static VecF32 add(VecF32 sum, VecI32 units) {
    constexpr uint16_t ONES[2] = {0x3f80, 0x3f80};
    return multiply(sum, reinterpret_cast<const char*>(ONES), units);
  }
};

// float32 split into three bfloat16 that add up to it: its first eight bits, the next eight, and the remaining ones.
struct Float32AsThree {
  using Input = float;
  static constexpr long INPUTS = 2, PARTS = 3;
  static VecF32 add(VecF32 sum, VecI32 units) { return Bfloat16::add(sum, units); }
};

// Returns sixteen units of neighbouring columns. The inputs are in row `first` and, for bfloat16, the row after it.
VecI32 units_across(Float32, const float* first, long, bool, Mask m) { return bitcast_i32(load(first, m)); }

template <typename T>
VecI32 halves(const T* row, Mask m);
template <>
VecI32 halves(const uint16_t* row, Mask m) {
  return load_bf16_bits(row, m);
}
template <>
VecI32 halves(const float* row, Mask m) {
  return to_bf16_bits(load(row, m));
}

template <typename T>
VecI32 units_across(Bfloat16, const T* first, long stride, bool has_second, Mask m) {
  const VecI32 low = halves(first, m);
  return has_second ? bits_or(low, shift_left(halves(first + stride, m), 16)) : low;
}

// Packs the units of whole vectors of columns from two rows. Same as `units_across`, but without a mask.
void interleave(const uint16_t* row, long stride, long columns, char* to) {
  for (long v = 0; v < columns; v += LANES) store_i32(to + 4 * v, interleave_bf16_rows(row + v, row + stride + v));
}

// Returns the units of one column for the n inputs that start at `from`.
VecI32 units_along(Float32, const float* from, long n) { return bitcast_i32(load(from, tail_mask(n))); }

VecI32 units_along(Bfloat16, const uint16_t* from, long n) { return load_bf16_pairs(from, n); }

VecI32 units_along(Bfloat16, const float* from, long n) {
  return to_bf16_pairs(load(from, tail_mask(n)), n > LANES ? load(from + LANES, tail_mask(n - LANES)) : broadcast(0.0f));
}

// Prefetches elements that are packed soon.
template <typename T>
void prefetch(const T* from, long n) {
  for (long i = 0; i < n; i += 64 / static_cast<long>(sizeof(T)))
    _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T0);
}

// Packs a block. `stride` is the distance between columns if the inputs of a column are contiguous (`is_along`),
// otherwise between inputs.
template <typename P, typename T>
void lay_out(const T* from, long stride, bool is_along, const Piece& piece, char* to) {
  const auto [width, panel, inner, units, first_unit, end_unit] = piece;
  if (!is_along && panel <= 2 * LANES) {  // alternates between panels, so that memory is read contiguously
    for (long u = first_unit; u < end_unit; ++u) {
      for (long i = 0; i < P::INPUTS; ++i) prefetch(from + std::min(inner - 1, (u + AHEAD) * P::INPUTS + i) * stride, width);
      for (long start = 0; start < width; start += panel) {
        char* own = to + 4 * (start * units + u * panel);
        if constexpr (P::INPUTS == 2 && sizeof(T) == 2)
          if (width - start >= panel && u * 2 + 1 < inner) {
            interleave(from + u * 2 * stride + start, stride, panel, own);
            continue;
          }
        for (long v = 0; v < std::min(panel, width - start); v += LANES)
          store_i32(own + 4 * v, units_across(P(), from + u * P::INPUTS * stride + start + v, stride, u * P::INPUTS + 1 < inner,
                                               u * P::INPUTS < inner ? tail_mask(width - start - v) : 0));
      }
    }
    return;
  }
  for (long start = 0; start < width; start += panel) {
    char* own = to + 4 * start * units;
    const long filled = std::min(panel, blocks(width - start, LANES) * LANES);  // vectors beyond these are never read
    if (!is_along) {
      for (long u = first_unit; u < end_unit; ++u) {
        if (start == 0)
          for (long i = 0; i < P::INPUTS; ++i)
            prefetch(from + std::min(inner - 1, (u + AHEAD) * P::INPUTS + i) * stride, width);
        if constexpr (P::INPUTS == 2 && sizeof(T) == 2)
          if (width - start >= panel && u * 2 + 1 < inner) {
            interleave(from + u * 2 * stride + start, stride, panel, own + 4 * u * panel);
            continue;
          }
        for (long i = 0; i < P::INPUTS; ++i)
          prefetch(from + std::min(inner - 1, (u + AHEAD) * P::INPUTS + i) * stride + start, panel);
        for (long v = 0; v < filled; v += LANES)
          store_i32(own + 4 * (u * panel + v),
                     units_across(P(), from + u * P::INPUTS * stride + start + v, stride, u * P::INPUTS + 1 < inner,
                                  u * P::INPUTS < inner ? tail_mask(std::clamp(width - start - v, 0L, LANES)) : 0));
      }
      continue;
    }
    for (long v = 0; v < filled; v += LANES)
      for (long u = first_unit; u < end_unit; u += LANES) {
        VecI32 found[16];
        for (long i = 0; i < 16; ++i)
          found[i] = start + v + i < width
                         ? units_along(P(), from + (start + v + i) * stride + u * P::INPUTS, inner - u * P::INPUTS)
                         : broadcast_i32(0);
        transpose(found);
        for (long i = 0; i < std::min(LANES, end_unit - u); ++i)
          store_i32(own + 4 * ((u + i) * panel + v), found[i]);
      }
  }
}

// Packs sixteen units of 32 neighbouring columns, one cache line of each row of memory, into rows that are `apart`
// bytes apart. Whole lines are read at once, because lines at distances of a power of two map to the same L1 set and
// would be evicted before a second read.
void lay_out_lines(const uint16_t* from, long stride, char* to, long apart) {
  VecI32 low[16], high[16];
  for (long i = 0; i < 16; ++i, from += 2 * stride) interleave_bf16_rows(from, from + stride, low[i], high[i]);
  transpose(low);
  for (long i = 0; i < 16; ++i) store_i32(to + i * apart, low[i]);
  transpose(high);
  for (long i = 0; i < 16; ++i) store_i32(to + (16 + i) * apart, high[i]);
}

// Packs `rows` rows, `apart` bytes apart. If the matrix is transposed, each row is a column in memory. Rows are padded
// with zeros to whole vectors.
template <typename P, typename T>
void lay_out_rows(const T* from, long stride, bool is_transposed, long inner, long rows, char* to, long apart) {
  const long units = blocks(inner, P::INPUTS);
  for (long u = 0; u < units; u += LANES)
    for (long start = 0; start < rows; start += LANES) {
      const long first = u * P::INPUTS;
      if constexpr (P::INPUTS == 2 && sizeof(T) == 2)
        if (is_transposed && start + 2 * LANES <= rows && first + 2 * LANES <= inner) {
          lay_out_lines(from + first * stride + start, stride, to + start * apart + 4 * u, apart);
          start += LANES;
          continue;
        }
      const long width = std::min(LANES, rows - start);
      VecI32 found[16];
      if (is_transposed) {
        for (long i = 0; i < 16; ++i) {
          const long input = first + i * P::INPUTS;
          found[i] = input < inner
                         ? units_across(P(), from + input * stride + start, stride, input + 1 < inner, tail_mask(width))
                         : broadcast_i32(0);
        }
        transpose(found);
      } else {
        for (long i = 0; i < width; ++i) found[i] = units_along(P(), from + (start + i) * stride + first, inner - first);
      }
      for (long i = 0; i < width; ++i)
        store_i32(to + (start + i) * apart + 4 * u, found[i]);
    }
}

// Packs `rows` rows of the matrix, starting at `first`, `apart` bytes apart. The inputs of a packed row are contiguous.
template <typename P>
void lay_out_rows(const Layout& x, long first, long inner, long rows, char* to, long apart) {
  const long offset = first * (x.is_transposed ? 1 : x.stride);
  if constexpr (sizeof(typename P::Input) == 2)
    if (x.is_bfloat16)
      return lay_out_rows<P>(static_cast<const uint16_t*>(x.data) + offset, x.stride, x.is_transposed, inner, rows, to, apart);
  const auto* from = static_cast<const float*>(x.data) + offset;
  if constexpr (P::PARTS == 3)
    lay_out_three_rows(from, x.stride, x.is_transposed, inner, rows, to, apart);
  else
    lay_out_rows<P>(from, x.stride, x.is_transposed, inner, rows, to, apart);
}

}  // namespace
}  // namespace transformer
