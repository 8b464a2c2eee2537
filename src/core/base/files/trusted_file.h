#pragma once

#include <optional>
#include <string>

namespace penstock {

/// Files that the library reads because of where they are, such as those of a cache, and not because the user named
/// them. As ssh does with its keys, it trusts those alone that nobody but this user and root can change.

/// Returns why others could change what a folder or a file holds, in words with advice; empty if they cannot, or if it
/// is not there.
std::string who_else_writes(const std::string& path);

enum class Trust {
  anyone,  ///< The user named the file, which may be a pipe.
  owner,   ///< It is a regular file and no link, and only this user and root can write to it.
};

/// Reads a file as a whole, up to 256 MiB. Returns nothing and sets `problem` to the reason in words where that is not
/// possible or not allowed; `problem` is empty if there is no file.
std::optional<std::string> read_trusted(const std::string& path, Trust trust, std::string& problem);

/// Makes a folder that only its owner can read and write, whatever the umask, and those above it as the umask says.
/// Ignores errors: writing into the folder will tell them.
void make_private_folder(const std::string& folder);

}  // namespace penstock
