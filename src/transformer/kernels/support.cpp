// Counts changes of what the functions take; the same number stands in library.py.
extern "C" int transformer_kernels_version() { return 14; }

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
