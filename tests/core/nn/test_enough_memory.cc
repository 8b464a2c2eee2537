// Messages about too little memory.

#include "nn/enough_memory.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace penstock::test {
namespace {

nn::MemoryNeed need() {
  return {"a step of 64 x 512", [] { return std::size_t{3} << 30; }, "a smaller batch needs less"};
}

TEST(EnoughMemory, WorkThatHasItIsLeftAlone) {
  EXPECT_EQ(nn::with_enough_memory(Device::cpu(), need, [] { return 7; }), 7);
  expect_error(ErrorCode::bad_input, "something else", [] {
    nn::with_enough_memory(Device::cpu(), need, [] { fail(ErrorCode::bad_input, "something else"); });
  });
}

TEST(EnoughMemory, AnErrorSaysWhatIsNeededWhatThereIsAndWhatLowersIt) {
  expect_error(ErrorCode::out_of_memory,
               "a step of 64 x 512 needs 3072 MB of memory on cuda:1: 5 MB are free; a smaller batch needs less", [] {
                 nn::with_enough_memory(Device::cuda(1), need, [] { fail(ErrorCode::out_of_memory, "5 MB are free"); });
               });
  expect_error(ErrorCode::out_of_memory, "MB of the host's are free; a smaller batch needs less",
               [] { nn::with_enough_memory(Device::cpu(), need, [] { throw std::bad_alloc(); }); });
  ASSERT_GT(free_memory(), 0u);
}

TEST(EnoughMemory, WhatCannotBePlannedIsNotCounted) {
  const auto unknown = [] {
    nn::MemoryNeed what = need();
    what.bytes = []() -> std::size_t { throw std::bad_alloc(); };
    return what;
  };
  expect_error(ErrorCode::out_of_memory, "a step of 64 x 512 needs more memory than there is on cpu: ", [&] {
    nn::with_enough_memory(Device::cpu(), unknown, [] { throw std::bad_alloc(); });
  });
}

}  // namespace
}  // namespace penstock::test
