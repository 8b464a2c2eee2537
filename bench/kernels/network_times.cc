// Times of a published network on a stream, beside ONNX Runtime with its state fed back by hand:
//
//   network_times MODEL.onnx LIBRARY CHUNKS [INPUT=NUMBER] [INPUT:EXTENT,EXTENT] [turns=COUNT] [allocates]
//
// INPUT=NUMBER fixes an input, INPUT:... gives the shape of a chunk. Both have one thread and the same random chunks.
// They take turns of COUNT chunks [1]: with one, each evicts the other's weights from the cache of the core.
// "allocates": ONNX Runtime allocates its outputs, for files that declare another shape than they compute.
// Prints a line of JSON: times in microseconds, of Penstock, of ONNX Runtime, and of reading as many bytes as the file
// has again and again; and the largest difference of the outputs.

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/network.h"

namespace penstock {
namespace {

using Names = std::vector<const char*>;
using Bytes = std::vector<std::byte>;

/// The functions of ONNX Runtime's C interface that are called here. They are in a table, and each has the same number
/// in all versions.
class Runtime {
 public:
  explicit Runtime(const char* library) {
    void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) throw std::runtime_error(dlerror());
    const auto base = reinterpret_cast<const Base* (*)()>(dlsym(opened, "OrtGetApiBase"))();
    constexpr std::uint32_t oldest = 12;
    functions_ = base->get_api(oldest);
    version = base->get_version();
  }

  template <int number, class... Args>
  void call(Args... args) const {
    void* const status = reinterpret_cast<void* (*)(Args...)>(functions_[number])(args...);
    if (status == nullptr) return;
    throw std::runtime_error(reinterpret_cast<const char* (*)(void*)>(functions_[kGetErrorMessage])(status));
  }

  void release_value(void* value) const { reinterpret_cast<void (*)(void*)>(functions_[kReleaseValue])(value); }

  enum : int {
    kGetErrorMessage = 2,
    kCreateEnv = 3,
    kCreateSession = 7,
    kRun = 9,
    kCreateSessionOptions = 10,
    kSetGraphOptimizationLevel = 23,
    kSetIntraOpNumThreads = 24,
    kCreateTensorWithData = 49,
    kGetTensorMutableData = 51,
    kCreateCpuMemoryInfo = 69,
    kReleaseValue = 96,
  };
  const char* version = "";

 private:
  struct Base {
    void* const* (*get_api)(std::uint32_t version);
    const char* (*get_version)();
  };
  void* const* functions_ = nullptr;
};

int type_number(const std::string& type) {
  constexpr std::pair<const char*, int> numbers[] = {{"f32", 1}, {"u8", 2},   {"i8", 3},  {"i32", 6},
                                                     {"i64", 7}, {"bool", 9}, {"f64", 11}};
  for (const auto& [name, number] : numbers) {
    if (type == name) return number;
  }
  throw std::runtime_error("no such type: " + type);
}

/// A session of ONNX Runtime on tensors of the caller.
class Peer {
 public:
  Peer(const Runtime& runtime, const char* path) : runtime_(runtime) {
    void *environment = nullptr, *options = nullptr;
    constexpr int errors = 3, all = 99, arena = 1, usual = 0;
    runtime.call<Runtime::kCreateEnv, int, const char*, void**>(errors, "network_times", &environment);
    runtime.call<Runtime::kCreateSessionOptions, void**>(&options);
    runtime.call<Runtime::kSetIntraOpNumThreads, void*, int>(options, 1);
    runtime.call<Runtime::kSetGraphOptimizationLevel, void*, int>(options, all);
    runtime.call<Runtime::kCreateSession, void*, const char*, void*, void**>(environment, path, options, &session_);
    runtime.call<Runtime::kCreateCpuMemoryInfo, int, int, void**>(arena, usual, &memory_);
  }

  /// A tensor of these bytes.
  void* tensor(const NetworkTensor& like, Bytes& bytes) const {
    void* value = nullptr;
    runtime_
        .call<Runtime::kCreateTensorWithData, void*, void*, std::size_t, const std::int64_t*, std::size_t, int, void**>(
            memory_, bytes.data(), bytes.size(), like.shape.data(), like.shape.size(), type_number(like.type), &value);
    return value;
  }

  void run(const Names& in, const std::vector<void*>& inputs, const Names& out, std::vector<void*>& outputs) const {
    runtime_.call<Runtime::kRun, void*, void*, const char* const*, void* const*, std::size_t, const char* const*,
                  std::size_t, void**>(session_, nullptr, in.data(), inputs.data(), in.size(), out.data(), out.size(),
                                       outputs.data());
  }

  /// Copies an output that ONNX Runtime has allocated, which is null then.
  void take(void*& output, Bytes& bytes) const {
    void* data = nullptr;
    runtime_.call<Runtime::kGetTensorMutableData, void*, void**>(output, &data);
    std::memcpy(bytes.data(), data, bytes.size());
    runtime_.release_value(std::exchange(output, nullptr));
  }

 private:
  const Runtime& runtime_;
  void *session_ = nullptr, *memory_ = nullptr;
};

std::size_t count(const NetworkTensor& tensor) {
  std::size_t all = 1;
  for (const Index extent : tensor.shape) all *= static_cast<std::size_t>(extent);
  return all;
}

Bytes zeros(const NetworkTensor& like) {
  const std::size_t element = like.type == "i64" || like.type == "f64"   ? 8
                              : like.type == "f32" || like.type == "i32" ? 4
                                                                         : 1;
  return Bytes(count(like) * element);
}

double timed(const auto& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

std::string summary(std::vector<double> times) {
  std::ranges::sort(times);
  const auto at = [&](double part) {
    return times[static_cast<std::size_t>(part * static_cast<double>(times.size() - 1))];
  };
  return fmt::format(R"({{"median": {:.2f}, "tenth": {:.2f}, "nine_tenths": {:.2f}}})", at(0.5), at(0.1), at(0.9));
}

/// Times of reading so many bytes, a number of each line of a cache.
std::vector<double> readings(std::uintmax_t bytes) {
  const std::vector<std::uint64_t> memory(static_cast<std::size_t>(bytes / sizeof(std::uint64_t)), 1);
  std::vector<double> times;
  for (int k = 0; k < 200; ++k) {
    volatile std::uint64_t all = 0;
    times.push_back(timed([&] {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < memory.size(); i += 8) sum += memory[i];
      all = sum;
    }));
  }
  return times;
}

struct Arguments {
  NetworkImport import;
  NetworkShapes shapes;
  int turns = 1;
  bool allocates = false;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 4; i < argc; ++i) {
    const std::string text = argv[i];
    const std::size_t middle = text.find_last_of("=:");
    if (text == "allocates") {
      arguments.allocates = true;
      continue;
    }
    if (text.starts_with("turns=")) {
      arguments.turns = std::max(1, std::stoi(text.substr(middle + 1)));
      continue;
    }
    if (middle == std::string::npos) throw std::runtime_error("expected INPUT=NUMBER or INPUT:EXTENTS, not " + text);
    if (text[middle] == '=') {
      arguments.import.fixed[text.substr(0, middle)] = {std::stod(text.substr(middle + 1))};
      continue;
    }
    std::istringstream extents(text.substr(middle + 1));
    for (std::string each; std::getline(extents, each, ',');) {
      arguments.shapes[text.substr(0, middle)].push_back(std::stoll(each));
    }
  }
  return arguments;
}

/// Runs ONNX Runtime on chunks: its states go from one buffer to the other.
class PeerStream {
 public:
  PeerStream(const Peer& peer, const Network& network, NetworkSession& session, const Arguments& arguments)
      : peer_(peer), inputs_(session.inputs()), outputs_(session.outputs()), allocates_(arguments.allocates) {
    for (const NetworkTensor& each : inputs_) add(each, in_, bytes_in_);
    for (const auto& [name, number] : arguments.import.fixed) {
      fixed_.push_back({name, "i64"});
      const auto value = static_cast<std::int64_t>(number.front());
      std::memcpy(add(fixed_.back(), in_, bytes_in_).data(), &value, sizeof(value));
    }
    for (const NetworkTensor& each : outputs_) {
      add(each, out_, bytes_out_);
      if (allocates_) out_.back() = nullptr;
    }
    for (const NetworkState& each : network.states()) {
      NetworkTensor tensor = each.input;
      for (Index& extent : tensor.shape) extent = std::max<Index>(extent, 1);
      states_.push_back(tensor);
      next_names_.push_back(each.output);
    }
    for (NetworkTensor& each : states_) {
      add(each, in_, bytes_in_);
      other_.push_back(peer.tensor(each, bytes_.emplace_back(zeros(each))));
    }
    for (const NetworkTensor& each : inputs_) names_in_.push_back(each.name.c_str());
    for (const NetworkTensor& each : fixed_) names_in_.push_back(each.name.c_str());
    for (const NetworkTensor& each : states_) names_in_.push_back(each.name.c_str());
    for (const NetworkTensor& each : outputs_) names_out_.push_back(each.name.c_str());
    for (const std::string& each : next_names_) names_out_.push_back(each.c_str());
    out_.insert(out_.end(), other_.begin(), other_.end());
  }

  Bytes& input(std::size_t i) { return *bytes_in_[i]; }
  const Bytes& output(std::size_t i) {
    if (allocates_) peer_.take(out_[i], *bytes_out_[i]);
    return *bytes_out_[i];
  }
  void run() {
    peer_.run(names_in_, in_, names_out_, out_);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      std::swap(in_[in_.size() - states_.size() + i], out_[out_.size() - states_.size() + i]);
    }
  }

 private:
  Bytes& add(const NetworkTensor& like, std::vector<void*>& values, std::vector<Bytes*>& places) {
    Bytes& bytes = bytes_.emplace_back(zeros(like));
    values.push_back(peer_.tensor(like, bytes));
    places.push_back(&bytes);
    return bytes;
  }

  const Peer& peer_;
  std::vector<NetworkTensor> inputs_, outputs_, states_;
  std::list<NetworkTensor> fixed_;
  std::vector<std::string> next_names_;
  std::list<Bytes> bytes_;
  std::vector<Bytes*> bytes_in_, bytes_out_;
  std::vector<void*> in_, out_, other_;
  Names names_in_, names_out_;
  bool allocates_ = false;
};

int run(int argc, char** argv) {
  if (argc < 4) throw std::runtime_error("expected MODEL.onnx LIBRARY CHUNKS [INPUT=NUMBER] [INPUT:EXTENT,EXTENT]");
  const Arguments arguments = parse(argc, argv);
  const Runtime runtime(argv[2]);
  const int chunks = std::stoi(argv[3]);
  const Network network = Network::import_onnx(argv[1], arguments.import);
  NetworkSession session(network, arguments.shapes);
  const Peer peer(runtime, argv[1]);
  PeerStream stream(peer, network, session, arguments);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.1F);
  std::vector<double> ours, theirs;
  double difference = 0;
  const auto count_of_turn = static_cast<std::size_t>(arguments.turns);
  std::vector<std::vector<std::vector<float>>> inputs(count_of_turn), outputs(count_of_turn);
  for (int i = 0; i < chunks; i += arguments.turns) {
    for (std::size_t turn = 0; turn < count_of_turn; ++turn) {
      inputs[turn].clear(), outputs[turn].clear();
      for (const NetworkTensor& each : session.inputs()) {
        if (each.type != "f32") continue;  // others stay zero
        const auto input = session.input<float>(each.name);
        for (float& value : input) value = normal(random);
        inputs[turn].emplace_back(input.begin(), input.end());
      }
      ours.push_back(timed([&] { session.run(); }));
      for (const NetworkTensor& each : session.outputs()) {
        if (each.type != "f32") continue;
        const auto output = session.output<float>(each.name);
        outputs[turn].emplace_back(output.begin(), output.end());
      }
    }
    for (std::size_t turn = 0; turn < count_of_turn; ++turn) {
      auto input = inputs[turn].begin(), output = outputs[turn].begin();
      for (std::size_t k = 0; k < session.inputs().size(); ++k) {
        if (session.inputs()[k].type == "f32")
          std::memcpy(stream.input(k).data(), input->data(), input->size() * 4), ++input;
      }
      theirs.push_back(timed([&] { stream.run(); }));
      for (std::size_t k = 0; k < session.outputs().size(); ++k) {
        const Bytes& bytes = stream.output(k);
        if (session.outputs()[k].type != "f32") continue;
        const auto* const other = reinterpret_cast<const float*>(bytes.data());
        for (std::size_t n = 0; n < output->size(); ++n) {
          difference = std::max(difference, static_cast<double>(std::abs((*output)[n] - other[n])));
        }
        ++output;
      }
    }
  }
  fmt::print(R"({{"ours": {}, "theirs": {}, "reading": {}, "difference": {:.3g}, "version": "{}"}})"
             "\n",
             summary(ours), summary(theirs), summary(readings(std::filesystem::file_size(argv[1]))), difference,
             runtime.version);
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    return penstock::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "network_times: {}\n", error.what());
    return 1;
  }
}
