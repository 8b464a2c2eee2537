#include "io/onnx/stream/stream.h"

#include <algorithm>

#include "base/check.h"
#include "io/onnx/stream/check.h"
#include "io/onnx/stream/streamer.h"
#include "io/status_error.h"

namespace penstock::io::onnx {
namespace {

using network::Network;
using network::Shape;

/// Extents that may be time: an axis of each input, or -1.
struct Candidate {
  std::string name;
  std::vector<Index> axes;
};

const network::Value& input_value(const Network& network, std::size_t input) {
  return network.values[static_cast<std::size_t>(network.inputs[input])];
}

bool is_state(const Network& network, std::size_t input) {
  return std::ranges::any_of(network.states,
                             [&](const network::State& each) { return static_cast<std::size_t>(each.input) == input; });
}

std::string name_of_axis(const network::Value& value, std::size_t axis) {
  const bool named = axis < value.axes.size() && !value.axes[axis].empty();
  return named ? value.axes[axis] : fmt::format("axis {}", axis);
}

/// An extent of a state does not grow with the sequence: it is a batch.
bool is_of_state(const Network& network, const std::string& name) {
  return std::ranges::any_of(network.states, [&](const network::State& each) {
    const auto& axes = input_value(network, static_cast<std::size_t>(each.input)).axes;
    return !name.empty() && std::ranges::find(axes, name) != axes.end();
  });
}

std::vector<Candidate> find_candidates(const Network& network) {
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < network.inputs.size(); ++i) {
    const network::Value& value = input_value(network, i);
    for (std::size_t axis = 0; axis < value.shape.size() && !is_state(network, i); ++axis) {
      if (value.shape[axis] >= 0) continue;
      const std::string name = name_of_axis(value, axis);
      if (axis < value.axes.size() && is_of_state(network, value.axes[axis])) continue;
      auto found = std::ranges::find(all, name, &Candidate::name);
      if (found == all.end()) {
        all.push_back({name, std::vector<Index>(network.inputs.size(), -1)});
        found = all.end() - 1;
      }
      found->axes[i] = static_cast<Index>(axis);
    }
  }
  return all;
}

/// Shapes of the inputs for a number of steps, and other free extents: those of `names`, or 1.
std::vector<Shape> shapes_of(const Network& network, const Candidate& time, Index steps,
                             const std::vector<std::pair<Index, std::string>>& names) {
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < network.inputs.size(); ++i) {
    const network::Value& value = input_value(network, i);
    Shape shape = value.shape;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] >= 0) continue;
      const auto found = std::ranges::find(names, name_of_axis(value, axis), &std::pair<Index, std::string>::second);
      shape[axis] = static_cast<Index>(axis) == time.axes[i] ? steps : found != names.end() ? found->first : 1;
    }
    shapes.push_back(shape);
  }
  return shapes;
}

/// Names of other extents that the caller chooses, each with a number to know it by.
std::vector<std::pair<Index, std::string>> name_others(const Network& network, const Candidate& time) {
  std::vector<std::pair<Index, std::string>> names;
  for (std::size_t i = 0; i < network.inputs.size(); ++i) {
    const network::Value& value = input_value(network, i);
    for (std::size_t axis = 0; axis < value.axes.size(); ++axis) {
      if (value.shape[axis] >= 0 || value.axes[axis].empty() || value.axes[axis] == time.name) continue;
      const auto found = std::ranges::find(names, value.axes[axis], &std::pair<Index, std::string>::second);
      if (found == names.end()) names.emplace_back(static_cast<Index>(names.size()) + 2, value.axes[axis]);
    }
  }
  return names;
}

/// Traces the network for the least length that it can run with.
Traces trace_lengths(const Network& network, const Candidate& time, Index period, const std::string& source) {
  Traces traces;
  traces.names = name_others(network, time);
  network::Status status;
  // Odd numbers, which are rarely those of features, then some with many divisors, for frames of samples.
  for (const Index periods : {13, 53, 211, 853, 3413, 9600, 76800}) {
    traces.steps = periods * period;
    status = network::trace(network, shapes_of(network, time, traces.steps, {}), traces.once);
    if (status.ok()) status = network::trace(network, shapes_of(network, time, 2 * traces.steps, {}), traces.twice);
    if (status.ok()) {
      status = network::trace(network, shapes_of(network, time, traces.steps, traces.names), traces.others);
    }
    if (status.ok()) return traces;
  }
  require_ok(status, fmt::format("{}: as a stream: with {} frames, and 1 for what else is free in the inputs: ", source,
                                 traces.steps));
  return traces;
}

struct Streamed {
  Network network;
  bool coupled = false;
};

Streamed stream_along(const Network& network, const Candidate& time, const std::string& source) {
  for (Index period = 1;;) {
    try {
      const Traces traces = trace_lengths(network, time, period, source);
      Streamer streamer(network, traces, period, source);
      for (std::size_t i = 0; i < network.inputs.size(); ++i) streamer.add_input(network.inputs[i], time.axes[i]);
      Streamed made{streamer.write(), streamer.is_coupled()};
      check_stream(network, made.network, {time.axes, traces.steps, period, streamer.outputs()}, source);
      return made;
    } catch (const OtherPeriod& other) {
      if (other.period > (Index{1} << 20)) {
        fail(ErrorCode::unsupported, "{}: as a stream: a frame of its results has more than {} steps of its inputs",
             source, period);
      }
      period = other.period;
    }
  }
}

/// Extents without a name become 1, and all others where frames of a batch lie in one axis.
Streamed stream_or_fix(Network network, const Candidate& time, const std::string& source) {
  const auto fix = [&](bool named) {
    for (std::size_t i = 0; i < network.inputs.size(); ++i) {
      network::Value& value = network.values[static_cast<std::size_t>(network.inputs[i])];
      for (std::size_t axis = 0; axis < value.shape.size(); ++axis) {
        const bool has_name = axis < value.axes.size() && !value.axes[axis].empty();
        if (value.shape[axis] < 0 && static_cast<Index>(axis) != time.axes[i] && has_name == named)
          value.shape[axis] = 1;
      }
    }
  };
  fix(false);
  if (name_others(network, time).empty()) return stream_along(network, time, source);
  try {
    return stream_along(network, time, source);
  } catch (const Error&) {
    fix(true);
    return stream_along(network, time, source);
  }
}

/// Makes a stream along the extent of that name, or along the only one that frames depend on each other along.
void choose_time(Network& network, const std::string& time, const std::string& source) {
  const std::vector<Candidate> candidates = find_candidates(network);
  std::vector<std::string> names;
  for (const Candidate& each : candidates) names.push_back(each.name);
  if (names.empty()) {
    fail(ErrorCode::unsupported,
         "{}: as a stream: all extents of its inputs are fixed. Export it with a time axis of any length", source);
  }
  if (!time.empty()) {
    require_argument(std::ranges::find(names, time) != names.end(), "time", time, "one of {}", fmt::join(names, ", "));
    network = stream_or_fix(network, *std::ranges::find(candidates, time, &Candidate::name), source).network;
    return;
  }
  std::vector<Streamed> coupled;
  std::vector<std::string> problems;
  for (const Candidate& each : candidates) {
    try {
      Streamed made = stream_or_fix(network, each, source);
      if (made.coupled || candidates.size() == 1) coupled.push_back(std::move(made));
    } catch (const Error& error) {
      const std::string text = error.what(), place = source + ": as a stream: ";
      problems.push_back(
          fmt::format("along {}, {}", each.name, text.substr(text.starts_with(place) ? place.size() : 0)));
    }
  }
  if (coupled.size() == 1) {
    network = std::move(coupled[0].network);
    return;
  }
  if (coupled.empty() && !problems.empty()) {
    fail(ErrorCode::unsupported, "{}: as a stream {}", source, fmt::join(problems, "; "));
  }
  fail_with(ErrorCode::unsupported, {the_option("time", names.back()), " says that it is ", names.back()},
            "{}: as a stream: it is not clear which extent is time: {}", source, fmt::join(names, ", "));
}

}  // namespace

void make_stream(Network& network, const std::string& time, const std::string& source) {
  if (network.states.empty()) return choose_time(network, time, source);
  std::string names;
  for (const network::State& each : network.states) {
    names += (names.empty() ? "" : ", ") + input_value(network, static_cast<std::size_t>(each.input)).name;
  }
  try {
    choose_time(network, time, source);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    const Message remedy = "The file is a stream of chunks already, with the state " + names + ": import it without " +
                           Message({the_option("stream")});
    throw Error(error.code(), error.message() + ". " + remedy, {.remedy = remedy});
  }
}

}  // namespace penstock::io::onnx
