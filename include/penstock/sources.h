#pragma once

#include "penstock/data.h"

namespace penstock {

/// The files that sources name: every folder is replaced by the files in it and in its subfolders, in the order of
/// their paths, without hidden ones. Throws Error(bad_input) for a folder without files.
Sources files_of(const Sources& sources);

}  // namespace penstock
