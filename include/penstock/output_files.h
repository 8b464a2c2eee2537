#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The files of one call: nothing is written over a file that the call reads, or over another result of it.
namespace penstock {

/// Kinds of files that Penstock writes, as their first bytes show them.
enum class FileKind {
  any,         ///< No check: the caller refuses what it must not replace.
  model,       ///< A model of Penstock.
  checkpoint,  ///< A checkpoint of a training run.
  network,     ///< An imported network.
  tensors,     ///< Another safetensors file.
  onnx,        ///< A model as ONNX.
  metrics,     ///< Metrics of a run, as JSON lines.
  cell,        ///< A custom cell, as JSON.
  benchmark,   ///< Results of a benchmark, as JSON.
  tables,      ///< Results of a benchmark, as Markdown.
  report,      ///< A page of `penstock report`.
  picture,     ///< A PNG, SVG or PDF file.
  sound,       ///< A WAV file.
  keras,       ///< A .keras or .weights.h5 file.
  shards,      ///< The index of a safetensors file in shards.
  script,      ///< A TorchScript program.
  manual,      ///< A manual page.
};

/// A file that a call reads: its setting, or what messages call it, such as "DATA", and its path. A folder stands for
/// all files in it. "-" is standard input; an empty path is no file.
struct InputFile {
  std::string role, path;
};

/// A file or folder that a call writes. "-" is standard output; an empty path is no file.
struct OutputFile {
  std::string role, path;
  FileKind kind = FileKind::any;
};

/// Checks the files of a call before it opens any. Two paths are the same file if links of either kind lead to one
/// file, or if they name the same entry of one folder. FIFOs and devices are the same as nothing.
///
/// Throws Error(invalid_argument) if an output is an input or another output. Also if a file that exists, and is not
/// empty, is of another kind than the output: `advice` ends that message and says what replaces it; with an empty
/// `advice`, it may be replaced.
void check_outputs(const std::vector<InputFile>& inputs, const std::vector<OutputFile>& outputs,
                   std::string_view advice);

/// The advice of functions that have no option to replace a file of another kind.
inline constexpr std::string_view advice_to_remove = "remove it first, or name another file";

}  // namespace penstock
