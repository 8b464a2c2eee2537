// Opens the region of one instruction set for products of int8: HWY_BEFORE_NAMESPACE(), and if PENSTOCK_INT8_DOT says
// so with what AVX-512 and NEON may be extended by, for which chips are asked. PENSTOCK_INT8_AMX adds AMX.
// HWY_AFTER_NAMESPACE() closes it.
#undef PENSTOCK_INT8_TARGET
#undef PENSTOCK_INT8_PRODUCTS
#undef PENSTOCK_INT8_TILES
#define PENSTOCK_INT8_TILES (PENSTOCK_INT8_AMX && HWY_TARGET == HWY_AVX3)
#if PENSTOCK_INT8_TILES
#define PENSTOCK_INT8_TARGET HWY_TARGET_STR ",avx512vnni,amx-tile,amx-int8"
#elif PENSTOCK_INT8_DOT && HWY_TARGET == HWY_AVX3
#define PENSTOCK_INT8_TARGET HWY_TARGET_STR ",avx512vnni"
#elif PENSTOCK_INT8_DOT && HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64 && HWY_COMPILER_GCC_ACTUAL
// The compiler's own functions for dot products are of this architecture, and inlined into no other.
#ifdef HWY_TARGET_STR
#define PENSTOCK_INT8_TARGET "arch=armv8.2-a" HWY_TARGET_STR "+dotprod"
#else
#define PENSTOCK_INT8_TARGET "arch=armv8.2-a+dotprod"
#endif
#endif

#ifdef PENSTOCK_INT8_TARGET
#define PENSTOCK_INT8_PRODUCTS 1
HWY_PUSH_ATTRIBUTES(PENSTOCK_INT8_TARGET)
// A lambda's own attribute replaces that of its region where clang compiles. Highway defines it anew for each target.
#undef HWY_ATTR
#define HWY_ATTR __attribute__((target(PENSTOCK_INT8_TARGET)))
#else
#define PENSTOCK_INT8_PRODUCTS 0
HWY_BEFORE_NAMESPACE();
#endif
