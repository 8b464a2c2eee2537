#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/suite/problem.h"
#include "penstock/recurrent.h"

namespace penstock::bench {

/// One implementation, ready to run one problem over and over.
class Contender {
 public:
  Contender() = default;
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;

  /// The answers of one call. Of a step: the whole stream from its start. Of training: with `masked_dy`, so that the
  /// gradients of weights belong to the compared rows alone.
  virtual Answers<float> check() = 0;
  /// Returns the results of the last timed call, without gradients of weights. Of a step: the stream once more.
  virtual Answers<float> last() = 0;
  /// Seconds per call (per step) of timed calls that together take about `seconds`.
  virtual std::vector<double> sample(double seconds) = 0;
  /// Its way of computing loses so much to rounding that check() runs it in double: what it computes is compared with
  /// the oracle as strictly as anybody's, and how well it does so in float is reported. Never ours.
  virtual bool checks_in_double() const { return false; }
};

/// Why an implementation does not take part in a case, as part of a sentence: "has no sLSTM".
struct NotOffered {
  std::string reason;
};

/// An implementation that this machine has, or the reason why it has not.
struct Peer {
  std::string name;
  std::string version;
  std::string missing;  ///< Empty if it is here.
};

/// Our own ways through a case: "penstock" as a user would call it; "penstock-sequential" and "penstock-scan" with the
/// algorithm fixed; "penstock-loop", a call for each step. Throws NotOffered.
std::unique_ptr<Contender> make_ours(const std::string& name, const Problem& problem);

/// Makes our contenders on a GPU. With data in its memory: "penstock", "penstock-direct", "penstock-scan",
/// "penstock-loop". From and to the host's memory: "penstock-copied". On the CPU, for comparison: "penstock-cpu",
/// "penstock-cpu-sequential", "penstock-cpu-scan".
std::unique_ptr<Contender> make_ours_on_gpu(const std::string& name, const Problem& problem);

/// Our layer of a problem's sizes with these values.
Recurrent<float> make_layer(const Problem& problem, const std::vector<Array>& weights);

/// Is this a name for make_ours()?
bool is_ours(const std::string& name);

}  // namespace penstock::bench
