// How matrices are laid out before they are multiplied: in units of four bytes, one float32 or two bfloat16 that follow
// each other along the inner axis; columns of B in panels, rows of A side by side.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels.h"

namespace transformer {
namespace {

constexpr long AHEAD = 16;            // units laid out before which others are asked for

long blocks(long n, long size) { return (n + size - 1) / size; }

struct Float32 {
  using Input = float;
  static constexpr long INPUTS = 1;
  static __m512 multiply(__m512 sum, const char* a, __m512i b) {
    float x;
    std::memcpy(&x, a, 4);
    return _mm512_fmadd_ps(_mm512_set1_ps(x), _mm512_castsi512_ps(b), sum);
  }
};

struct Bfloat16 {
  using Input = uint16_t;
  static constexpr long INPUTS = 2;
  static __m512 multiply(__m512 sum, const char* a, __m512i b) {
    int32_t pair;
    std::memcpy(&pair, a, 4);
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)), reinterpret_cast<__m512bh>(b));
  }
};

// Sixteen units of neighbouring columns, whose inputs are in `first` and, for bfloat16, in the row after it.
__m512i units_across(Float32, const float* first, long, bool, __mmask16 m) { return _mm512_castps_si512(load(first, m)); }

template <typename T>
__m512i halves(const T* row, __mmask16 m);
template <>
__m512i halves(const uint16_t* row, __mmask16 m) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, row));
}
template <>
__m512i halves(const float* row, __mmask16 m) {
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(load(row, m))));
}

template <typename T>
__m512i units_across(Bfloat16, const T* first, long stride, bool has_second, __mmask16 m) {
  const __m512i low = halves(first, m);
  return has_second ? _mm512_or_si512(low, _mm512_slli_epi32(halves(first + stride, m), 16)) : low;
}

// The units of whole vectors of columns, from two rows: what the function above makes, without a mask.
void interleave(const uint16_t* row, long stride, long columns, char* to) {
  alignas(64) static constexpr auto order = [] {
    struct { uint16_t of_one[32]; } places{};
    for (int i = 0; i < 32; ++i) places.of_one[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
    return places;
  }();
  const __m512i places = _mm512_load_si512(order.of_one);
  for (long v = 0; v < columns; v += LANES) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + v));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + stride + v));
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    _mm512_storeu_si512(to + 4 * v, _mm512_permutexvar_epi16(places, both));
  }
}

// The units of one column that begin with inputs `from` to `from` + n.
__m512i units_along(Float32, const float* from, long n) { return _mm512_castps_si512(load(from, lanes(n))); }

__m512i units_along(Bfloat16, const uint16_t* from, long n) {
  const __mmask32 m = n >= 2 * LANES ? 0xffffffffu : (1u << n) - 1;
  return _mm512_maskz_loadu_epi16(m, from);
}

__m512i units_along(Bfloat16, const float* from, long n) {
  const __m512 low = load(from, lanes(n)), high = n > LANES ? load(from + LANES, lanes(n - LANES)) : _mm512_setzero_ps();
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Columns to rows: vector i of the result holds element i of each vector.
void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
  // r[4 a + b], quarter q, holds element 4 q + b of vectors 4 a to 4 a + 3
  for (int b = 0; b < 4; ++b) {
    const __m512i even_low = _mm512_shuffle_i32x4(r[b], r[4 + b], 0x88), odd_low = _mm512_shuffle_i32x4(r[b], r[4 + b], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(r[8 + b], r[12 + b], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(r[8 + b], r[12 + b], 0xdd);
    t[b] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    t[8 + b] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    t[4 + b] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    t[12 + b] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
  std::copy(t, t + 16, r);
}

// What a thread lays out: `width` columns as panels of `panel` columns, of their inputs those of some of the units.
struct Piece {
  long width, panel, inner, first_unit, end_unit;
};

// Asks for what is laid out soon.
template <typename T>
void prefetch(const T* from, long n) {
  for (long i = 0; i < n; i += 64 / static_cast<long>(sizeof(T)))
    _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T0);
}

// Where the inputs of a column lie side by side, `stride` is from column to column, else from input to input.
template <typename P, typename T>
void lay_out(const T* from, long stride, bool is_along, const Piece& piece, char* to) {
  const auto [width, panel, inner, first_unit, end_unit] = piece;
  const long units = blocks(inner, P::INPUTS);
  for (long start = 0; start < width; start += panel) {
    char* own = to + 4 * start * units;
    const long filled = std::min(panel, blocks(width - start, LANES) * LANES);  // nobody reads the vectors after these
    if (!is_along) {
      for (long u = first_unit; u < end_unit; ++u) {
        if constexpr (P::INPUTS == 2 && sizeof(T) == 2)
          if (width - start >= panel && u * 2 + 1 < inner) {
            interleave(from + u * 2 * stride + start, stride, panel, own + 4 * u * panel);
            continue;
          }
        for (long i = 0; i < P::INPUTS; ++i)
          prefetch(from + std::min(inner - 1, (u + AHEAD) * P::INPUTS + i) * stride + start, panel);
        for (long v = 0; v < filled; v += LANES)
          _mm512_storeu_si512(own + 4 * (u * panel + v),
                              units_across(P(), from + u * P::INPUTS * stride + start + v, stride, u * P::INPUTS + 1 < inner,
                                           lanes(std::clamp(width - start - v, 0L, LANES))));
      }
      continue;
    }
    for (long v = 0; v < filled; v += LANES)
      for (long u = first_unit; u < end_unit; u += LANES) {
        __m512i found[16];
        for (long i = 0; i < 16; ++i)
          found[i] = start + v + i < width
                         ? units_along(P(), from + (start + v + i) * stride + u * P::INPUTS, inner - u * P::INPUTS)
                         : _mm512_setzero_si512();
        transpose(found);
        for (long i = 0; i < std::min(LANES, end_unit - u); ++i)
          _mm512_storeu_si512(own + 4 * ((u + i) * panel + v), found[i]);
      }
  }
}

// Sixteen units of 32 neighbouring columns of memory, a line of the cache each, to rows `apart` bytes apart. Lines whose
// distance is a power of two fall on one place of the first cache and do not stay there for a second look.
void lay_out_lines(const uint16_t* from, long stride, char* to, long apart) {
  alignas(64) static constexpr auto order = [] {
    struct { uint16_t low[32], high[32]; } places{};
    for (int i = 0; i < 32; ++i) {
      places.low[i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
      places.high[i] = static_cast<uint16_t>(places.low[i] + 16);
    }
    return places;
  }();
  __m512i low[16], high[16];
  for (long i = 0; i < 16; ++i, from += 2 * stride) {
    const __m512i first = _mm512_loadu_si512(from), second = _mm512_loadu_si512(from + stride);
    low[i] = _mm512_permutex2var_epi16(first, _mm512_load_si512(order.low), second);
    high[i] = _mm512_permutex2var_epi16(first, _mm512_load_si512(order.high), second);
  }
  transpose(low);
  for (long i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * apart, low[i]);
  transpose(high);
  for (long i = 0; i < 16; ++i) _mm512_storeu_si512(to + (16 + i) * apart, high[i]);
}

// `rows` rows to rows `apart` bytes apart, of which one is a column of memory where the matrix is transposed.
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
      __m512i found[16];
      if (is_transposed) {
        for (long i = 0; i < 16; ++i) {
          const long input = first + i * P::INPUTS;
          found[i] = input < inner
                         ? units_across(P(), from + input * stride + start, stride, input + 1 < inner, lanes(width))
                         : _mm512_setzero_si512();
        }
        transpose(found);
      } else {
        for (long i = 0; i < width; ++i) found[i] = units_along(P(), from + (start + i) * stride + first, inner - first);
      }
      for (long i = 0; i < width; ++i)
        _mm512_mask_storeu_epi32(to + (start + i) * apart + 4 * u, lanes(units - u), found[i]);
    }
}

// `rows` rows of the matrix from `first` on, from input to input, `apart` bytes apart.
template <typename P>
void lay_out_rows(const Layout& x, long first, long inner, long rows, char* to, long apart) {
  const long offset = first * (x.is_transposed ? 1 : x.stride);
  if constexpr (P::INPUTS == 2)
    if (x.is_bfloat16)
      return lay_out_rows<P>(static_cast<const uint16_t*>(x.data) + offset, x.stride, x.is_transposed, inner, rows, to, apart);
  lay_out_rows<P>(static_cast<const float*>(x.data) + offset, x.stride, x.is_transposed, inner, rows, to, apart);
}

}  // namespace
}  // namespace transformer
