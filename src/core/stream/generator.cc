#include <array>
#include <vector>

#include "base/alive.h"
#include "base/check.h"
#include "ops/pointwise/sample.h"
#include "penstock/stop.h"
#include "penstock/stream.h"

namespace penstock {

std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double random) {
  require(!logits.empty(), "logits must not be empty");
  ops::check_sampling(sampling);
  require_argument(random >= 0.0 && random < 1.0, "random", random, "in [0, 1)");
  std::vector<ops::Candidate> scratch(logits.size());
  return ops::draw(logits, sampling, random, scratch.data());
}

struct Generator::Impl {
  Impl(const Model& model, const Sampling& chosen, const Execution& execution)
      : row(model, 1, execution), sampling(chosen) {}

  SessionBatch row;
  Sampling sampling;
  bool begun = false;
};

Generator::Generator(const Model& model, const Sampling& sampling, std::uint64_t seed, const Execution& execution) {
  sample(std::array{0.0f}, sampling, 0.0);  // refuses what is impossible before anything is drawn
  require(model.data().task == Task::language, "model must be one of a text: it writes nothing");
  require(model.data().vocabulary == 256,
          "model must be one of bytes, not of token ids: Session reads and generates those");
  impl_ = std::make_unique<Impl>(model, sampling, execution);
  impl_->row.seed(0, seed);
}

Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;

Generator::Impl& Generator::held() const { return alive(impl_, "the generator"); }

void Generator::read(std::string_view text) {
  for (const char byte : text) {
    stop_if_asked();
    held().row.push(std::array{static_cast<std::int32_t>(static_cast<unsigned char>(byte))});
  }
  held().begun = held().begun || !text.empty();
}

char Generator::next() {
  stop_if_asked();
  if (!held().begun) read("\n");
  std::array<std::int32_t, 1> token{};
  held().row.generate(held().sampling, 1, token);
  return static_cast<char>(static_cast<unsigned char>(token[0]));
}

}  // namespace penstock
