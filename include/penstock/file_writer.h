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
/// A file of a cache is different: whatever stands at its path is replaced, be it a link or another user's file, by one
/// that only this user can write, and it is not synced: a power cut may tear it, which its reader has to notice.
///
/// All functions throw Error(io_failure) with the path and the system's reason.
class FileWriter {
 public:
  enum class Kind { document, cache };

  /// Opens the temporary file, so a path that cannot be written is refused before the content is made.
  explicit FileWriter(std::string path, Kind kind = Kind::document);
  /// Removes the temporary file unless finish() has succeeded.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::string_view bytes);
  /// Syncs the file and puts it in its place. Nothing can be written afterwards.
  void finish();

 private:
  void open_in_place_or_beside();
  void open_temporary(const std::string& folder, const std::string& name, unsigned mode);
  [[noreturn]] void fail_writing(int error) const;

  Kind kind_;
  std::string path_, target_;
  std::string temporary_;  ///< Empty: the path itself is open, or nothing is.
  int descriptor_ = -1;
};

/// Writes `content` by a FileWriter.
void write_file(const std::string& path, std::string_view content);

/// Throws what a FileWriter would, before there is anything to write; the file stays as it is. A FIFO is not tried,
/// since opening it would wait for a reader.
void check_can_write(const std::string& path);

/// Returns the system's reason for `error`, a value of errno, in words. Of a name that is too long for its file system,
/// also how long it is and may be.
std::string why_not_written(const std::string& path, int error);

/// The path behind all symbolic links at `path`, which need not exist. Throws as above.
std::string behind_links(const std::string& path);

}  // namespace penstock
