#include "io/atomic_file.h"

#include "penstock/file_writer.h"

namespace penstock::io {

void write_atomically(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  FileWriter file(path);
  for (const auto piece : pieces) file.write({reinterpret_cast<const char*>(piece.data()), piece.size()});
  file.finish();
}

}  // namespace penstock::io
