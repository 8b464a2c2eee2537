#include "backend/cuda/product/warpgroup_multiply.h"

#include <fmt/format.h>

#include "base/check.h"

namespace penstock::cuda {
namespace {

/// "%0, %1, ..." or "+f"(sum[0]), "+f"(sum[1]), ...: one text for each of `count` numbers.
template <class TextOf>
std::string list(int count, const TextOf& text_of) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i == 0 ? "" : ", ") + text_of(i);
  return all;
}

std::string multiply(int columns, bool first) {
  const int sums = columns / 2;
  const std::string registers = list(sums, [](int i) { return fmt::format("%{}", i); });
  const std::string factors = list(4, [&](int i) { return fmt::format("%{}", sums + i); });
  const std::string results = list(sums, [&](int i) { return fmt::format("\"{}f\"(sum[{}])", first ? '=' : '+', i); });
  return fmt::format(
      "PENSTOCK_DEVICE void Multiply{}(float (&sum)[{}], const unsigned (&a)[4], unsigned long long b) {{\n"
      "  asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, {}, 0;\\n\"\n"
      "      \"wgmma.mma_async.sync.aligned.m64n{}k8.f32.tf32.tf32 {{{}}}, {{{}}}, %{}, add, 1, 1;\\n}}\"\n"
      "      : {}\n"
      "      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));\n}}\n",
      first ? "First" : "", sums, first ? 0 : 1, columns, registers, factors, sums + 4, results);
}

}  // namespace

namespace {

void require_columns(int columns) {
  require(columns >= 8 && columns <= 256 && columns % 8 == 0,
          "a multiplication of a warpgroup has 8 to 256 columns, a multiple of 8, not {}", columns);
}

}  // namespace

std::string warpgroup_multiply(int columns) {
  require_columns(columns);
  return multiply(columns, false) + multiply(columns, true);
}

std::string warpgroup_multiply_halves(int columns, plan::Storage storage) {
  require_columns(columns);
  require(storage != plan::Storage::f32, "halves are bf16 or f16, not f32");
  const int sums = columns / 2;
  const std::string_view type = to_string(storage);
  return fmt::format(
      "PENSTOCK_DEVICE void Multiply(float (&sum)[{}], unsigned long long a, unsigned long long b) {{\n"
      "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, %{}, %{}, 1, 1, 1, 0, 0;\"\n"
      "      : {}\n"
      "      : \"l\"(a), \"l\"(b));\n}}\n",
      sums, columns, type, type, list(sums, [](int i) { return fmt::format("%{}", i); }), sums, sums + 1,
      list(sums, [](int i) { return fmt::format("\"+f\"(sum[{}])", i); }));
}

namespace {

/// A multiplication of 16-bit numbers whose first factor is in `words` operands (`inputs`): a description, or
/// registers.
std::string multiply_or_set(std::string_view name, std::string_view parameter, int columns, plan::Storage storage,
                            int words, std::string_view orders, std::string_view inputs) {
  require_columns(columns);
  require(storage != plan::Storage::f32, "halves are bf16 or f16, not f32");
  const int sums = columns / 2, after = sums + words;
  const std::string registers = list(sums, [](int i) { return fmt::format("%{}", i); });
  const std::string results = list(sums, [](int i) { return fmt::format("\"+f\"(sum[{}])", i); });
  const std::string operands = list(words, [&](int i) { return fmt::format("%{}", sums + i); });
  return fmt::format(
      "PENSTOCK_DEVICE void {}(float (&sum)[{}], {}, unsigned long long b, int add) {{\n"
      "  asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{}, 0;\\n\"\n"
      "      \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, {}, %{}, add, {};\\n}}\"\n"
      "      : {}\n"
      "      : {}, \"l\"(b), \"r\"(add));\n}}\n",
      name, sums, parameter, after + 1, columns, to_string(storage), to_string(storage), registers,
      words == 1 ? operands : "{" + operands + "}", after, orders, results, inputs);
}

}  // namespace

std::string warpgroup_multiply_shared(int columns, plan::Storage storage) {
  return multiply_or_set("MultiplyShared", "unsigned long long a", columns, storage, 1, "1, 1, 0, 0", "\"l\"(a)");
}

std::string warpgroup_multiply_recurrent(int columns, plan::Storage storage) {
  return warpgroup_multiply_shared(columns, storage) +
         multiply_or_set("MultiplyHeld", "const unsigned (&a)[4]", columns, storage, 4, "1, 1, 0",
                         "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])");
}

}  // namespace penstock::cuda
