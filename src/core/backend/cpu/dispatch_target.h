#pragma once

// Which of the functions that a source has for every instruction set runs. The full library asks Highway. The C runtime
// does not link Highway's compiled part, and asks target_in_use(). Use below HWY_ONCE, in the namespace of the
// functions:
//
//     PENSTOCK_EXPORT(FillThings);
//     void fill(Things& things) { PENSTOCK_DISPATCH(FillThings)(things); }
#include "backend/cpu/isa.h"

#include <hwy/highway.h>

#if PENSTOCK_RUNTIME

namespace penstock::cpu {

/// The places of tables: best first. What the compiler was told that each chip has is the last.
enum class Target : int { avx512, avx2, own };

struct TargetInUse {
  Target target;
  const char* name;  ///< "avx512", "avx2", "baseline" or "neon", as `penstock info` says.
};

/// Returns the best instruction set that this build and this chip share, or the one that PENSTOCK_ISA in the
/// environment names; null if it names another.
const TargetInUse* target_in_use();

}  // namespace penstock::cpu

#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3) && HWY_STATIC_TARGET != HWY_AVX3
#define PENSTOCK_FOR_AVX512(Function) &N_AVX3::Function
#else
#define PENSTOCK_FOR_AVX512(Function) nullptr
#endif
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2
#define PENSTOCK_FOR_AVX2(Function) &N_AVX2::Function
#else
#define PENSTOCK_FOR_AVX2(Function) nullptr
#endif
#define PENSTOCK_EXPORT(Function)                                                                  \
  constexpr decltype(&HWY_STATIC_DISPATCH(Function)) Function##Table[] = {                         \
      PENSTOCK_FOR_AVX512(Function), PENSTOCK_FOR_AVX2(Function), &HWY_STATIC_DISPATCH(Function)}; \
  static_assert(true, "a semicolon follows")
#define PENSTOCK_DISPATCH(Function) (*Function##Table[static_cast<int>(cpu::target_in_use()->target)])

#else

#define PENSTOCK_EXPORT(Function) HWY_EXPORT(Function)
#define PENSTOCK_DISPATCH(Function) HWY_DYNAMIC_DISPATCH(Function)

#endif
