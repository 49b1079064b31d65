// Vectors of sixteen lanes in one register: AVX-512 with VNNI and bfloat16.
#pragma once
#include "compiler.h"
#ifdef TRANSFORMER_AMX
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,amx-tile,amx-bf16,amx-int8")
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#endif
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace transformer {

constexpr int ACCUMULATOR_REGISTERS = 24;           // of 32 registers
constexpr int ACCUMULATOR_REGISTERS_UNPACKED = 24;  // if operands must be unpacked first
constexpr int REGISTERS_PER_VECTOR = 1;
constexpr int K_GROUPS_PER_ITERATION = 1;   // of the micro-kernel for packed weights
constexpr long COLUMN_BLOCK = 64;           // columns per block of a packed weight
constexpr long KC = 512;                    // k-groups per block of K, whose panel stays in the L2 cache
constexpr long MIN_MC = 48;                 // minimum number of rows per block, if there are enough
constexpr long L2_BLOCK_BYTES = 576 << 10;  // maximum size of a larger block of rows, which stays in the L2 cache
constexpr bool HAS_BF16_DOT = true;         // whether there is a dot product of bfloat16 pairs
constexpr bool READS_A_IN_PLACE = true;

using VecF32 = __m512;
using VecI32 = __m512i;
using Mask = __mmask16;     // one bit for each lane in use
using VecMask = __mmask16;  // result of a comparison

inline VecF32 broadcast(float x) { return _mm512_set1_ps(x); }
inline VecF32 load(const float* x) { return _mm512_loadu_ps(x); }
inline VecF32 load(const float* x, Mask m) { return _mm512_maskz_loadu_ps(m, x); }
inline VecF32 load(const float* x, Mask m, float fill) { return _mm512_mask_loadu_ps(broadcast(fill), m, x); }
inline void store(float* y, VecF32 v) { _mm512_storeu_ps(y, v); }
inline void store(float* y, Mask m, VecF32 v) { _mm512_mask_storeu_ps(y, m, v); }

inline VecF32 fmadd(VecF32 a, VecF32 b, VecF32 c) { return _mm512_fmadd_ps(a, b, c); }
inline VecF32 fnmadd(VecF32 a, VecF32 b, VecF32 c) { return _mm512_fnmadd_ps(a, b, c); }
inline VecF32 fnmsub(VecF32 a, VecF32 b, VecF32 c) { return _mm512_fnmsub_ps(a, b, c); }
inline VecF32 max(VecF32 a, VecF32 b) { return _mm512_max_ps(a, b); }  // if a or b is NaN: b
inline VecF32 min(VecF32 a, VecF32 b) { return _mm512_min_ps(a, b); }
inline VecF32 abs(VecF32 x) { return _mm512_abs_ps(x); }
inline VecF32 round_nearest(VecF32 x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline VecF32 scalef(VecF32 x, VecF32 n) { return _mm512_scalef_ps(x, n); }
inline float reduce_add(VecF32 x) { return _mm512_reduce_add_ps(x); }
inline float reduce_max(VecF32 x) { return _mm512_reduce_max_ps(x); }

inline VecF32 approx_reciprocal(VecF32 x) { return _mm512_rcp14_ps(x); }  // relative error 6e-5

// 1 / x for 1 <= x < 1e38 or NaN, with a relative error of 2e-7. An approximation and one Newton step take a third of
// the time of a division.
inline VecF32 reciprocal(VecF32 x) {
  const VecF32 r = approx_reciprocal(x);
  return r * fnmadd(x, r, broadcast(2.0f));
}

inline VecMask is_negative(VecF32 x) { return _mm512_cmp_ps_mask(x, broadcast(0.0f), _CMP_LT_OQ); }
inline VecMask is_nan(VecF32 x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
inline VecMask cmp_gt(VecF32 a, VecF32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline VecMask cmp_nle(VecF32 a, VecF32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
inline VecMask cmp_neq(VecF32 a, VecF32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
inline VecMask all_true() { return 0xffff; }
inline Mask movemask(VecMask mask) { return mask; }
inline VecF32 select(VecMask mask, VecF32 yes, VecF32 no) { return _mm512_mask_mov_ps(no, mask, yes); }
inline VecF32 maskz(VecMask mask, VecF32 x) { return _mm512_maskz_mov_ps(mask, x); }  // 0 elsewhere

// Loads the booleans selected by m as a mask.
inline Mask load_bool_mask(const bool* x, Mask m) {
  return m & _mm_test_epi8_mask(_mm_maskz_loadu_epi8(m, x), _mm_set1_epi8(-1));
}

// Horizontal sums of four vectors, stored contiguously.
inline void store_reduce_add4(float* y, VecF32 a, VecF32 b, VecF32 c, VecF32 d) {
  const VecF32 ab = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
  const VecF32 cd = _mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d);
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const VecF32 abcd = _mm512_castpd_ps(low) + _mm512_castpd_ps(high);  // partial sums of a, b, c and d in each quarter
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
  _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

inline VecI32 broadcast_i32(int32_t x) { return _mm512_set1_epi32(x); }
inline VecI32 iota() { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }
inline VecI32 load_i32(const void* x) { return _mm512_loadu_si512(x); }
inline void store_i32(void* y, VecI32 v) { _mm512_storeu_si512(y, v); }
// Non-temporal store of one cache line.
inline void stream_store(void* y, VecI32 v) { _mm512_stream_si512(static_cast<__m512i*>(y), v); }
inline void store_i32(void* y, Mask m, VecI32 v) { _mm512_mask_storeu_epi32(y, m, v); }
inline VecI32 convert_to_i32(VecF32 x) { return _mm512_cvtps_epi32(x); }
inline VecF32 convert_to_f32(VecI32 x) { return _mm512_cvtepi32_ps(x); }
inline VecI32 bitcast_i32(VecF32 x) { return _mm512_castps_si512(x); }
inline VecF32 bitcast_f32(VecI32 x) { return _mm512_castsi512_ps(x); }
inline VecI32 add_i32(VecI32 a, VecI32 b) { return _mm512_add_epi32(a, b); }
inline VecI32 sub_i32(VecI32 a, VecI32 b) { return _mm512_sub_epi32(a, b); }
inline VecI32 bits_and(VecI32 a, VecI32 b) { return _mm512_and_si512(a, b); }
inline VecI32 bits_or(VecI32 a, VecI32 b) { return _mm512_or_si512(a, b); }
inline VecI32 bits_xor(VecI32 a, VecI32 b) { return _mm512_xor_si512(a, b); }
inline VecI32 shift_left(VecI32 x, int n) { return _mm512_slli_epi32(x, n); }
inline VecI32 shift_right(VecI32 x, int n) { return _mm512_srli_epi32(x, n); }
inline VecMask cmp_ge(VecI32 a, VecI32 b) { return _mm512_cmpge_epu32_mask(a, b); }  // for non-negative numbers
inline void store_saturated_i8(int8_t* y, Mask m, VecI32 v) { _mm_mask_storeu_epi8(y, m, _mm512_cvtsepi32_epi8(v)); }

// Upper and lower 32 bits of the 64-bit products of lanes. All lanes of b are equal.
inline void mul_hi_lo_u32(VecI32 a, VecI32 b, VecI32& high, VecI32& low) {
  const VecI32 even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
  low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
}

// bfloat16 is the upper half of a float.
inline VecI32 load_bf16_bits(const uint16_t* x, Mask m) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, x));
}
inline VecF32 load(const uint16_t* x, Mask m) { return bitcast_f32(shift_left(load_bf16_bits(x, m), 16)); }
inline void store(uint16_t* y, Mask m, VecF32 v) {
  _mm256_mask_storeu_epi16(y, m, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

// Converts to bfloat16, one per 32-bit lane.
inline VecI32 to_bf16_bits(VecF32 x) { return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x))); }

// Converts two vectors to 32 contiguous bfloat16.
inline VecI32 to_bf16_pairs(VecF32 first, VecF32 second) {
  return reinterpret_cast<VecI32>(_mm512_cvtne2ps_pbh(second, first));
}

// Loads up to sixteen contiguous pairs of bfloat16, of n elements.
inline VecI32 load_bf16_pairs(const uint16_t* x, long n) {
  const __mmask32 m = n >= 32 ? 0xffffffffu : (1u << n) - 1;
  return _mm512_maskz_loadu_epi16(m, x);
}

// Interleaves two rows of sixteen bfloat16: pairs of vertical neighbours.
inline VecI32 interleave_bf16_rows(const uint16_t* first, const uint16_t* second) {
  alignas(64) static constexpr auto permutation = [] {
    struct {
      uint16_t indices[32];
    } table{};
    for (int i = 0; i < 32; ++i) table.indices[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
    return table;
  }();
  const __m256i row_0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i row_1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  const VecI32 joined = _mm512_inserti64x4(_mm512_castsi256_si512(row_0), row_1, 1);
  return _mm512_permutexvar_epi16(_mm512_load_si512(permutation.indices), joined);
}

// Same for 32 columns.
inline void interleave_bf16_rows(const uint16_t* first, const uint16_t* second, VecI32& low, VecI32& high) {
  alignas(64) static constexpr auto permutation = [] {
    struct {
      uint16_t low[32], high[32];
    } table{};
    for (int i = 0; i < 32; ++i) {
      table.low[i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
      table.high[i] = static_cast<uint16_t>(table.low[i] + 16);
    }
    return table;
  }();
  const VecI32 row_0 = load_i32(first), row_1 = load_i32(second);
  low = _mm512_permutex2var_epi16(row_0, _mm512_load_si512(permutation.low), row_1);
  high = _mm512_permutex2var_epi16(row_0, _mm512_load_si512(permutation.high), row_1);
}

// Accumulates the dot products of sixteen pairs of bfloat16 in `sum`.
inline VecF32 dot_bf16_pairs(VecF32 sum, VecI32 a, VecI32 b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Same with one pair broadcast to all lanes.
inline VecF32 dot_bf16_pairs(VecF32 sum, const void* pair, VecI32 pairs) {
  int32_t joined;
  std::memcpy(&joined, pair, 4);
  return dot_bf16_pairs(sum, broadcast_i32(joined), pairs);
}

// Type of quantized inputs: unsigned bytes with the zero point 128, for VNNI.
using QuantizedInput = uint8_t;
constexpr bool HAS_ZERO_POINT_128 = true;
inline void store_quantized(QuantizedInput* y, Mask m, VecI32 v) {
  _mm_mask_storeu_epi8(y, m, _mm512_cvtepi32_epi8(add_i32(v, broadcast_i32(128))));
}

// Accumulates the dot products of one k-group of x, broadcast, and sixteen k-groups of signed bytes in `sum`.
inline VecI32 dot_i8_quads(VecI32 sum, const QuantizedInput* x, const char* w) {
  int32_t quad;
  std::memcpy(&quad, x, 4);
  return _mm512_dpbusd_epi32(sum, broadcast_i32(quad), load_i32(w));
}

// Transposes a matrix of 16 x 16.
inline void transpose(VecI32 (&r)[16]) {
  VecI32 t[16];
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
    const VecI32 even_low = _mm512_shuffle_i32x4(r[b], r[4 + b], 0x88),
                 odd_low = _mm512_shuffle_i32x4(r[b], r[4 + b], 0xdd);
    const VecI32 even_high = _mm512_shuffle_i32x4(r[8 + b], r[12 + b], 0x88);
    const VecI32 odd_high = _mm512_shuffle_i32x4(r[8 + b], r[12 + b], 0xdd);
    t[b] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    t[8 + b] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    t[4 + b] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    t[12 + b] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace transformer
