#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/contenders/contender.h"

namespace penstock::bench {

/// The implementations that the Python of this machine has, each number of threads in a process of its own. The scripts
/// are those of bench/peers, which an installed Penstock keeps in share/penstock/bench.
class PythonPeers {
 public:
  /// `python` is a path, or a name to look for on the PATH. `folder` with the scripts may be empty: then none are here.
  /// `names` are those that are wanted: a library is loaded only to see its peers. `stop`: whether nobody waits for
  /// what they do any more; calls then throw Error(interrupted).
  PythonPeers(std::string python, std::string folder, std::vector<std::string> names, std::function<bool()> stop);
  ~PythonPeers();
  PythonPeers(const PythonPeers&) = delete;
  PythonPeers& operator=(const PythonPeers&) = delete;

  /// The wanted ones, here or missing; starts Python on the first call.
  const std::vector<Peer>& list();
  /// "3.11.7"; empty if there is none.
  const std::string& python_version() const { return version_; }

  /// Throws NotOffered where a peer has no such case, and Error(io_failure) where its process ended.
  std::unique_ptr<Contender> make(const std::string& name, const Problem& problem);

  /// Runs a script of the folder on a text, which it finds as a file, and one more argument; returns the bytes that it
  /// answers. Throws Error(io_failure) with its complaint if it has none.
  std::string run_script(const std::string& script, const std::string& text, const std::string& argument);

 private:
  class Server;
  class Remote;
  Server& server(int threads);

  std::string python_, folder_, version_, temporary_;
  std::vector<std::string> names_;
  std::vector<Peer> peers_;
  std::function<bool()> stop_;
  bool listed_ = false;
  std::vector<std::unique_ptr<Server>> servers_;
};

/// Returns the folder of the scripts: $PENSTOCK_BENCH_PEERS, or beside this program as built or installed. Empty: none.
std::string find_peers_folder();

}  // namespace penstock::bench
