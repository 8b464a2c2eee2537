#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "backend/cuda/driver/kernel.h"
#include "backend/cuda/driver/sources.h"
#include "support/temporary_folder.h"

/// Kernels as threads of the host: the text that NVRTC compiles, with each inline instruction of PTX as a call of
/// host_instructions.h, compiled by the host's compiler. Nothing of a kernel is left out or written twice.
namespace penstock::test {

/// Rewrites what a host's compiler does not read of a kernel's text.
class HostText {
 public:
  /// `changes` are words of the text, each with what stands in their place.
  explicit HostText(const cuda::KernelSource& source, const std::map<std::string, std::string>& changes = {}) {
    for (const auto& [name, text] : cuda::kernel_sources()) files_[name] = text;
    add(source.text());
    for (const auto& [from, to] : changes) {
      const std::size_t at = text_.find(from);
      if (at == std::string::npos) throw std::runtime_error("no '" + from + "' in " + source.entry);
      text_.replace(at, from.size(), to);
    }
    std::smatch found;
    const std::regex arguments("\\b" + source.entry + "\\(const __grid_constant__ (\\w+)");
    if (!std::regex_search(text_, found, arguments)) throw std::runtime_error("no kernel " + source.entry);
    const std::string of_call = found[1];
    text_ = instructions_as_calls(shared_memory_of_host(text_));
    text_ =
        "#include \"" PENSTOCK_HOST_GPU "\"\n" + text_ +
        fmt::format(
            "\nextern \"C\" const char* launch_on_host(int grid, int threads, int cluster, int shared, unsigned seed, "
            "const void* arguments) {{\n"
            "  static std::string fault;\n"
            "  try {{\n"
            "    host_gpu::Machine(grid, threads, cluster, shared, seed, [&] {{ {}(*(const {}*)arguments); }}).run();\n"
            "    return nullptr;\n"
            "  }} catch (const host_gpu::Fault& error) {{\n"
            "    return (fault = error.what).c_str();\n"
            "  }}\n}}\n",
            source.entry, of_call);
  }
  const std::string& text() const { return text_; }

 private:
  /// Adds a text with the files that it includes.
  void add(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::smatch found;
      if (line == "#pragma once") continue;
      if (!std::regex_match(line, found, std::regex("#include \"([^\"]+)\""))) {
        text_ += line + "\n";
        continue;
      }
      const std::string& included = files_.at(found[1].str());
      const bool once = included.find("#pragma once") != std::string::npos;
      if (once && !seen_.insert(found[1].str()).second) continue;
      add(included);
    }
  }

  static std::string shared_memory_of_host(const std::string& text) {
    static const std::regex given("extern __shared__ __align__\\(\\d+\\) char (\\w+)\\[\\];");
    const std::string with_given =
        std::regex_replace(text, given, "char* const $1 = host_gpu::machine().block().shared;");
    static const std::regex own("__shared__ (\\w+) (\\w+)\\[([^;]+)\\];");
    return std::regex_replace(with_given, own, "$1* const $2 = host_gpu::static_shared<$1>(__PRETTY_FUNCTION__, $3);");
  }

  /// The end of the literal, bracket or brace that begins at `at`, behind it.
  static std::size_t end_of(const std::string& text, std::size_t at) {
    if (text[at] == '"') {
      for (++at; text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
      return at + 1;
    }
    for (++at; std::string_view(")]}").find(text[at]) == std::string_view::npos;) {
      at = std::string_view("\"([{").find(text[at]) != std::string_view::npos ? end_of(text, at) : at + 1;
    }
    return at + 1;
  }

  /// asm volatile("text" : "=r"(a) : "r"(b) : "memory") as a call with out(a) and in(b).
  static std::string call_of(const std::string& statement) {
    std::string literal, operands;
    int colons = 0;
    for (std::size_t at = 0; at < statement.size();) {
      const char c = statement[at];
      if (c == '"') {
        const std::size_t end = end_of(statement, at);
        const std::string text = statement.substr(at, end - at);
        at = end;
        if (colons == 0) literal += text;
        if (colons != 1 && colons != 2) continue;
        while (std::isspace(static_cast<unsigned char>(statement[at])) != 0) ++at;
        const std::size_t closed = end_of(statement, at);
        operands += fmt::format("{}host_gpu::{}{}", operands.empty() ? "" : ", ", colons == 1 ? "out" : "in",
                                statement.substr(at, closed - at));
        at = closed;
      } else {
        colons += c == ':' ? 1 : 0;
        ++at;
      }
    }
    if (literal == "\"\"") return "{}";
    return fmt::format(
        "{{ static const host_gpu::Instruction host_instruction = host_gpu::find({}); const host_gpu::Operand "
        "host_operands[] = {{{}}}; host_instruction(host_operands); }}",
        literal, operands.empty() ? "host_gpu::Operand{}" : operands);
  }

  static std::string instructions_as_calls(const std::string& text) {
    static const std::regex begin("\\basm( volatile)?\\(");
    std::string result;
    auto from = text.cbegin();
    for (std::smatch found; std::regex_search(from, text.cend(), found, begin);) {
      const auto bracket = found[0].second - 1;
      const auto end =
          text.cbegin() + static_cast<std::ptrdiff_t>(end_of(text, static_cast<std::size_t>(bracket - text.cbegin())));
      result.append(from, found[0].first);
      result += call_of(std::string(bracket + 1, end - 1));
      from = end;
    }
    return result.append(from, text.cend());
  }

  std::map<std::string, std::string> files_;
  std::set<std::string> seen_;
  std::string text_;
};

/// A kernel that the host has compiled.
class HostKernel {
 public:
  explicit HostKernel(const cuda::KernelSource& source, const std::map<std::string, std::string>& changes = {}) {
    const std::string text = folder_.path("kernel.cc"), library = folder_.path("kernel.so"), log = folder_.path("log");
    std::ofstream(text) << HostText(source, changes).text();
    const std::string command =
        fmt::format("{} -std=c++20 -O1 -w -shared -fPIC -ffp-contract=off -o '{}' '{}' > '{}' 2>&1", PENSTOCK_COMPILER,
                    library, text, log);
    if (std::system(command.c_str()) != 0) {
      std::ostringstream why;
      why << std::ifstream(log).rdbuf();
      throw std::runtime_error("the host cannot compile " + source.entry + ":\n" + why.str().substr(0, 4000));
    }
    handle_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error(::dlerror());
    launch_ = reinterpret_cast<Launch>(::dlsym(handle_, "launch_on_host"));
  }
  ~HostKernel() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  HostKernel(const HostKernel&) = delete;
  HostKernel& operator=(const HostKernel&) = delete;

  /// Runs a launch; another seed is another order of its threads. Returns an error, or an empty text.
  template <class Arguments>
  std::string run(int grid, int threads, int cluster, int shared, unsigned seed, const Arguments& arguments) const {
    const char* const fault = launch_(grid, threads, cluster, shared, seed, &arguments);
    return fault == nullptr ? "" : fault;
  }

 private:
  using Launch = const char* (*)(int, int, int, int, unsigned, const void*);
  TemporaryFolder folder_;
  void* handle_ = nullptr;
  Launch launch_ = nullptr;
};

}  // namespace penstock::test
