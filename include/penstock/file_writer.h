#pragma once

#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// Writes a file that appears under its path complete or not at all. Every file of Penstock is written by it, except
/// logs, which grow line by line.
///
/// - Bytes go to a file of a random name in the same folder, which is synced and renamed. The old file stays whole
///   until then, and after any error. The next writer of the same path removes what a killed one left.
/// - A new file has the permissions that the umask leaves; a replaced one keeps its permissions, and its owner where
///   the system allows that.
/// - A symbolic link is followed, also if its target does not exist yet. A link that another user put into a folder
///   like /tmp is refused.
/// - A FIFO, a terminal and a device such as /dev/null are written to as they are. Folders, sockets and disks are
///   refused, and so are write-protected files.
///
/// All functions throw Error(io_failure) with the path and the system's reason.
class FileWriter {
 public:
  /// Opens the temporary file, so a path that cannot be written is refused before the content is made.
  explicit FileWriter(std::string path);
  /// Removes the temporary file unless finish() has succeeded.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::string_view bytes);
  /// Syncs the file and puts it in its place. Nothing can be written afterwards.
  void finish();

 private:
  void open_temporary(const std::string& folder, const std::string& name);
  [[noreturn]] void fail_writing(int error) const;

  std::string path_, target_;
  std::string temporary_;  ///< Empty: the path itself is open, or nothing is.
  int descriptor_ = -1;
};

/// Writes `content` by a FileWriter.
void write_file(const std::string& path, std::string_view content);

/// The path behind all symbolic links at `path`, which need not exist. Throws as above.
std::string behind_links(const std::string& path);

}  // namespace penstock
