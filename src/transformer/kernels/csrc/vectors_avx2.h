// Vectors of sixteen numbers in two registers: AVX2 with FMA, which most processors have supported since 2013.
#pragma once
#pragma GCC target("avx2,fma")
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace transformer {

constexpr int REGISTERS_OF_A_TILE = 12;  // for accumulators, of 16 registers
constexpr int REGISTERS_OF_A_MIXED_TILE = 8;  // if factors are unpacked first
constexpr int REGISTERS_OF_A_VECTOR = 2;
constexpr long STRIP = 16;        // contiguous columns of a packed weight
constexpr long DEPTH = 256;       // length of a part of the inner axis, whose panel stays in the L1 cache
constexpr long LEAST_ROWS = 24;        // minimum number of rows in a group, if there are enough
constexpr long HELD_BYTES = 128 << 10;  // maximum size of a larger group, which stays in the L2 cache
constexpr bool MULTIPLIES_PAIRS = false;  // whether an instruction multiplies pairs of bfloat16
constexpr bool READS_ROWS_IN_PLACE = false;  // panels are so narrow that rows are read often, so they are packed

struct Floats {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};
using Mask = uint16_t;  // one bit for each lane in use
struct Where {          // result of a comparison: all bits of a lane are set, or none
  __m256 low, high;
};

constexpr Mask ALL = 0xffff;

inline Floats spread(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats negative_multiply_add(Floats a, Floats b, Floats c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
inline Floats negative_multiply_subtract(Floats a, Floats b, Floats c) {
  return {_mm256_fnmsub_ps(a.low, b.low, c.low), _mm256_fnmsub_ps(a.high, b.high, c.high)};
}
inline Floats larger(Floats a, Floats b) {  // if a or b is NaN: b
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Floats smaller(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Floats absolute(Floats x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
inline Floats rounded(Floats x) {
  constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, NEAREST), _mm256_round_ps(x.high, NEAREST)};
}
inline Floats reciprocal(Floats x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  return {_mm256_div_ps(one, x.low), _mm256_div_ps(one, x.high)};
}

inline Floats rough_reciprocal(Floats x) { return reciprocal(x); }

inline float sum_of(Floats x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest_of(Floats x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline Ints spread_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Ints counting() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
inline Ints load_ints(const void* x) {
  const auto* from = static_cast<const __m256i*>(x);
  return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}
inline void store_ints(void* y, Ints v) {
  auto* to = static_cast<__m256i*>(y);
  _mm256_storeu_si256(to, v.low);
  _mm256_storeu_si256(to + 1, v.high);
}
inline void pass_on(void* y, Ints v) {  // non-temporal store of one cache line
  auto* to = static_cast<__m256i*>(y);
  _mm256_stream_si256(to, v.low);
  _mm256_stream_si256(to + 1, v.high);
}
inline Ints as_ints(Floats x) { return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)}; }
inline Floats as_floats(Ints x) { return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)}; }
inline Ints to_ints(Floats x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
inline Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
inline Ints add_ints(Ints a, Ints b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline Ints subtract_ints(Ints a, Ints b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
inline Ints bits_and(Ints a, Ints b) { return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)}; }
inline Ints bits_or(Ints a, Ints b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
inline Ints bits_xor(Ints a, Ints b) { return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)}; }
inline Ints shift_left(Ints x, int n) { return {_mm256_slli_epi32(x.low, n), _mm256_slli_epi32(x.high, n)}; }
inline Ints shift_right(Ints x, int n) { return {_mm256_srli_epi32(x.low, n), _mm256_srli_epi32(x.high, n)}; }

// x 2^n for -150 <= n <= 0. Two factors are needed, because 2^-150 is not a float.
inline __m256 times_power_of_two(__m256 x, __m256i n) {
  const __m256i half = _mm256_srai_epi32(n, 1), rest = _mm256_sub_epi32(n, half), bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
inline Floats times_power_of_two(Floats x, Floats n) {
  return {times_power_of_two(x.low, _mm256_cvtps_epi32(n.low)), times_power_of_two(x.high, _mm256_cvtps_epi32(n.high))};
}

inline Where where(Floats x) { return {x.low, x.high}; }
inline Where where(Mask m) {
  const Ints bits{_mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128),
                  _mm256_setr_epi32(256, 512, 1024, 2048, 4096, 8192, 16384, 32768)};
  const Ints set = bits_and(bits, spread_int(m));
  return where(as_floats({_mm256_cmpeq_epi32(set.low, bits.low), _mm256_cmpeq_epi32(set.high, bits.high)}));
}
inline Where everywhere() { return where(as_floats(spread_int(-1))); }
template <int kind>
Where compare(Floats a, Floats b) {
  return {_mm256_cmp_ps(a.low, b.low, kind), _mm256_cmp_ps(a.high, b.high, kind)};
}
inline Where is_negative(Floats x) { return compare<_CMP_LT_OQ>(x, spread(0.0f)); }
inline Where is_nan(Floats x) { return compare<_CMP_UNORD_Q>(x, x); }
inline Where is_above(Floats a, Floats b) { return compare<_CMP_GT_OQ>(a, b); }
inline Where is_above_or_nan(Floats a, Floats b) { return compare<_CMP_NLE_UQ>(a, b); }
inline Where differs(Floats a, Floats b) { return compare<_CMP_NEQ_UQ>(a, b); }
inline Where at_least(Ints a, Ints b) {  // for non-negative numbers
  const Ints before = subtract_ints(b, spread_int(1));
  return where(as_floats({_mm256_cmpgt_epi32(a.low, before.low), _mm256_cmpgt_epi32(a.high, before.high)}));
}
inline Mask bits_of(Where w) { return static_cast<Mask>(_mm256_movemask_ps(w.low) | _mm256_movemask_ps(w.high) << 8); }
inline Floats choose(Where w, Floats yes, Floats no) {
  return {_mm256_blendv_ps(no.low, yes.low, w.low), _mm256_blendv_ps(no.high, yes.high, w.high)};
}
inline Floats choose(Mask m, Floats yes, Floats no) { return m == ALL ? yes : choose(where(m), yes, no); }
inline Floats keep(Where w, Floats x) { return {_mm256_and_ps(x.low, w.low), _mm256_and_ps(x.high, w.high)}; }
inline Floats keep(Mask m, Floats x) { return m == ALL ? x : keep(where(m), x); }

inline Floats load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
inline Floats load(const float* x, Mask m) {
  if (m == ALL) return load(x);
  const Ints w = as_ints(keep(where(m), as_floats(spread_int(-1))));
  return {_mm256_maskload_ps(x, w.low), _mm256_maskload_ps(x + 8, w.high)};
}
inline Floats load(const float* x, Mask m, float otherwise) { return choose(m, load(x, m), spread(otherwise)); }
inline void store(float* y, Floats v) {
  _mm256_storeu_ps(y, v.low);
  _mm256_storeu_ps(y + 8, v.high);
}

// Stores the first elements of a vector, one for each bit of the mask. Masked store instructions take 20 times as long.
template <typename T, typename Vector>
void store_first(T* y, Mask m, const Vector& v) {
  T all[sizeof(Vector) / sizeof(T)];
  std::memcpy(all, &v, sizeof v);
  std::memcpy(y, all, __builtin_popcount(m) * sizeof(T));
}
inline void store(float* y, Mask m, Floats v) { m == ALL ? store(y, v) : store_first(y, m, v); }
inline void store_ints(void* y, Mask m, Ints v) {
  m == ALL ? store_ints(y, v) : store_first(static_cast<int32_t*>(y), m, v);
}

// Returns which of the bytes selected by m are true.
inline Mask are_true(const bool* x, Mask m) {
  alignas(16) bool all[16] = {};
  std::memcpy(all, x, m == ALL ? 16 : __builtin_popcount(m));
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(all));
  return static_cast<Mask>(~_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())) & m);
}

// Stores the sums of four vectors contiguously.
inline void store_sums(float* y, Floats a, Floats b, Floats c, Floats d) {
  const __m256 ab = _mm256_hadd_ps(_mm256_add_ps(a.low, a.high), _mm256_add_ps(b.low, b.high));
  const __m256 cd = _mm256_hadd_ps(_mm256_add_ps(c.low, c.high), _mm256_add_ps(d.low, d.high));
  const __m256 abcd = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

// The upper and lower 32 bits of the 64-bit products of lanes. All lanes of b are equal.
inline void multiply_wide(__m256i a, __m256i b, __m256i& high, __m256i& low) {
  const __m256i even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
inline void multiply_wide(Ints a, Ints b, Ints& high, Ints& low) {
  multiply_wide(a.low, b.low, high.low, low.low);
  multiply_wide(a.high, b.high, high.high, low.high);
}

// Converts to 16 and 8 bits with saturation.
inline __m256i narrowed(Ints v) { return _mm256_permute4x64_epi64(_mm256_packs_epi32(v.low, v.high), 0xd8); }
inline void store_saturated(int8_t* y, Mask m, Ints v) {
  const __m256i both = narrowed(v);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  m == ALL ? _mm_storeu_si128(reinterpret_cast<__m128i*>(y), bytes) : store_first(y, m, bytes);
}

// bfloat16 is the upper half of a float. Rounds to nearest, ties to even; NaN is preserved.
inline __m256i to_halves(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x), is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), is_odd);
  const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(near), _mm256_castsi256_ps(nan), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
}

// Converts numbers to bfloat16, one per lane.
inline Ints to_halves(Floats x) { return {to_halves(x.low), to_halves(x.high)}; }

inline __m256i widened(const uint16_t* x) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}
inline Ints load_halves(const uint16_t* x, Mask m) {
  if (m == ALL) return {widened(x), widened(x + 8)};
  uint16_t all[16] = {};
  std::memcpy(all, x, __builtin_popcount(m) * sizeof *x);
  return {widened(all), widened(all + 8)};
}
inline Floats load(const uint16_t* x, Mask m) { return as_floats(shift_left(load_halves(x, m), 16)); }
inline void store(uint16_t* y, Mask m, Floats v) {
  const Ints halves = to_halves(v);
  const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves.low, halves.high), 0xd8);
  m == ALL ? _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), both) : store_first(y, m, both);
}

// Converts numbers to pairs of bfloat16: first those of `first`, then those of `second`.
inline Ints to_pairs(Floats first, Floats second) {
  uint16_t all[32];
  store(all, ALL, first);
  store(all + 16, ALL, second);
  return load_ints(all);
}

// Loads up to sixteen contiguous pairs of bfloat16, from n numbers.
inline Ints load_pairs(const uint16_t* x, long n) {
  if (n >= 32) return load_ints(x);
  uint16_t all[32] = {};
  std::memcpy(all, x, n * sizeof *x);
  return load_ints(all);
}

// Pairs each number of the first row with the number below it in the second row.
inline Ints pairs_across(const uint16_t* first, const uint16_t* second) {
  return bits_or(load_halves(first, ALL), shift_left(load_halves(second, ALL), 16));
}

// Same for 32 numbers of each row.
inline void pairs_across(const uint16_t* first, const uint16_t* second, Ints& low, Ints& high) {
  low = pairs_across(first, second);
  high = pairs_across(first + 16, second + 16);
}

// Adds the products of sixteen pairs of bfloat16 and sixteen other pairs to `sum`.
inline Floats add_pair_products(Floats sum, Ints a, Ints b) {
  const Ints upper = spread_int(static_cast<int32_t>(0xffff0000));
  sum = multiply_add(as_floats(shift_left(a, 16)), as_floats(shift_left(b, 16)), sum);
  return multiply_add(as_floats(bits_and(a, upper)), as_floats(bits_and(b, upper)), sum);
}

// Same for one pair, which is multiplied by sixteen pairs.
inline Floats add_pair_products(Floats sum, const void* pair, Ints pairs) {
  int32_t both;
  std::memcpy(&both, pair, 4);
  return add_pair_products(sum, spread_int(both), pairs);
}

// Operand format of quantized rows: of every four numbers, the first and third as 16 bits each, then the others.
using Byte = int16_t;
constexpr bool BYTES_ARE_AROUND_128 = false;
inline void store_bytes(Byte* y, Mask m, Ints v) {
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,
                                         0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  const __m256i both = _mm256_shuffle_epi8(narrowed(v), order);
  m == ALL ? _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), both) : store_first(y, m, both);
}

// Adds the products of four such numbers and eight groups of four signed bytes to `sum`. They never exceed 32 bits.
inline __m256i add_four_products(__m256i sum, __m256i first_and_third, __m256i others, __m256i fours) {
  const __m256i upper = _mm256_srai_epi16(_mm256_slli_epi16(fours, 8), 8), lower = _mm256_srai_epi16(fours, 8);
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(first_and_third, upper));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(others, lower));
}
inline Ints add_four_products(Ints sum, const Byte* four, const char* fours) {
  const auto* pairs = reinterpret_cast<const float*>(four);  // a broadcast load needs no shuffle
  const __m256i first_and_third = _mm256_castps_si256(_mm256_broadcast_ss(pairs));
  const __m256i others = _mm256_castps_si256(_mm256_broadcast_ss(pairs + 1));
  const Ints all = load_ints(fours);
  return {add_four_products(sum.low, first_and_third, others, all.low),
          add_four_products(sum.high, first_and_third, others, all.high)};
}

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

// Transposes: vector i of the result holds element i of each vector.
inline void transpose(Ints (&r)[16]) {
  __m256i quarters[2][2][8];  // by row and column
  for (int i = 0; i < 16; ++i) {
    quarters[i / 8][0][i % 8] = r[i].low;
    quarters[i / 8][1][i % 8] = r[i].high;
  }
  for (auto& rows : quarters)
    for (auto& quarter : rows) transpose(quarter);
  for (int i = 0; i < 16; ++i) r[i] = {quarters[0][i / 8][i % 8], quarters[1][i / 8][i % 8]};
}

}  // namespace transformer
