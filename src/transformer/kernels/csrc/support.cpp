#include "compiler.h"

#include <cpuid.h>

#ifdef TRANSFORMER_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

// This file must run on every processor: it is compiled without extended instruction sets.

namespace transformer {
extern bool amx_enabled;
bool amx_enabled = false;
}  // namespace transformer

// Version of the function signatures; `VERSION` in library.py must be equal.
extern "C" int transformer_kernels_version() { return 26; }

// Enables AMX tiles for products. Returns 0, or the reason why they are unavailable: 1, the processor has none; 2, the
// compiler did not support them; 3, Linux denied the process the 8 KiB of state per thread.
extern "C" int transformer_kernels_enable_amx() {
#ifdef TRANSFORMER_AMX
  constexpr long REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
  if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16") || !__builtin_cpu_supports("amx-int8"))
    return 1;
  transformer::amx_enabled = syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
  return transformer::amx_enabled ? 0 : 3;
#else
  return 2;
#endif
}

#ifdef TRANSFORMER_AVX_VNNI
// Whether the processor has AVX-VNNI: bit 4 of EAX in leaf 7, subleaf 1, of CPUID.
static bool has_needed_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 4);
}
#else
static bool has_needed_vnni() { return true; }
#endif

// Whether this processor supports the instruction set that the kernels were compiled for.
extern "C" int transformer_kernels_are_supported() {
#ifdef TRANSFORMER_AVX2
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_needed_vnni();
#else
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
#endif
}
