#include "backend/cuda/driver/compile_kernel.h"

#include "backend/cuda/driver/sources.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

/// Hopper's own instructions belong to sm_90a alone, and chips of one generation are all alike in them.
std::string target_of(int architecture) { return fmt::format("sm_{}{}", architecture, architecture == 90 ? "a" : ""); }

}  // namespace

std::vector<std::string> compiler_options(int architecture) {
  return {"--gpu-architecture=" + target_of(architecture), "--std=c++20", "--prec-div=false",
          "--ptxas-options=--verbose"};
}

std::string KernelSource::text() const {
  std::string text = "#include \"backend/cuda/kernels/prelude.cuh\"\n\n";
  if (!rule.definition.empty()) {
    text += fmt::format("{}using Rule = {};\n", rule.definition, rule.type);
  } else if (!rule.type.empty()) {
    text += fmt::format("struct {};\nusing Rule = {};\n", rule.type, rule.type);
  }
  for (const auto& [declaration, value] : constants) text += fmt::format("{} = {};\n", declaration, value);
  return text + functions + fmt::format("\n#include \"{}\"\n", file);
}

Compiled compile_kernel(const KernelSource& source, int architecture) {
  const Nvrtc& compiler = nvrtc();
  if (!compiler.knows(architecture)) {
    fail(ErrorCode::unsupported, "NVRTC {}.{} ({}) cannot compile for sm_{}; install a newer one", compiler.major,
         compiler.minor, compiler.origin, architecture);
  }
  return compile({source.entry, source.text(), kernel_sources(), compiler_options(architecture)});
}

}  // namespace penstock::cuda
