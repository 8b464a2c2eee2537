#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "fuzz/refusal.h"
#include "fuzz/sealed.h"
#include "io/model_file.h"
#include "nn/model/model_impl.h"

using namespace penstock;

/// Parameters that the reader accepts are those that kernels multiply: finite, with int8 between -127 and 127.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  test::accepted([&] {
    const auto file = io::SafetensorsFile::parse(content, "fuzz");
    const io::ModelDescription described = io::read_description(file);
    Model::Impl model(described.spec, described.data);
    io::read_parameters(file, *model.parameters);
    for (const nn::ParameterEntry& entry : model.parameters->layout().entries()) {
      if (entry.dtype == DType::i8) {
        const std::vector<std::int8_t> rows = nn::int8_rows(*model.parameters, entry);
        test::check(std::ranges::count(rows, std::int8_t{-128}) == 0, "a weight of -128");
      } else {
        test::check(std::ranges::all_of(model.parameters->value(entry), [](float x) { return std::isfinite(x); }),
                    "a value that is not finite");
      }
    }
  });
  return 0;
}
