#include <cstdint>

#include "fuzz/refusal.h"
#include "penstock/data.h"

using namespace penstock;

/// A position comes out of a checkpoint, which may be damaged: whatever is accepted, the dataset must still work.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto dataset = open_task("parity");
  if (test::accepted([&] { dataset->restore(text); })) {
    Example example;
    dataset->next(2, 8, example);
    test::check(example.labels.size() == 80, "an incomplete batch");
    const std::string position = dataset->position();
    dataset->restore(position);
    test::check(dataset->position() == position, "a position that changes");
  }
  return 0;
}
