// Sixteen floats at a time (AVX-512), shared by the kernels.
#pragma once
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#include <immintrin.h>

#include <cstdint>
#include <new>
#include <vector>

namespace transformer {

constexpr long LANES = 16;

// The lanes that are left of n elements: all of them, or the first n.
inline __mmask16 lanes(long n) { return n >= LANES ? 0xffff : static_cast<__mmask16>((1u << n) - 1); }

inline __m512 load(const float* x, __mmask16 m) { return _mm512_maskz_loadu_ps(m, x); }

// bfloat16 is the upper half of a float.
inline __m512 load(const uint16_t* x, __mmask16 m) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, x)), 16));
}

inline void store(float* y, __mmask16 m, __m512 v) { _mm512_mask_storeu_ps(y, m, v); }

inline void store(uint16_t* y, __mmask16 m, __m512 v) {
  _mm256_mask_storeu_epi16(y, m, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

// e^x for x <= 0 or NaN, to 2e-7 of it near 0 and 1e-5 near -87; 0 for minus infinity.
// e^x = 2^n 2^f with |f| <= 1/2; 2^f by the polynomial of degree 5 that is 1 at 0 and whose largest relative error, 1e-7,
// is least.
inline __m512 exponential(__m512 x) {
  const __m512 t = _mm512_mul_ps(_mm512_max_ps(_mm512_set1_ps(-104.0f), x), _mm512_set1_ps(1.44269504f));
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm512_sub_ps(t, n);
  __m512 p = _mm512_set1_ps(0.00132647273f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.00967151299f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0555073358f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.240222424f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693147004f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

// Memory that begins with a line of the cache: a vector that lies in two lines is loaded twice.
template <typename T>
struct InLines {
  using value_type = T;
  static constexpr std::align_val_t LINE{64};
  InLines() = default;
  template <typename U>
  InLines(const InLines<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), LINE)); }
  void deallocate(T* held, size_t) { ::operator delete(held, LINE); }
  bool operator==(const InLines&) const { return true; }
  bool operator!=(const InLines&) const { return false; }
};

// Memory of a thread that is kept from call to call; another number is other memory.
template <typename T, int number = -1>
T* scratch(long n) {
  thread_local std::vector<T, InLines<T>> kept;
  if (static_cast<long>(kept.size()) < n) kept.resize(n);
  return kept.data();
}

}  // namespace transformer
