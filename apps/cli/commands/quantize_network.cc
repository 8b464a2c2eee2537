#include "commands/quantize_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "answers/quantized_layers.h"
#include "options/data_options.h"
#include "penstock/data/sound.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

namespace {

/// The only input of a network, whose values are samples.
NetworkTensor sound_input(const penstock::Network& network, const NetworkArguments& arguments) {
  const std::string path = printable(arguments.network);
  if (network.inputs().size() != 1) {
    fail(ErrorCode::unsupported,
         "{} has {} inputs: the command scores networks with one input of samples; penstock.quantize() in Python takes "
         "any inputs",
         path, network.inputs().size());
  }
  NetworkTensor input = network.inputs().front();
  if (input.type != "f32") {
    fail(ErrorCode::unsupported,
         "input '{}' of {} has the type {}, expected f32, samples; penstock.quantize() in Python takes any inputs",
         printable(input.name), path, input.type);
  }
  for (std::size_t i = 0; i < arguments.frames.shape.size(); ++i) {
    const double extent = arguments.frames.shape[i];
    if (extent < 1.0 || extent != std::floor(extent) || extent > 1e9) {
      fail(ErrorCode::invalid_argument, "--shape must be whole numbers of at least 1, not {}", extent);
    }
    if (i == 0) input.shape.clear();
    input.shape.push_back(static_cast<Index>(extent));
  }
  if (std::ranges::any_of(input.shape, [](Index extent) { return extent < 1; })) {
    fail(ErrorCode::invalid_argument, "give the shape of input '{}' by --shape, such as --shape 1,512",
         printable(input.name));
  }
  return input;
}

/// The outputs of a network along a sound, from the zero state on.
std::vector<float> outputs_of(const penstock::Network& network, const NetworkTensor& input, Index hop,
                              std::span<const float> samples) {
  NetworkSession session(network, {{input.name, input.shape}});
  const std::span<float> frame = session.input<float>(input.name);
  std::vector<float> all;
  for (std::size_t at = 0; at + frame.size() <= samples.size(); at += static_cast<std::size_t>(hop)) {
    std::ranges::copy(samples.subspan(at, frame.size()), frame.begin());
    session.run();
    for (const NetworkTensor& output : session.outputs()) {
      if (output.type != "f32") continue;
      const std::span<const float> values = session.output<float>(output.name);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

/// The mean difference as a share of the mean size.
double difference_of(std::span<const float> want, std::span<const float> got) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    size += std::abs(static_cast<double>(want[i]));
  }
  return size > 0.0 ? difference / size : difference;
}

}  // namespace

int quantize_network(const NetworkArguments& arguments) {
  if (!is_sound_file(arguments.data)) {
    fail(ErrorCode::invalid_argument,
         "--data must be a sound for an imported network, such as speech.wav, not {}: penstock.quantize() in Python "
         "takes arrays",
         printable(arguments.data));
  }
  const penstock::Network network = penstock::Network::load(arguments.network);
  const NetworkTensor input = sound_input(network, arguments);
  Index size = 1;
  for (const Index extent : input.shape) size *= extent;
  if (arguments.frames.hop < 0) {
    fail(ErrorCode::invalid_argument, "--hop must be 0 or more, not {}", arguments.frames.hop);
  }
  const Index hop = arguments.frames.hop == 0 ? size : arguments.frames.hop;
  const Sound sound = read_sound(arguments.data);
  const std::vector<float> want = outputs_of(network, input, hop, sound.samples);
  if (static_cast<Index>(sound.samples.size()) < size) {
    fail(ErrorCode::bad_input, "{} has {} samples, and one input of the network takes {}", printable(arguments.data),
         sound.samples.size(), size);
  }
  if (want.empty()) {
    fail(ErrorCode::unsupported,
         "{} has no values of the type f32 among its outputs, whose change would be the loss; penstock.quantize() in "
         "Python takes any outputs",
         printable(arguments.network));
  }
  const QuantizedNetwork made = quantize(
      network,
      [&](const penstock::Network& changed) {
        return difference_of(want, outputs_of(changed, input, hop, sound.samples));
      },
      arguments.options);
  made.network.save(arguments.output);
  const FileSizes sizes(arguments.network, arguments.output);
  if (arguments.json) {
    return print_answer(json_line({{"output", arguments.output},
                                   {"bytes", sizes.after},
                                   {"bytes_before", sizes.before},
                                   {"loss", made.loss},
                                   {"layers", layers_json(made.layers)}}));
  }
  return print_answer(fmt::format("score    outputs differ by {:.3f} % of their mean size\n", 100.0 * made.loss) +
                      layers_text(made.layers, arguments.options.each_layer) + sizes.text(arguments.output));
}

}  // namespace penstock::cli
