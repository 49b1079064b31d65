// Vectors of sixteen 32-bit lanes (VecF32, VecI32) and per-thread scratch memory, shared by the kernels. Functions are
// named after the AVX-512 instructions or PyTorch's `Vectorized`.
#pragma once
#ifdef TRANSFORMER_AVX2
#include "vectors_avx2.h"
#else
#include "vectors_avx512.h"
#endif

#include <new>
#include <type_traits>
#include <vector>

namespace transformer {

constexpr long LANES = 16;

// Register blocking: a micro-kernel keeps a tile of MR rows by NR columns of accumulators in registers. The fewer rows,
// the more vectors of columns.
constexpr int MR = 6;
constexpr int nr_vectors(int rows, int registers = ACCUMULATOR_REGISTERS) {
  const int n_vectors = registers / REGISTERS_PER_VECTOR / rows;
  return n_vectors >= 4 ? 4 : n_vectors >= 2 ? 2 : 1;
}
constexpr int NR_VECTORS = nr_vectors(MR);

// Calls `work` with the number of rows, at most MR of n, as a compile-time constant.
template <typename Work>
void dispatch_rows(long n, const Work& work) {
  static_assert(MR == 6);
  switch (n) {
    case 1: return work(std::integral_constant<int, 1>());
    case 2: return work(std::integral_constant<int, 2>());
    case 3: return work(std::integral_constant<int, 3>());
    case 4: return work(std::integral_constant<int, 4>());
    case 5: return work(std::integral_constant<int, 5>());
    default: return work(std::integral_constant<int, 6>());
  }
}

// Mask of the valid lanes if n elements remain: all lanes, or the first n.
inline Mask tail_mask(long n) { return n >= LANES ? 0xffff : static_cast<Mask>((1u << n) - 1); }

// e^x for x <= 0 or NaN, with a relative error of 2e-7 near 0 and 1e-5 near -87. The result is 0 below that, where it
// would be subnormal: a single subnormal takes some processors a hundred cycles.
//
// Computed as e^x = 2^n 2^f with |f| <= 1/2. 2^f is approximated by the polynomial of degree 5 that is 1 at 0 and has
// the least maximum relative error, 1e-7.
inline VecF32 exp(VecF32 x) {
  const VecF32 lower_bound = broadcast(-87.3f), t = max(lower_bound, x) * broadcast(1.44269504f), n = round_nearest(t),
               f = t - n;
  VecF32 p = broadcast(0.00132647273f);
  p = fmadd(p, f, broadcast(0.00967151299f));
  p = fmadd(p, f, broadcast(0.0555073358f));
  p = fmadd(p, f, broadcast(0.240222424f));
  p = fmadd(p, f, broadcast(0.693147004f));
  p = fmadd(p, f, broadcast(1.0f));
  return maskz(cmp_nle(x, lower_bound), scalef(p, n));
}

// 2^x for finite x or NaN, with a relative error of 8e-5, a fraction of the precision of bfloat16; 2^-126 where the
// result would be less. Computed like `exp`, with a polynomial of degree 3. (The AVX2 version, which is not
// used, requires x <= 0.)
inline VecF32 approx_exp2(VecF32 x) {
  const VecF32 t = max(broadcast(-126.0f), x), n = round_nearest(t), f = t - n;
  VecF32 p = broadcast(0.0551716685f);
  p = fmadd(p, f, broadcast(0.242611125f));
  p = fmadd(p, f, broadcast(0.693260968f));
  p = fmadd(p, f, broadcast(0.999928057f));
  return scalef(p, n);
}

// Allocates memory aligned to cache lines, because a vector that spans two lines takes two loads.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t ALIGNMENT{64};
  CacheLineAllocator() = default;
  template <typename U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), ALIGNMENT)); }
  void deallocate(T* memory, size_t) { ::operator delete(memory, ALIGNMENT); }
  bool operator==(const CacheLineAllocator&) const { return true; }
  bool operator!=(const CacheLineAllocator&) const { return false; }
};

// Thread-local scratch memory, reused between calls. Each id identifies a separate buffer.
template <typename T, int id = -1>
T* scratch(long n) {
  thread_local std::vector<T, CacheLineAllocator<T>> buffer;
  if (static_cast<long>(buffer.size()) < n) buffer.resize(n);
  return buffer.data();
}

}  // namespace transformer
