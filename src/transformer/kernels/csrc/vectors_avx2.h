// Vectors of sixteen lanes in two registers: AVX2 with FMA, which most processors have supported since 2013.
#pragma once
#ifdef TRANSFORMER_AVX_VNNI
#pragma GCC target("avx2,fma,avxvnni")
#else
#pragma GCC target("avx2,fma")
#endif
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace transformer {

constexpr int ACCUMULATOR_REGISTERS = 12;          // of 16 registers
constexpr int ACCUMULATOR_REGISTERS_UNPACKED = 8;  // if operands must be unpacked first
constexpr int REGISTERS_PER_VECTOR = 2;
constexpr int K_GROUPS_PER_ITERATION = 2;   // of the micro-kernel for packed weights, to save loop instructions
constexpr long COLUMN_BLOCK = 16;           // columns per block of a packed weight
constexpr long KC = 256;                    // k-groups per block of K, whose panel stays in the L1 cache
constexpr long MIN_MC = 24;                 // minimum number of rows per block, if there are enough
constexpr long L2_BLOCK_BYTES = 128 << 10;  // maximum size of a larger block of rows, which stays in the L2 cache
constexpr bool HAS_BF16_DOT = false;        // whether there is a dot product of bfloat16 pairs
constexpr bool READS_A_IN_PLACE = false;    // panels are so narrow that rows are read often, so they are packed

struct VecF32 {
  __m256 low, high;
};
struct VecI32 {
  __m256i low, high;
};
using Mask = uint16_t;  // one bit for each lane in use
struct VecMask {        // result of a comparison: all bits of a lane are set, or none
  __m256 low, high;
};

constexpr Mask ALL_LANES = 0xffff;

inline VecF32 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline VecF32 operator+(VecF32 a, VecF32 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline VecF32 operator-(VecF32 a, VecF32 b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline VecF32 operator*(VecF32 a, VecF32 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline VecF32 fmadd(VecF32 a, VecF32 b, VecF32 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline VecF32 fnmadd(VecF32 a, VecF32 b, VecF32 c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
inline VecF32 fnmsub(VecF32 a, VecF32 b, VecF32 c) {
  return {_mm256_fnmsub_ps(a.low, b.low, c.low), _mm256_fnmsub_ps(a.high, b.high, c.high)};
}
inline VecF32 max(VecF32 a, VecF32 b) {  // if a or b is NaN: b
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline VecF32 min(VecF32 a, VecF32 b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline VecF32 abs(VecF32 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
inline VecF32 round_nearest(VecF32 x) {
  constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, NEAREST), _mm256_round_ps(x.high, NEAREST)};
}
inline VecF32 reciprocal(VecF32 x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  return {_mm256_div_ps(one, x.low), _mm256_div_ps(one, x.high)};
}

inline VecF32 approx_reciprocal(VecF32 x) { return reciprocal(x); }

inline float reduce_add(VecF32 x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float reduce_max(VecF32 x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline VecI32 broadcast_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline VecI32 iota() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
inline VecI32 load_i32(const void* x) {
  const auto* src = static_cast<const __m256i*>(x);
  return {_mm256_loadu_si256(src), _mm256_loadu_si256(src + 1)};
}
inline void store_i32(void* y, VecI32 v) {
  auto* dst = static_cast<__m256i*>(y);
  _mm256_storeu_si256(dst, v.low);
  _mm256_storeu_si256(dst + 1, v.high);
}
inline void stream_store(void* y, VecI32 v) {  // non-temporal store of one cache line
  auto* dst = static_cast<__m256i*>(y);
  _mm256_stream_si256(dst, v.low);
  _mm256_stream_si256(dst + 1, v.high);
}
inline VecI32 bitcast_i32(VecF32 x) { return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)}; }
inline VecF32 bitcast_f32(VecI32 x) { return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)}; }
inline VecI32 convert_to_i32(VecF32 x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
inline VecF32 convert_to_f32(VecI32 x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
inline VecI32 add_i32(VecI32 a, VecI32 b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline VecI32 sub_i32(VecI32 a, VecI32 b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
inline VecI32 bits_and(VecI32 a, VecI32 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
inline VecI32 bits_or(VecI32 a, VecI32 b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
inline VecI32 bits_xor(VecI32 a, VecI32 b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
inline VecI32 shift_left(VecI32 x, int n) { return {_mm256_slli_epi32(x.low, n), _mm256_slli_epi32(x.high, n)}; }
inline VecI32 shift_right(VecI32 x, int n) { return {_mm256_srli_epi32(x.low, n), _mm256_srli_epi32(x.high, n)}; }

// x 2^n for -150 <= n <= 0. Two factors are needed, because 2^-150 is not a float.
inline __m256 scalef(__m256 x, __m256i n) {
  const __m256i half = _mm256_srai_epi32(n, 1), rest = _mm256_sub_epi32(n, half), bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
inline VecF32 scalef(VecF32 x, VecF32 n) {
  return {scalef(x.low, _mm256_cvtps_epi32(n.low)), scalef(x.high, _mm256_cvtps_epi32(n.high))};
}

inline VecMask to_vec_mask(VecF32 x) { return {x.low, x.high}; }
inline VecMask to_vec_mask(Mask m) {
  const VecI32 bits{_mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128),
                    _mm256_setr_epi32(256, 512, 1024, 2048, 4096, 8192, 16384, 32768)};
  const VecI32 set = bits_and(bits, broadcast_i32(m));
  return to_vec_mask(bitcast_f32({_mm256_cmpeq_epi32(set.low, bits.low), _mm256_cmpeq_epi32(set.high, bits.high)}));
}
inline VecMask all_true() { return to_vec_mask(bitcast_f32(broadcast_i32(-1))); }
template <int predicate>
VecMask compare(VecF32 a, VecF32 b) {
  return {_mm256_cmp_ps(a.low, b.low, predicate), _mm256_cmp_ps(a.high, b.high, predicate)};
}
inline VecMask is_negative(VecF32 x) { return compare<_CMP_LT_OQ>(x, broadcast(0.0f)); }
inline VecMask is_nan(VecF32 x) { return compare<_CMP_UNORD_Q>(x, x); }
inline VecMask cmp_gt(VecF32 a, VecF32 b) { return compare<_CMP_GT_OQ>(a, b); }
inline VecMask cmp_nle(VecF32 a, VecF32 b) { return compare<_CMP_NLE_UQ>(a, b); }
inline VecMask cmp_neq(VecF32 a, VecF32 b) { return compare<_CMP_NEQ_UQ>(a, b); }
inline VecMask cmp_ge(VecI32 a, VecI32 b) {  // for non-negative numbers
  const VecI32 b_minus_1 = sub_i32(b, broadcast_i32(1));
  return to_vec_mask(
      bitcast_f32({_mm256_cmpgt_epi32(a.low, b_minus_1.low), _mm256_cmpgt_epi32(a.high, b_minus_1.high)}));
}
inline Mask movemask(VecMask mask) {
  return static_cast<Mask>(_mm256_movemask_ps(mask.low) | _mm256_movemask_ps(mask.high) << 8);
}
inline VecF32 select(VecMask mask, VecF32 yes, VecF32 no) {
  return {_mm256_blendv_ps(no.low, yes.low, mask.low), _mm256_blendv_ps(no.high, yes.high, mask.high)};
}
inline VecF32 select(Mask m, VecF32 yes, VecF32 no) { return m == ALL_LANES ? yes : select(to_vec_mask(m), yes, no); }
inline VecF32 maskz(VecMask mask, VecF32 x) {
  return {_mm256_and_ps(x.low, mask.low), _mm256_and_ps(x.high, mask.high)};
}
inline VecF32 maskz(Mask m, VecF32 x) { return m == ALL_LANES ? x : maskz(to_vec_mask(m), x); }

inline VecF32 load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
inline VecF32 load(const float* x, Mask m) {
  if (m == ALL_LANES) return load(x);
  const VecI32 mask = bitcast_i32(maskz(to_vec_mask(m), bitcast_f32(broadcast_i32(-1))));
  return {_mm256_maskload_ps(x, mask.low), _mm256_maskload_ps(x + 8, mask.high)};
}
inline VecF32 load(const float* x, Mask m, float fill) { return select(m, load(x, m), broadcast(fill)); }
inline void store(float* y, VecF32 v) {
  _mm256_storeu_ps(y, v.low);
  _mm256_storeu_ps(y + 8, v.high);
}

// Stores the first elements of a vector, one for each bit of the mask; masked stores take 20 times as long.
template <typename T, typename Vector>
void store_prefix(T* y, Mask m, const Vector& v) {
  T buffer[sizeof(Vector) / sizeof(T)];
  std::memcpy(buffer, &v, sizeof v);
  std::memcpy(y, buffer, __builtin_popcount(m) * sizeof(T));
}
inline void store(float* y, Mask m, VecF32 v) { m == ALL_LANES ? store(y, v) : store_prefix(y, m, v); }
inline void store_i32(void* y, Mask m, VecI32 v) {
  m == ALL_LANES ? store_i32(y, v) : store_prefix(static_cast<int32_t*>(y), m, v);
}

// Loads the booleans selected by m as a mask.
inline Mask load_bool_mask(const bool* x, Mask m) {
  alignas(16) bool buffer[16] = {};
  std::memcpy(buffer, x, m == ALL_LANES ? 16 : __builtin_popcount(m));
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(buffer));
  return static_cast<Mask>(~_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())) & m);
}

// Horizontal sums of four vectors, stored contiguously.
inline void store_reduce_add4(float* y, VecF32 a, VecF32 b, VecF32 c, VecF32 d) {
  const __m256 ab = _mm256_hadd_ps(_mm256_add_ps(a.low, a.high), _mm256_add_ps(b.low, b.high));
  const __m256 cd = _mm256_hadd_ps(_mm256_add_ps(c.low, c.high), _mm256_add_ps(d.low, d.high));
  const __m256 abcd = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

// Upper and lower 32 bits of the 64-bit products of lanes. All lanes of b are equal.
inline void mul_hi_lo_u32(__m256i a, __m256i b, __m256i& high, __m256i& low) {
  const __m256i even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
inline void mul_hi_lo_u32(VecI32 a, VecI32 b, VecI32& high, VecI32& low) {
  mul_hi_lo_u32(a.low, b.low, high.low, low.low);
  mul_hi_lo_u32(a.high, b.high, high.high, low.high);
}

// Converts to 16 and 8 bits with saturation.
inline __m256i pack_i16(VecI32 v) { return _mm256_permute4x64_epi64(_mm256_packs_epi32(v.low, v.high), 0xd8); }
inline void store_saturated_i8(int8_t* y, Mask m, VecI32 v) {
  const __m256i packed = pack_i16(v);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
  m == ALL_LANES ? _mm_storeu_si128(reinterpret_cast<__m128i*>(y), bytes) : store_prefix(y, m, bytes);
}

// bfloat16 is the upper half of a float. Rounds to nearest, ties to even; NaN is preserved.
inline __m256i to_bf16_bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x),
                odd_bit = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i nearest = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd_bit);
  const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 result =
      _mm256_blendv_ps(_mm256_castsi256_ps(nearest), _mm256_castsi256_ps(nan), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_castps_si256(result), 16);
}

// Converts to bfloat16, one per 32-bit lane.
inline VecI32 to_bf16_bits(VecF32 x) { return {to_bf16_bits(x.low), to_bf16_bits(x.high)}; }

inline __m256i widen_u16(const uint16_t* x) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}
inline VecI32 load_bf16_bits(const uint16_t* x, Mask m) {
  if (m == ALL_LANES) return {widen_u16(x), widen_u16(x + 8)};
  uint16_t buffer[16] = {};
  std::memcpy(buffer, x, __builtin_popcount(m) * sizeof *x);
  return {widen_u16(buffer), widen_u16(buffer + 8)};
}
inline VecF32 load(const uint16_t* x, Mask m) { return bitcast_f32(shift_left(load_bf16_bits(x, m), 16)); }
inline void store(uint16_t* y, Mask m, VecF32 v) {
  const VecI32 halves = to_bf16_bits(v);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves.low, halves.high), 0xd8);
  m == ALL_LANES ? _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), packed) : store_prefix(y, m, packed);
}

// Converts two vectors to 32 contiguous bfloat16.
inline VecI32 to_bf16_pairs(VecF32 first, VecF32 second) {
  uint16_t buffer[32];
  store(buffer, ALL_LANES, first);
  store(buffer + 16, ALL_LANES, second);
  return load_i32(buffer);
}

// Loads up to sixteen contiguous pairs of bfloat16, of n elements.
inline VecI32 load_bf16_pairs(const uint16_t* x, long n) {
  if (n >= 32) return load_i32(x);
  uint16_t buffer[32] = {};
  std::memcpy(buffer, x, n * sizeof *x);
  return load_i32(buffer);
}

// Interleaves two rows of sixteen bfloat16: pairs of vertical neighbours.
inline VecI32 interleave_bf16_rows(const uint16_t* first, const uint16_t* second) {
  return bits_or(load_bf16_bits(first, ALL_LANES), shift_left(load_bf16_bits(second, ALL_LANES), 16));
}

// Same for 32 columns.
inline void interleave_bf16_rows(const uint16_t* first, const uint16_t* second, VecI32& low, VecI32& high) {
  low = interleave_bf16_rows(first, second);
  high = interleave_bf16_rows(first + 16, second + 16);
}

// Accumulates the dot products of sixteen pairs of bfloat16 in `sum`.
inline VecF32 dot_bf16_pairs(VecF32 sum, VecI32 a, VecI32 b) {
  const VecI32 upper = broadcast_i32(static_cast<int32_t>(0xffff0000));
  sum = fmadd(bitcast_f32(shift_left(a, 16)), bitcast_f32(shift_left(b, 16)), sum);
  return fmadd(bitcast_f32(bits_and(a, upper)), bitcast_f32(bits_and(b, upper)), sum);
}

// Same with one pair broadcast to all lanes.
inline VecF32 dot_bf16_pairs(VecF32 sum, const void* pair, VecI32 pairs) {
  int32_t packed;
  std::memcpy(&packed, pair, 4);
  return dot_bf16_pairs(sum, broadcast_i32(packed), pairs);
}

#ifdef TRANSFORMER_AVX_VNNI
// Type of quantized inputs: unsigned bytes with the zero point 128, for VNNI.
using QuantizedInput = uint8_t;
constexpr bool HAS_ZERO_POINT_128 = true;
inline void store_quantized(QuantizedInput* y, Mask m, VecI32 v) {
  const __m256i pairs = pack_i16(add_i32(v, broadcast_i32(128)));
  const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  char bytes[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), packed);
  std::memcpy(y, bytes, _mm_popcnt_u32(m));
}

// Accumulates the dot products of one k-group of x, broadcast, and sixteen k-groups of signed bytes in `sum`.
inline VecI32 dot_i8_quads(VecI32 sum, const QuantizedInput* x, const char* w) {
  const __m256i quad = _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(x)));
  const VecI32 weights = load_i32(w);
  return {_mm256_dpbusd_avx_epi32(sum.low, quad, weights.low), _mm256_dpbusd_avx_epi32(sum.high, quad, weights.high)};
}
#else
// Type of quantized inputs, -127 to 127. vpmaddubsw multiplies unsigned by signed bytes and adds two products in 16
// bits, which do not saturate: at most 2 * 128 * 127.
using QuantizedInput = int8_t;
constexpr bool HAS_ZERO_POINT_128 = false;
inline void store_quantized(QuantizedInput* y, Mask m, VecI32 v) { store_saturated_i8(y, m, v); }

inline __m256i add_dot_u8_i8_quads(__m256i sum, __m256i a, __m256i b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
inline __m256i broadcast_quad(const QuantizedInput* x) {  // a load, without a shuffle
  return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(x)));
}

// Accumulates the dot products of one k-group of x, broadcast, and sixteen k-groups of signed bytes in `sum`: the
// absolute values of the weights, times x with the signs of the weights.
inline VecI32 dot_i8_quads(VecI32 sum, const QuantizedInput* x, const char* w) {
  const __m256i quad = broadcast_quad(x);
  const VecI32 weights = load_i32(w);
  const auto add = [&](__m256i half, __m256i signed_bytes) {
    return add_dot_u8_i8_quads(half, _mm256_abs_epi8(signed_bytes), _mm256_sign_epi8(quad, signed_bytes));
  };
  return {add(sum.low, weights.low), add(sum.high, weights.high)};
}

// Same if x is not negative.
inline VecI32 dot_i8_quads_non_negative(VecI32 sum, const QuantizedInput* x, const char* w) {
  const __m256i quad = broadcast_quad(x);
  const VecI32 weights = load_i32(w);
  return {add_dot_u8_i8_quads(sum.low, quad, weights.low), add_dot_u8_i8_quads(sum.high, quad, weights.high)};
}
#endif

// Transposes a matrix of 8 x 8.
inline void transpose(__m256i (&r)[8]) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm256_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      r[i + 2 * j + 1] = _mm256_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
  for (int b = 0; b < 4; ++b) {
    t[b] = _mm256_permute2x128_si256(r[b], r[4 + b], 0x20);
    t[4 + b] = _mm256_permute2x128_si256(r[b], r[4 + b], 0x31);
  }
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}

// Transposes a matrix of 16 x 16.
inline void transpose(VecI32 (&r)[16]) {
  __m256i quadrants[2][2][8];  // by row and column
  for (int i = 0; i < 16; ++i) {
    quadrants[i / 8][0][i % 8] = r[i].low;
    quadrants[i / 8][1][i % 8] = r[i].high;
  }
  for (auto& rows : quadrants)
    for (auto& quadrant : rows) transpose(quadrant);
  for (int i = 0; i < 16; ++i) r[i] = {quadrants[0][i / 8][i % 8], quadrants[1][i / 8][i % 8]};
}

}  // namespace transformer
