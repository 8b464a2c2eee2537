#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cuda/driver/nvrtc.h"
#include "plan/cell_table.h"

namespace penstock::cuda {

/// Constant that specialises a kernel, such as "constexpr int kLanes" and 32, or "using Storage" and "F32".
struct Constant {
  template <class Value>
  Constant(std::string what, const Value& is) : declaration(std::move(what)), value(fmt::format("{}", is)) {}

  std::string declaration, value;
};

/// The constant kPass of a kernel: a struct of ints that NVRTC compiles, too, and that has this name there.
template <class Pass>
Constant pass_constant(std::string_view name, const Pass& pass) {
  static_assert(std::is_trivially_copyable_v<Pass> && sizeof(Pass) % sizeof(int) == 0);
  const auto numbers = std::bit_cast<std::array<int, sizeof(Pass) / sizeof(int)>>(pass);
  return {fmt::format("constexpr {} kPass", name), fmt::format("{{{}}}", fmt::join(numbers, ", "))};
}

/// A kernel before it is compiled: the text that holds it and the constants that specialise it.
struct KernelSource {
  std::string entry;  ///< Name of the function, such as "ScanForward".
  std::string file;   ///< File that the program includes, such as "backend/cuda/kernels/scan/scan_forward.cuh".
  std::vector<Constant> constants;  ///< Seen by the text.
  std::string functions;            ///< Seen by the text: those that only a program can write.
  plan::CellText rule;              ///< The cell that the text calls Rule, if it does.
  bool early = false;               ///< The text begins with WaitForKernelBefore(): launches may overlap, on Hopper.
  int shared_bytes = 0;             ///< Shared memory that each launch gives a block, on top of what the text declares.
  std::string plan;                 ///< For people who read what PENSTOCK_DUMP_DIR holds; it changes nothing.

  /// The program: the constants by name, and one include.
  std::string text() const;
};

/// Compiles for a chip (80: sm_80), without a GPU and without the cache; `log` states the resources of every kernel.
Compiled compile_kernel(const KernelSource& source, int architecture);

/// What the compiler is told for a chip.
std::vector<std::string> compiler_options(int architecture);

}  // namespace penstock::cuda
