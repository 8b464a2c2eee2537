#pragma once

#include <string>
#include <string_view>

/// Writing files that appear complete or not at all.
namespace penstock {

/// Writes a file that appears under its path complete or not at all. Penstock writes all files with it, except logs,
/// which grow line by line.
///
/// - Bytes go to a temporary file with a random name in the same folder, which is synced and renamed. The old file
///   stays unchanged until then, and after any error. The next writer of the same path removes temporary files of
///   killed writers.
/// - A new file has the permissions of the umask. A replaced file keeps its permissions and, if the system allows it,
///   its owner.
/// - A symbolic link is followed, even if its target does not exist yet. A link that another user put into a folder
///   like /tmp is refused.
/// - FIFOs, terminals and devices such as /dev/null are written to directly. Folders, sockets, disks and
///   write-protected files are refused.
///
/// Kind::cache is for files of a cache. It replaces whatever is at the path, even a link or another user's file, by a
/// file that only this user can write. It does not sync: after a power cut the file may be damaged, and its reader must
/// detect that.
///
/// All functions throw Error(io_failure) with the path and the system's reason.
class FileWriter {
 public:
  /// Kind of the file, as described above.
  enum class Kind { document, cache };

  /// Opens the temporary file. A path that cannot be written throws here, before any content is made.
  explicit FileWriter(std::string path, Kind kind = Kind::document);
  /// Removes the temporary file unless finish() has succeeded.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  /// Appends bytes to the file.
  void write(std::string_view bytes);
  /// Syncs the file and moves it to its path. No write() may follow.
  void finish();

 private:
  void open_in_place_or_beside();
  void open_temporary(const std::string& folder, const std::string& name, unsigned mode);
  [[noreturn]] void fail_writing(int error) const;

  Kind kind_;
  std::string path_, target_;
  std::string temporary_;  ///< Empty: the path itself is open, or no file is.
  int descriptor_ = -1;
};

/// Writes a file with a FileWriter.
void write_file(const std::string& path, std::string_view content);

/// Throws what a FileWriter for this path would throw, without changing the file. Does not open a FIFO, since that
/// would wait for a reader.
void check_can_write(const std::string& path);

/// Returns the system's message for `error`, a value of errno. For a file name that is too long, adds its length and
/// the limit of the file system.
std::string why_not_written(const std::string& path, int error);

/// Returns the path behind all symbolic links at `path`. It need not exist. Throws as above.
std::string behind_links(const std::string& path);

}  // namespace penstock
