// Vectors of sixteen numbers in one register: AVX-512 with VNNI and bfloat16.
#pragma once
#include "compiler.h"
#ifdef TRANSFORMER_TILES
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,amx-tile,amx-bf16,amx-int8")
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#endif
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace transformer {

constexpr int REGISTERS_OF_A_TILE = 24;  // for accumulators, of 32 registers
constexpr int REGISTERS_OF_A_MIXED_TILE = 24;  // if factors are unpacked first
constexpr int REGISTERS_OF_A_VECTOR = 1;
constexpr long STRIP = 64;        // contiguous columns of a packed weight
constexpr long DEPTH = 512;       // length of a part of the inner axis, whose panel stays in the L2 cache
constexpr long LEAST_ROWS = 48;        // minimum number of rows in a group, if there are enough
constexpr long HELD_BYTES = 576 << 10;  // maximum size of a larger group, which stays in the L2 cache
constexpr bool MULTIPLIES_PAIRS = true;  // whether an instruction multiplies pairs of bfloat16
constexpr bool READS_ROWS_IN_PLACE = true;

using Floats = __m512;
using Ints = __m512i;
using Mask = __mmask16;   // one bit for each lane in use
using Where = __mmask16;  // result of a comparison

inline Floats spread(float x) { return _mm512_set1_ps(x); }
inline Floats load(const float* x) { return _mm512_loadu_ps(x); }
inline Floats load(const float* x, Mask m) { return _mm512_maskz_loadu_ps(m, x); }
inline Floats load(const float* x, Mask m, float otherwise) { return _mm512_mask_loadu_ps(spread(otherwise), m, x); }
inline void store(float* y, Floats v) { _mm512_storeu_ps(y, v); }
inline void store(float* y, Mask m, Floats v) { _mm512_mask_storeu_ps(y, m, v); }

inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats negative_multiply_add(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
inline Floats negative_multiply_subtract(Floats a, Floats b, Floats c) { return _mm512_fnmsub_ps(a, b, c); }
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }  // if a or b is NaN: b
inline Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats absolute(Floats x) { return _mm512_abs_ps(x); }
inline Floats rounded(Floats x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Floats times_power_of_two(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
inline float sum_of(Floats x) { return _mm512_reduce_add_ps(x); }
inline float largest_of(Floats x) { return _mm512_reduce_max_ps(x); }

inline Floats rough_reciprocal(Floats x) { return _mm512_rcp14_ps(x); }  // relative error 6e-5

// 1 / x for 1 <= x < 1e38 or NaN, with a relative error of 2e-7. An approximation and one Newton step take a third of
// the time of a division.
inline Floats reciprocal(Floats x) {
  const Floats r = rough_reciprocal(x);
  return r * negative_multiply_add(x, r, spread(2.0f));
}

inline Where is_negative(Floats x) { return _mm512_cmp_ps_mask(x, spread(0.0f), _CMP_LT_OQ); }
inline Where is_nan(Floats x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
inline Where is_above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Where is_above_or_nan(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
inline Where differs(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
inline Where everywhere() { return 0xffff; }
inline Mask bits_of(Where w) { return w; }
inline Floats choose(Where w, Floats yes, Floats no) { return _mm512_mask_mov_ps(no, w, yes); }
inline Floats keep(Where w, Floats x) { return _mm512_maskz_mov_ps(w, x); }  // 0 elsewhere

// Returns which of the bytes selected by m are true.
inline Mask are_true(const bool* x, Mask m) {
  return m & _mm_test_epi8_mask(_mm_maskz_loadu_epi8(m, x), _mm_set1_epi8(-1));
}

// Stores the sums of four vectors contiguously.
inline void store_sums(float* y, Floats a, Floats b, Floats c, Floats d) {
  const Floats ab = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
  const Floats cd = _mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d);
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const Floats abcd = _mm512_castpd_ps(low) + _mm512_castpd_ps(high);  // partial sums of a, b, c and d in each quarter
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
  _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

inline Ints spread_int(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints counting() { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }
inline Ints load_ints(const void* x) { return _mm512_loadu_si512(x); }
inline void store_ints(void* y, Ints v) { _mm512_storeu_si512(y, v); }
// Non-temporal store of one cache line.
inline void pass_on(void* y, Ints v) { _mm512_stream_si512(static_cast<__m512i*>(y), v); }
inline void store_ints(void* y, Mask m, Ints v) { _mm512_mask_storeu_epi32(y, m, v); }
inline Ints to_ints(Floats x) { return _mm512_cvtps_epi32(x); }
inline Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
inline Ints as_ints(Floats x) { return _mm512_castps_si512(x); }
inline Floats as_floats(Ints x) { return _mm512_castsi512_ps(x); }
inline Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints subtract_ints(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints bits_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints bits_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints bits_xor(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
inline Ints shift_left(Ints x, int n) { return _mm512_slli_epi32(x, n); }
inline Ints shift_right(Ints x, int n) { return _mm512_srli_epi32(x, n); }
inline Where at_least(Ints a, Ints b) { return _mm512_cmpge_epu32_mask(a, b); }  // for non-negative numbers
inline void store_saturated(int8_t* y, Mask m, Ints v) { _mm_mask_storeu_epi8(y, m, _mm512_cvtsepi32_epi8(v)); }

// The upper and lower 32 bits of the 64-bit products of lanes. All lanes of b are equal.
inline void multiply_wide(Ints a, Ints b, Ints& high, Ints& low) {
  const Ints even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
  low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
}

// bfloat16 is the upper half of a float.
inline Ints load_halves(const uint16_t* x, Mask m) { return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, x)); }
inline Floats load(const uint16_t* x, Mask m) { return as_floats(shift_left(load_halves(x, m), 16)); }
inline void store(uint16_t* y, Mask m, Floats v) {
  _mm256_mask_storeu_epi16(y, m, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

// Converts numbers to bfloat16, one per lane.
inline Ints to_halves(Floats x) { return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x))); }

// Converts numbers to pairs of bfloat16: first those of `first`, then those of `second`.
inline Ints to_pairs(Floats first, Floats second) {
  return reinterpret_cast<Ints>(_mm512_cvtne2ps_pbh(second, first));
}

// Loads up to sixteen contiguous pairs of bfloat16, from n numbers.
inline Ints load_pairs(const uint16_t* x, long n) {
  const __mmask32 m = n >= 32 ? 0xffffffffu : (1u << n) - 1;
  return _mm512_maskz_loadu_epi16(m, x);
}

// Pairs each number of the first row with the number below it in the second row.
inline Ints pairs_across(const uint16_t* first, const uint16_t* second) {
  alignas(64) static constexpr auto order = [] {
    struct { uint16_t of_one[32]; } places{};
    for (int i = 0; i < 32; ++i) places.of_one[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
    return places;
  }();
  const __m256i above = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i below = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  const Ints both = _mm512_inserti64x4(_mm512_castsi256_si512(above), below, 1);
  return _mm512_permutexvar_epi16(_mm512_load_si512(order.of_one), both);
}

// Same for 32 numbers of each row.
inline void pairs_across(const uint16_t* first, const uint16_t* second, Ints& low, Ints& high) {
  alignas(64) static constexpr auto order = [] {
    struct { uint16_t low[32], high[32]; } places{};
    for (int i = 0; i < 32; ++i) {
      places.low[i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
      places.high[i] = static_cast<uint16_t>(places.low[i] + 16);
    }
    return places;
  }();
  const Ints above = load_ints(first), below = load_ints(second);
  low = _mm512_permutex2var_epi16(above, _mm512_load_si512(order.low), below);
  high = _mm512_permutex2var_epi16(above, _mm512_load_si512(order.high), below);
}

// Adds the products of sixteen pairs of bfloat16 and sixteen other pairs to `sum`.
inline Floats add_pair_products(Floats sum, Ints a, Ints b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Same for one pair, which is multiplied by sixteen pairs.
inline Floats add_pair_products(Floats sum, const void* pair, Ints pairs) {
  int32_t both;
  std::memcpy(&both, pair, 4);
  return add_pair_products(sum, spread_int(both), pairs);
}

// Operand format of quantized rows: bytes with an offset of 128.
using Byte = uint8_t;
constexpr bool BYTES_ARE_AROUND_128 = true;
inline void store_bytes(Byte* y, Mask m, Ints v) {
  _mm_mask_storeu_epi8(y, m, _mm512_cvtepi32_epi8(add_ints(v, spread_int(128))));
}

// Adds the products of four bytes and sixteen groups of four signed bytes to `sum`.
inline Ints add_four_products(Ints sum, const Byte* four, const char* fours) {
  int32_t all;
  std::memcpy(&all, four, 4);
  return _mm512_dpbusd_epi32(sum, spread_int(all), load_ints(fours));
}

// Transposes: vector i of the result holds element i of each vector.
inline void transpose(Ints (&r)[16]) {
  Ints t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
  // Quarter q of r[4 a + b] now holds element 4 q + b of vectors 4 a to 4 a + 3.
  for (int b = 0; b < 4; ++b) {
    const Ints even_low = _mm512_shuffle_i32x4(r[b], r[4 + b], 0x88), odd_low = _mm512_shuffle_i32x4(r[b], r[4 + b], 0xdd);
    const Ints even_high = _mm512_shuffle_i32x4(r[8 + b], r[12 + b], 0x88);
    const Ints odd_high = _mm512_shuffle_i32x4(r[8 + b], r[12 + b], 0xdd);
    t[b] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    t[8 + b] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    t[4 + b] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    t[12 + b] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace transformer
