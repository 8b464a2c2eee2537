#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/random.h"
#include "penstock/checksum.h"

// For fuzz targets that read safetensors files: mutates an input, and then mostly writes the length of the header and
// the checksum that it has now, because otherwise few inputs would get past these.

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t room);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t room, unsigned seed) {
  penstock::Random random(seed);
  std::string file(reinterpret_cast<const char*>(data), LLVMFuzzerMutate(data, size, room));
  constexpr std::size_t first = sizeof(std::uint64_t);
  std::size_t end = file.rfind("}}");
  end = end == file.npos ? file.rfind('}') : end + 1;
  if (end != file.npos && end >= first && random.below(8) != 0) {
    end = std::min(file.find_first_not_of(' ', end + 1), file.size());
    const std::uint64_t length = end - first;
    std::memcpy(file.data(), &length, first);
  }
  const std::size_t place = penstock::checksum_place(file, "penstock.checksum");
  if (place != file.npos && place + penstock::checksum_digits <= file.size() && random.below(16) != 0) {
    file.replace(place, penstock::checksum_digits, penstock::checksum_of(file, place));
  }
  std::memcpy(data, file.data(), file.size());
  return file.size();
}
