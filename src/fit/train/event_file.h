#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/log_file.h"
#include "penstock/types.h"

namespace penstock::training {

/// A named number of one step.
using Scalar = std::pair<std::string_view, double>;

/// A file of events as TensorBoard reads them: TFRecords (length, masked CRC-32C, Event as a protocol buffer), each
/// written through at once, so that TensorBoard can follow the run.
class EventFile {
 public:
  /// Makes a new file in the folder, which is made if need be; an empty path writes nothing. Throws Error(io_failure)
  /// naming the path. A file that fails later is given up.
  explicit EventFile(const std::string& folder);

  void scalars(Index step, const std::vector<Scalar>& values);
  /// The run goes on from this step: TensorBoard forgets what earlier files of the folder say of later ones.
  void restart(Index step);
  /// Why the file was given up; empty if it was not.
  const std::string& error() const { return file_.error(); }

 private:
  void write(const std::string& event);

  LogFile file_;
};

/// CRC-32C (Castagnoli) of bytes.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace penstock::training
