#include <array>
#include <random>

#include "base/check.h"
#include "penstock/stream.h"

namespace penstock {

struct Generator::Impl {
  Impl(const Model& model, const Sampling& chosen, std::uint64_t seed, const Execution& execution)
      : session(model, execution), sampling(chosen), random(seed) {}

  Session session;
  Sampling sampling;
  std::mt19937_64 random;
  std::span<const float> logits;
};

Generator::Generator(const Model& model, const Sampling& sampling, std::uint64_t seed, const Execution& execution) {
  sample(std::array{0.0f}, sampling, 0.0);  // refuses what is impossible before anything is drawn
  require(model.data().task == Task::language, "model must be one of a text: it writes nothing");
  impl_ = std::make_unique<Impl>(model, sampling, seed, execution);
}

Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;

void Generator::read(std::string_view text) {
  for (const char byte : text) impl_->logits = impl_->session.push(static_cast<unsigned char>(byte));
}

char Generator::next() {
  if (impl_->logits.empty()) read("\n");
  // 53 bits, all that a double in [0, 1) holds; spelt out because std's distributions differ between libraries.
  const double uniform = static_cast<double>(impl_->random() >> 11) * 0x1p-53;
  const auto byte = static_cast<char>(static_cast<unsigned char>(sample(impl_->logits, impl_->sampling, uniform)));
  read({&byte, 1});
  return byte;
}

}  // namespace penstock
