#include "tiles.h"

#ifdef TRANSFORMER_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

// Counts changes of what the functions take; the same number stands in library.py.
extern "C" int transformer_kernels_version() { return 15; }

namespace transformer {
bool uses_tiles = false;
}

// Has products use the tiles of AMX from now on; returns 0 where there are none. Linux gives a process their registers,
// which are 8 KiB a thread, when it asks for them.
extern "C" int transformer_kernels_use_tiles() {
#ifdef TRANSFORMER_TILES
  constexpr long ASK = 0x1023, TILE_DATA = 18;
  const bool exist = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-int8");
  transformer::uses_tiles = exist && syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#endif
  return transformer::uses_tiles;
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
