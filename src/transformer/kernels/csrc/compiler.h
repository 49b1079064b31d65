// Features of the compiler and the operating system.
#pragma once

#if !defined(TRANSFORMER_AVX2) && defined(__linux__) && __has_include(<amxtileintrin.h>)
#define TRANSFORMER_AMX  // see amx.h
#endif
