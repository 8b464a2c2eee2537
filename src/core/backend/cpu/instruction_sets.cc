// Which instruction set the kernels come from.

#include "backend/cpu/isa.h"

#include <hwy/highway.h>

#if HWY_ARCH_X86 && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
#include <sys/auxv.h>
#endif

#include <atomic>
#include <string>

#include "backend/cpu/custom/custom.h"
#include "backend/cpu/element_kernels.h"
#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/product_kernels.h"
#include "base/check.h"
#include "base/environment.h"
#include "custom/cell.h"

namespace penstock::cpu {
namespace {

/// Returns whether the chip has AMX for bfloat16 and int8, and the system lets this process use it. A process must ask
/// once.
bool amx_is_granted() {
#if PENSTOCK_EMULATE_AMX && HWY_ARCH_X86
  return has_bf16_products() && __builtin_cpu_supports("avx512vnni") > 0;
#elif HWY_ARCH_X86 && defined(__linux__)
  static const bool granted = [] {
    constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25, all = bf16 | tile | int8;
    constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    return (edx & all) == all && has_bf16_products() && __builtin_cpu_supports("avx512vnni") > 0 &&
           syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return granted;
#else
  return false;
#endif
}

struct Isa {
  std::string_view name;
  std::int64_t targets;
  bool tiles = false;  // for matrix products: all else runs as without
};

#if HWY_ARCH_X86
constexpr Isa kIsas[] = {
    {"amx", HWY_AVX3, true}, {"avx512", HWY_AVX3}, {"avx2", HWY_AVX2}, {"baseline", HWY_STATIC_TARGET}};
#else
constexpr Isa kIsas[] = {{"neon", HWY_STATIC_TARGET}};
#endif

/// Returns the instruction sets of the chip, before use_isa() narrows them down.
std::int64_t chip_targets() {
  static const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

bool available(const Isa& isa) { return (isa.targets & chip_targets()) != 0 && (!isa.tiles || amx_is_granted()); }

std::atomic<unsigned> generation{0};
std::atomic<bool> tiles_in_use{false};

/// `asked_by` begins a message.
void select(std::string_view name, std::string_view asked_by = "") {
  std::string known;
  for (const Isa& isa : kIsas) {
    if (!available(isa)) continue;
    if (isa.name == name) {
      hwy::SetSupportedTargetsForTest(isa.targets);
      tiles_in_use = isa.tiles;
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(isa.name);
  }
  fail(ErrorCode::unsupported, "{}instruction set must be one of {} on this machine, not '{}'", asked_by, known, name);
}

/// PENSTOCK_ISA in the environment decides once, before the first kernel is fetched.
void read_environment() {
  static const bool done = [] {
    chip_targets();
    tiles_in_use = available(kIsas[0]) && kIsas[0].tiles;
    const char* wanted = environment("PENSTOCK_ISA");
    if (wanted != nullptr && *wanted != '\0') select(wanted, "PENSTOCK_ISA: the ");
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

std::vector<std::string_view> available_isas() {
  std::vector<std::string_view> names;
  for (const Isa& isa : kIsas) {
    if (available(isa)) names.push_back(isa.name);
  }
  return names;
}

std::string_view current_isa() {
  read_environment();
  for (const Isa& isa : kIsas) {
    if ((isa.targets & hwy::SupportedTargets()) != 0 && isa.tiles <= tiles_in_use) return isa.name;
  }
  return "baseline";
}

void use_isa(std::string_view name) {
  read_environment();
  select(name);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  ++generation;
}

unsigned isa_generation() { return generation; }

bool has_bf16_products() {
#if HWY_ARCH_X86
  static const bool has = __builtin_cpu_supports("avx512bf16") > 0;
  return has;
#else
  return false;
#endif
}

bool has_int8_products() {
  read_environment();
#if HWY_ARCH_X86
  static const bool has = __builtin_cpu_supports("avx512vnni") > 0;
  return has && (hwy::SupportedTargets() & HWY_AVX3) != 0;
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
  constexpr unsigned long dot_product = 1ul << 20;  // HWCAP_ASIMDDP
  static const bool has = (getauxval(AT_HWCAP) & dot_product) != 0;
  return has;
#else
  return false;
#endif
}

bool has_bf16_tiles() {
  read_environment();
  return tiles_in_use;
}

template <class Real>
CellKernels<Real> cell_kernels(int cell, Precision precision, bool exact) {
  check_enum("precision", precision, Precision::tf32);
  read_environment();
  CellKernels<Real> kernels;
  FillDenseForward(cell, kernels);
  FillDenseBackward(cell, kernels);
  FillScan(cell, kernels);
  if (precision == Precision::full) return kernels;
  if constexpr (std::is_same_v<Real, float>) {
    const bool tiles = precision == Precision::bf16 && tiles_in_use && !exact;
    if (tiles) {
      FillBf16Tiles(cell, kernels);
    } else {
      FillBf16(cell, precision, kernels);
    }
    if (!exact && kernels.rounded_inputs != nullptr) {
      FillBf16Backward(cell, tiles, kernels);
      FillBf16ScanBackward(cell, tiles, kernels);
    }
  } else {
    fail(ErrorCode::unsupported, "precision must be full for layers in double, not {}", to_string(precision));
  }
  return kernels;
}

CellKernels<float> int8_kernels(int cell) {
  auto kernels = cell_kernels<float>(cell);
  const auto fill = tiles_in_use ? &FillInt8Tiles : has_int8_products() ? &FillInt8Dot : &FillInt8;
  fill(cell, kernels);
  return kernels;
}

template <class Real>
CellKernels<Real> custom_kernels(const custom::DerivedCell& cell) {
  read_environment();
  CellKernels<Real> kernels;
  if (cell.cell.scan) {
    FillCustomScan(cell.cell.gates, kernels);
  } else {
    FillCustomForward(cell.cell.gates, kernels);
    FillCustomBackward(cell.cell.gates, kernels);
  }
  return kernels;
}

template <class Real>
CellKernels<Real> given_kernels(Given given) {
  read_environment();
  CellKernels<Real> kernels;
  FillGiven(given, kernels);
  return kernels;
}

template <class Real>
ProductKernels<Real> product_kernels() {
  read_environment();
  ProductKernels<Real> kernels;
  FillProducts(kernels);
  if constexpr (std::is_same_v<Real, float>) {
    if (tiles_in_use) FillSplitProducts(kernels);
  }
  return kernels;
}

template <class Real>
ElementKernels<Real> element_kernels() {
  read_environment();
  ElementKernels<Real> kernels;
  FillElements(kernels);
  return kernels;
}

template CellKernels<float> cell_kernels<float>(int, Precision, bool);
template CellKernels<double> cell_kernels<double>(int, Precision, bool);
template CellKernels<float> custom_kernels<float>(const custom::DerivedCell&);
template CellKernels<double> custom_kernels<double>(const custom::DerivedCell&);
template CellKernels<float> given_kernels<float>(Given);
template CellKernels<double> given_kernels<double>(Given);
template ProductKernels<float> product_kernels<float>();
template ProductKernels<double> product_kernels<double>();
template ElementKernels<float> element_kernels<float>();
template ElementKernels<double> element_kernels<double>();

}  // namespace penstock::cpu
