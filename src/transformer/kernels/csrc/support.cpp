#include "compiler.h"

#ifdef TRANSFORMER_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

// This file is for every processor: no instructions are chosen in it.

namespace transformer {
extern bool uses_tiles;
bool uses_tiles = false;
}  // namespace transformer

// Counts changes of what the functions take; the same number stands in library.py.
extern "C" int transformer_kernels_version() { return 22; }

// Has products use the tiles of AMX from now on. Returns 0, or why they do not: 1, the processor has none; 2, the compiler
// knew none; 3, Linux, which gives a process their 8 KiB a thread when it asks, refuses.
extern "C" int transformer_kernels_use_tiles() {
#ifdef TRANSFORMER_TILES
  constexpr long ASK = 0x1023, TILE_DATA = 18;
  if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16") || !__builtin_cpu_supports("amx-int8"))
    return 1;
  transformer::uses_tiles = syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
  return transformer::uses_tiles ? 0 : 3;
#else
  return 2;
#endif
}

// Whether this processor has the instructions that the kernels were compiled for.
extern "C" int transformer_kernels_run_here() {
#ifdef TRANSFORMER_AVX2
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("avx512bf16");
#endif
}
