#include <cstdlib>
#include <string_view>

#include "backend/cpu/dispatch_target.h"

namespace penstock::cpu {

namespace {

/// An instruction set, and whether this chip has it.
struct Choice {
  TargetInUse is;
  bool (*is_there)();
};

constexpr const char* kOwnName = HWY_STATIC_TARGET == HWY_AVX3   ? "avx512"
                                 : HWY_STATIC_TARGET == HWY_AVX2 ? "avx2"
                                 : HWY_ARCH_ARM                  ? "neon"
                                                                 : "baseline";

/// Best first. What the compiler was told that each chip has needs no question.
constexpr Choice kChoices[] = {
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3) && HWY_STATIC_TARGET != HWY_AVX3
    {{Target::avx512, "avx512"},
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
     }},
#endif
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2
    {{Target::avx2, "avx2"},
     [] {
       return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2");
     }},
#endif
    {{Target::own, kOwnName}, [] { return true; }},
};

}  // namespace

const TargetInUse* target_in_use() {
#if HWY_ARCH_X86
  __builtin_cpu_init();
#endif
  const char* const wanted = std::getenv("PENSTOCK_ISA");
  for (const Choice& choice : kChoices) {
    if (!choice.is_there()) continue;
    // The full library has one more name: AVX-512 with tiles, in which streams run as without.
    const std::string_view name = choice.is.name;
    const bool named = wanted == nullptr || *wanted == '\0' || name == wanted ||
                       (std::string_view(wanted) == "amx" && name == "avx512");
    if (named) return &choice.is;
  }
  return nullptr;
}

}  // namespace penstock::cpu
