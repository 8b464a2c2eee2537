#pragma once

// The instruction sets we compile for: the compiler's own baseline, AVX2 with FMA, AVX-512 (F, BW, CD, DQ, VL) and
// NEON. Everything else Highway knows is left out: bits 0..7 are the x86 sets beyond AVX-512 as Skylake has it, and the
// scalable vectors of SVE cannot be members of arrays. Include before any other Highway header.
#define HWY_DISABLED_TARGETS (0xFFLL | HWY_SSE4 | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
