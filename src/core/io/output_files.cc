#include "penstock/output_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "io/file_descriptor.h"
#include "penstock/file_writer.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Target of a path: a file or folder that exists, or the entry of a folder that would be made.
struct Place {
  dev_t device = 0;
  ino_t inode = 0;
  std::string entry;
  bool is_folder = false;

  bool operator==(const Place& other) const = default;
};

/// Nothing for FIFOs and devices, which keep nothing that could be lost.
std::optional<Place> place_of(const struct stat& status) {
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return std::nullopt;
  return Place{status.st_dev, status.st_ino, "", S_ISDIR(status.st_mode)};
}

/// The target of a link that leads nowhere yet.
std::string behind_dangling(const std::string& path) {
  try {
    return behind_links(path);
  } catch (const Error&) {
    return path;  // which nobody can write; the writer says why
  }
}

std::optional<Place> place_of(const std::string& path, int descriptor_of_dash) {
  if (path.empty()) return std::nullopt;
  struct stat status {};
  const int found = path == "-" ? ::fstat(descriptor_of_dash, &status) : ::stat(path.c_str(), &status);
  if (found == 0) return place_of(status);
  if (path == "-") return std::nullopt;
  const fs::path target = fs::path(behind_dangling(path)).lexically_normal();
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (::stat(folder.c_str(), &status) == 0) return Place{status.st_dev, status.st_ino, target.filename().string()};
  std::error_code unknown;
  return Place{.entry = fs::absolute(target, unknown).string()};  // folders that do not exist either
}

/// Returns the places of a path and, for a folder, of all files in it that are not hidden.
std::vector<Place> places_to_read(const std::string& path) {
  std::vector<Place> places;
  const std::optional<Place> place = place_of(path, STDIN_FILENO);
  if (!place) return places;
  places.push_back(*place);
  if (!place->is_folder) return places;
  std::error_code unreadable;
  fs::recursive_directory_iterator entry(path, fs::directory_options::follow_directory_symlink, unreadable);
  for (; !unreadable && entry != fs::recursive_directory_iterator(); entry.increment(unreadable)) {
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
    } else if (const auto file = place_of(entry->path().string(), STDIN_FILENO); file && !file->is_folder) {
      places.push_back(*file);
    }
  }
  return places;
}

/// Eight bytes say the size of the JSON header that follows them.
bool is_safetensors(std::string_view head) {
  return head.size() > 8 && head[8] == '{' && head.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

/// Returns the bytes that show the kind of a regular file: the header of a safetensors file, the first 4 kB of others.
/// Empty if it is empty, missing, or cannot be read.
std::string head_of(const std::string& path) {
  const io::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  const auto read = [&](std::size_t size) {
    std::string head(size, '\0');
    head.resize(static_cast<std::size_t>(std::max<ssize_t>(::pread(file.get(), head.data(), size, 0), 0)));
    return head;
  };
  std::string head = read(4096);
  if (!is_safetensors(head)) return head;
  std::uint32_t header = 0;
  std::memcpy(&header, head.data(), sizeof(header));
  return read(std::min<std::size_t>(header, std::size_t{1} << 26) + 8);
}

bool begins(std::string_view head, std::initializer_list<std::string_view> marks) {
  return std::ranges::any_of(marks, [&](std::string_view mark) { return head.starts_with(mark); });
}

bool has(std::string_view head, std::string_view mark) { return head.find(mark) != head.npos; }

bool is_model(std::string_view head) { return is_safetensors(head) && has(head, "\"penstock\":"); }
bool is_network(std::string_view head) { return is_safetensors(head) && has(head, "\"penstock.network\":"); }
bool is_checkpoint(std::string_view head) { return is_model(head) && has(head, "\"penstock.training\":"); }

/// The first field of the protocol buffer is the version of the format, a small number. Then comes another field with a
/// number of one digit.
bool is_onnx(std::string_view head) {
  constexpr unsigned char version = 0x08, highest = 0x20, last_field = 0x7f, lengths = 2;
  if (head.size() < 3) return false;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(head[i]); };
  return byte(0) == version && byte(1) < highest && byte(2) <= last_field && (byte(2) & 7) == lengths;
}

/// A ZIP archive whose first entry is a tensor, or with code; torch.save() begins with data.pkl and has none.
bool is_script(std::string_view head) {
  constexpr std::size_t name_length = 26, name = 30;
  if (!begins(head, {"PK\x03\x04"}) || head.size() < name) return false;
  return head.substr(name, static_cast<unsigned char>(head[name_length])).ends_with("/data/0") ||
         has(head, "/code/__torch__");
}

struct Known {
  FileKind kind;
  const char* name;
  bool (*is)(std::string_view head);
};

/// More special kinds first.
constexpr Known known_kinds[] = {
    {FileKind::checkpoint, "a checkpoint", is_checkpoint},
    {FileKind::model, "a model", is_model},
    {FileKind::network, "an imported network", is_network},
    {FileKind::tensors, "a safetensors file", is_safetensors},
    {FileKind::onnx, "an ONNX model", is_onnx},
    {FileKind::metrics, "a file of metrics", [](std::string_view head) { return begins(head, {"{\"kind\":"}); }},
    {FileKind::benchmark, "a JSON file of 'penstock bench'",
     [](std::string_view head) { return begins(head, {"{"}) && has(head, "\"all_right\":"); }},
    {FileKind::shards, "an index of shards",
     [](std::string_view head) { return begins(head, {"{"}) && has(head, "\"weight_map\""); }},
    {FileKind::cell, "a custom cell",
     [](std::string_view head) { return begins(head, {"{"}) && has(head, "\"gates\""); }},
    {FileKind::tables, "a Markdown page of 'penstock bench'",
     [](std::string_view head) { return begins(head, {"# Benchmarks on a "}); }},
    {FileKind::report, "a page of 'penstock report'",
     [](std::string_view head) { return has(head.substr(0, 256), "name=\"generator\" content=\"penstock"); }},
    {FileKind::picture, "a picture",
     [](std::string_view head) {
       return begins(head, {"\x89PNG", "<?xml", "<svg", "%PDF"});
     }},
    {FileKind::sound, "a sound file",
     [](std::string_view head) {
       return begins(head, {"RIFF", "RF64"});
     }},
    {FileKind::script, "a TorchScript program", is_script},
    {FileKind::keras, "a file of Keras",
     [](std::string_view head) {
       return begins(head, {"\x89HDF"}) || (begins(head, {"PK\x03\x04"}) && has(head.substr(0, 256), "metadata.json"));
     }},
    {FileKind::manual, "a manual page", [](std::string_view head) { return begins(head, {".TH "}); }},
};

/// Refuses an output, with its role as the caller names it: "--metrics log.jsonl would overwrite DATA".
[[noreturn]] void refuse(const OutputFile& output, const std::string& problem, const Message::Part& end = "") {
  throw Error(ErrorCode::invalid_argument,
              {the_argument(output.role), output.path == "-" ? "" : " " + output.path, problem, end},
              {.argument = output.role, .value = output.path});
}

const char* name_of(FileKind kind) { return std::ranges::find(known_kinds, kind, &Known::kind)->name; }

void check_kind(const OutputFile& output, std::string_view advice) {
  if (output.kind == FileKind::any || output.path == "-") return;
  const std::string head = head_of(output.path);
  if (head.empty()) return;
  const auto* const found = std::ranges::find_if(known_kinds, [&](const Known& known) { return known.is(head); });
  const bool known = found != std::end(known_kinds);
  if (known && found->kind == output.kind) return;
  refuse(output, fmt::format(" is there already, {}not {}; {}", known ? std::string(found->name) + ", " : "",
                             name_of(output.kind), advice));
}

}  // namespace

void check_outputs(const std::vector<InputFile>& inputs, const std::vector<OutputFile>& outputs,
                   std::string_view advice) {
  std::vector<std::vector<Place>> read;
  for (const InputFile& input : inputs) read.push_back(places_to_read(input.path));
  std::vector<std::optional<Place>> written;
  for (const OutputFile& output : outputs) {
    const std::optional<Place> place = place_of(output.path, STDOUT_FILENO);
    for (std::size_t i = 0; place && i < read.size(); ++i) {
      if (std::ranges::find(read[i], *place) == read[i].end()) continue;
      refuse(output, " would overwrite ", the_argument(inputs[i].role));
    }
    const auto same = place ? std::ranges::find(written, place) : written.end();
    if (same != written.end()) {
      const OutputFile& other = outputs[static_cast<std::size_t>(same - written.begin())];
      throw Error(ErrorCode::invalid_argument, {the_argument(other.role), " and ", the_argument(output.role),
                                                " must be different files, not both " + output.path});
    }
    written.push_back(place);
  }
  if (advice.empty()) return;
  for (const OutputFile& output : outputs) check_kind(output, advice);
}

}  // namespace penstock
