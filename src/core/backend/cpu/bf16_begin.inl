// Opens the region of one instruction set for products in bfloat16: HWY_BEFORE_NAMESPACE() with what AVX-512 may be
// extended by, which came after the set that Highway calls so, and chips are asked for it. PENSTOCK_BF16_TILES says
// whether AMX belongs to it. HWY_AFTER_NAMESPACE() closes it.
#undef PENSTOCK_BF16_PRODUCTS
#define PENSTOCK_BF16_PRODUCTS (HWY_TARGET == HWY_AVX3)

#undef PENSTOCK_BF16_TARGET
#if PENSTOCK_BF16_PRODUCTS && PENSTOCK_BF16_TILES
#define PENSTOCK_BF16_TARGET HWY_TARGET_STR ",avx512bf16,amx-tile,amx-bf16"
#elif PENSTOCK_BF16_PRODUCTS
#define PENSTOCK_BF16_TARGET HWY_TARGET_STR ",avx512bf16"
#endif

#if PENSTOCK_BF16_PRODUCTS
HWY_PUSH_ATTRIBUTES(PENSTOCK_BF16_TARGET)
// A lambda's own attribute replaces that of its region where clang compiles. Highway defines it anew for each target.
#undef HWY_ATTR
#define HWY_ATTR __attribute__((target(PENSTOCK_BF16_TARGET)))
#else
HWY_BEFORE_NAMESPACE();
#endif
