#pragma once

// The instruction sets we compile for: the compiler's own baseline, AVX2 with FMA, AVX-512 (F, BW, CD, DQ, VL) and
// NEON. Everything else Highway knows is left out: bits 0..7 are the x86 sets beyond AVX-512 as Skylake has it, and the
// scalable vectors of SVE cannot be members of arrays. Include before any other Highway header.
//
// PENSTOCK_WITHOUT_AVX2 leaves out AVX2 too. Builds with sanitizers set it, because every instruction set compiles the
// engines once more. They keep the widest vectors and the narrowest.
#ifdef PENSTOCK_WITHOUT_AVX2
#define PENSTOCK_ALSO_DISABLED HWY_AVX2
#else
#define PENSTOCK_ALSO_DISABLED 0
#endif
#define HWY_DISABLED_TARGETS \
  (0xFFLL | HWY_SSE4 | HWY_SSSE3 | PENSTOCK_ALSO_DISABLED | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
