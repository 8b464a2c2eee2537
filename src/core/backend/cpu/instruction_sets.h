#pragma once

#include <string_view>
#include <vector>

namespace penstock::cpu {

/// Instruction sets that this build and this chip share, best first: "amx", "avx512", "avx2", "baseline" (or "neon").
std::vector<std::string_view> available_isas();
std::string_view current_isa();
/// Changes the set for kernels fetched from now on. Throws Error(unsupported) naming those there are.
void use_isa(std::string_view name);
/// Returns whether the chip has instructions for products of bfloat16 (AVX-512 BF16).
bool has_bf16_products();
/// Returns whether the set in use goes with instructions for products of int8: AVX-512 VNNI, or NEON's dot product.
bool has_int8_products();
/// Returns whether the set in use is "amx": AVX-512 with products of bfloat16 by tiles.
bool has_bf16_tiles();
/// Grows whenever use_isa() was called, so that packed weights can be told to be stale.
unsigned isa_generation();

}  // namespace penstock::cpu
