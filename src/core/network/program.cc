#include "network/program.h"

#include "network/builder.h"
#include "network/program_impl.h"

namespace penstock::network {

Program::Program(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Program::~Program() = default;

Status Program::prepare(std::shared_ptr<const Network> network, std::span<const Shape> inputs,
                        std::shared_ptr<const Program>& program, PrepareSpectrum prepare_spectrum) {
  auto impl = std::make_unique<Impl>();
  impl->kernels.prepare_spectrum = prepare_spectrum;
  impl->network = std::move(network);
  PENSTOCK_TRY(Builder(*impl, *impl->network).build(inputs));
  program = std::shared_ptr<const Program>(new Program(std::move(impl)));
  return {};
}

const Network& Program::network() const { return *impl_->network; }
const Shape& Program::input_shape(std::size_t position) const { return impl_->inputs[position].shape; }
const Shape& Program::output_shape(std::size_t position) const { return impl_->outputs[position].shape; }
Type Program::output_type(std::size_t position) const { return impl_->outputs[position].type; }
std::size_t Program::workspace_bytes() const { return impl_->bytes; }

std::size_t Program::state_bytes() const {
  std::size_t bytes = 0;
  for (const Carried& state : impl_->states) bytes += state.bytes;
  return bytes;
}

}  // namespace penstock::network
