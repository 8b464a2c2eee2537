// Runs a model that was exported from PyTorch with layers of penstock.torch, without Python.
//
//   run_exported_model LIBRARY MODEL B T I <x >y
//
// LIBRARY is penstock.torch.library_path, the ops of the layers. MODEL is a package of AOTInductor (.pt2, of
// torch._inductor.aoti_compile_and_package) or a traced module (of torch.jit.trace), of one tensor x float32
// [B, T, I] to one tensor y; both are raw numbers here. Built against LibTorch, which PyTorch's wheel has inside:
//
//   torch=$(python -c 'import torch; print(torch.__path__[0])')
//   g++ -std=c++20 -O1 -I$torch/include -o run_exported_model run_exported_model.cc
//       -L$torch/lib -Wl,--no-as-needed,-rpath,$torch/lib -ltorch -ltorch_cpu -lc10 -ldl

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void load_ops(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  const auto failure = reinterpret_cast<const char* (*)()>(dlsym(handle, "penstock_torch_failure"));
  if (failure == nullptr) throw std::runtime_error(std::string(library) + " is not Penstock's library of ops");
  if (const char* const reason = failure()) throw std::runtime_error(reason);
}

at::Tensor run(const std::string& model, const at::Tensor& x) {
  if (model.ends_with(".pt2")) return torch::inductor::AOTIModelPackageLoader(model).run({x}).at(0);
  return torch::jit::load(model).forward({x}).toTensor();
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 6) throw std::runtime_error("usage: run_exported_model LIBRARY MODEL B T I <x >y");
  load_ops(arguments[1]);
  std::vector<std::int64_t> shape;
  std::size_t size = 1;
  for (int i = 3; i < 6; ++i) {
    shape.push_back(std::stoll(arguments[i]));
    if (shape.back() < 1) throw std::runtime_error("B, T and I must be positive");
    size *= static_cast<std::size_t>(shape.back());
  }
  std::vector<float> numbers(size);
  if (std::fread(numbers.data(), sizeof(float), size, stdin) != size) throw std::runtime_error("x ends early");

  const c10::InferenceMode inference;
  const at::Tensor y = run(arguments[2], at::from_blob(numbers.data(), shape, at::kFloat)).contiguous();
  const auto written = static_cast<std::size_t>(y.numel());
  return std::fwrite(y.const_data_ptr<float>(), sizeof(float), written, stdout) == written ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "run_exported_model: %s\n", e.what());
  return 2;
}
