#include "bench/suite/python_peers.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/suite/child_process.h"
#include "penstock/error.h"

namespace penstock::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* no_scripts =
    "its script is not in share/penstock/bench beside the program, nor does PENSTOCK_BENCH_PEERS say where";

std::string make_temporary_folder() {
  std::string pattern = (fs::temp_directory_path() / "penstock-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw Error(ErrorCode::io_failure, fmt::format("cannot make a folder for the peers' numbers: {}", pattern));
  }
  return pattern;
}

void write_array(const std::string& path, const std::vector<float>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  file.close();
  if (!file) throw Error(ErrorCode::io_failure, fmt::format("cannot write {}", path));
}

std::vector<float> read_array(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<float> values(file ? static_cast<std::size_t>(file.tellg()) / sizeof(float) : 0);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file) throw Error(ErrorCode::io_failure, fmt::format("cannot read {}", path));
  return values;
}

}  // namespace

class PythonPeers::Server {
 public:
  Server(const std::string& python, const std::string& folder, const std::string& temporary, int threads,
         const std::function<bool()>& stop)
      : threads_(threads),
        process_({python, "-u", folder + "/server.py"}, environment(threads), temporary + "/errors.txt", stop) {}

  int threads() const { return threads_; }

  /// Throws Error(io_failure) with what Python says went wrong.
  nlohmann::json ask(const nlohmann::json& request) {
    nlohmann::json answer = nlohmann::json::parse(process_.ask(request.dump()), nullptr, false);
    if (!answer.is_object()) throw Error(ErrorCode::io_failure, "answered something that is no JSON object");
    if (answer.contains("error")) throw Error(ErrorCode::io_failure, answer["error"].get<std::string>());
    return answer;
  }

 private:
  /// Returns the environment that the libraries below Python read when they start.
  static std::vector<std::string> environment(int threads) {
    // OpenBLAS' idle threads spin for 2^26 ticks unless told otherwise, into the turns of all who share the process.
    std::vector<std::string> all = {"PYTHONDONTWRITEBYTECODE=1", "OPENBLAS_THREAD_TIMEOUT=20"};
    for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
      all.push_back(fmt::format("{}={}", name, threads));
    }
    return all;
  }

  int threads_;
  ChildProcess process_;
};

/// A contender whose calls happen in the server.
class PythonPeers::Remote : public Contender {
 public:
  Remote(Server& server, std::string name, std::string folder, const Problem& problem)
      : server_(server), name_(std::move(name)), folder_(std::move(folder)) {
    fs::create_directories(folder_);
    nlohmann::json arrays = nlohmann::json::object();
    const auto put = [&](const std::string& array, const std::vector<Index>& shape, const std::vector<float>& values) {
      write_array(fmt::format("{}/in.{}", folder_, array), values);
      arrays[array] = shape;
    };
    const Case& test = problem.test;
    const Shape& shape = test.shape;
    for (const Array& array : problem.weights_for(name_)) put(array.name, array.shape, array.values);
    if (!problem.x.empty()) put("x", {shape.rows, shape.steps, shape.inputs}, problem.x);
    if (test.pass == Pass::training) {
      put("dy", {shape.rows, shape.steps, shape.hidden}, problem.dy);
      put("masked_dy", {shape.rows, shape.steps, shape.hidden}, problem.masked_dy());
    }
    const nlohmann::json described = {{"cell", test.cell},     {"pass", to_string(test.pass)},
                                      {"dtype", test.dtype},   {"threads", test.threads},
                                      {"device", test.device}, {"head", test.has_head()},
                                      {"B", shape.rows},       {"T", shape.steps},
                                      {"I", shape.inputs},     {"H", shape.hidden},
                                      {"heads", shape.heads},  {"each_call", test.each_call}};
    const nlohmann::json answer = server_.ask({{"do", "prepare"},
                                               {"peer", name_},
                                               {"folder", folder_},
                                               {"case", described},
                                               {"rows", problem.rows},
                                               {"arrays", arrays}});
    if (answer.contains("refused")) {
      fs::remove_all(folder_);
      throw NotOffered{answer["refused"].get<std::string>()};
    }
    in_double_ = answer.value("in_double", false);
  }
  ~Remote() override {
    try {
      server_.ask({{"do", "drop"}, {"peer", name_}});
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a process that has ended holds nothing any more
    }
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Answers<float> check() override { return answers("check"); }
  Answers<float> last() override { return answers("last"); }
  bool checks_in_double() const override { return in_double_; }

  std::vector<double> sample(double seconds) override {
    return server_.ask({{"do", "sample"}, {"peer", name_}, {"seconds", seconds}})["seconds"].get<std::vector<double>>();
  }

 private:
  Answers<float> answers(const char* what) {
    const nlohmann::json answer = server_.ask({{"do", what}, {"peer", name_}});
    Answers<float> found;
    for (const std::string name : answer["arrays"]) {
      std::vector<float> values = read_array(fmt::format("{}/out.{}", folder_, name));
      if (name == "y") {
        found.y = std::move(values);
      } else if (name == "dx") {
        found.dx = std::move(values);
      } else {
        found.gradients.emplace_back(name, std::move(values));
      }
    }
    return found;
  }

  Server& server_;
  std::string name_, folder_;
  bool in_double_ = false;
};

PythonPeers::PythonPeers(std::string python, std::string folder, std::vector<std::string> names,
                         std::function<bool()> stop)
    : python_(std::move(python)),
      folder_(std::move(folder)),
      temporary_(make_temporary_folder()),
      names_(std::move(names)),
      stop_(std::move(stop)) {}

PythonPeers::~PythonPeers() {
  servers_.clear();
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

PythonPeers::Server& PythonPeers::server(int threads) {
  for (const auto& server : servers_) {
    if (server->threads() == threads) return *server;
  }
  return *servers_.emplace_back(std::make_unique<Server>(python_, folder_, temporary_, threads, stop_));
}

const std::vector<Peer>& PythonPeers::list() {
  if (std::exchange(listed_, true)) return peers_;
  std::string reason = no_scripts;
  if (!folder_.empty()) {
    try {
      const nlohmann::json answer = server(1).ask({{"do", "hello"}, {"peers", names_}});
      version_ = answer["python"].get<std::string>();
      for (const nlohmann::json& peer : answer["peers"])
        peers_.push_back({peer["name"], peer["version"], peer["missing"]});
      return peers_;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::interrupted) throw;
      reason = error.what();
    }
  }
  servers_.clear();
  for (const std::string& name : names_) peers_.push_back({name, "", reason});
  return peers_;
}

std::unique_ptr<Contender> PythonPeers::make(const std::string& name, const Problem& problem) {
  return std::make_unique<Remote>(server(problem.test.threads), name, fmt::format("{}/{}", temporary_, name), problem);
}

std::string PythonPeers::run_script(const std::string& script, const std::string& text, const std::string& argument) {
  if (folder_.empty()) throw Error(ErrorCode::io_failure, no_scripts);
  const std::string input = temporary_ + "/text";
  std::ofstream(input) << text;
  ChildProcess process({python_, fmt::format("{}/{}", folder_, script), input, argument}, {"PYTHONDONTWRITEBYTECODE=1"},
                       temporary_ + "/script-errors.txt", stop_);
  return bytes_of(process.ask(""));
}

std::string find_peers_folder() {
  if (const char* given = std::getenv("PENSTOCK_BENCH_PEERS"); given != nullptr) return given;
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  if (unknown) return "";
  for (const fs::path& folder : {program / "share/penstock/bench", program / "../share/penstock/bench"}) {
    if (fs::exists(folder / "server.py", unknown)) return folder.lexically_normal().string();
  }
  return "";
}

}  // namespace penstock::bench
