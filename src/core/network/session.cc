#include "network/session.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "network/program_impl.h"

namespace penstock::network {

Session::Session(std::shared_ptr<const Program> program, void* memory)
    : program_(std::move(program)),
      memory_{static_cast<std::byte*>(memory), program_->impl_->kernels},
      steps_(program_->impl_->steps),
      copied_(program_->impl_->copied) {
  std::memset(memory_.base, 0, program_->workspace_bytes());
}

Status Session::open(std::shared_ptr<const Program> program, void* memory, std::unique_ptr<Session>& session) {
  const std::size_t bytes = program->workspace_bytes();
  std::unique_ptr<std::byte[]> own;
  if (memory == nullptr) {
    own.reset(new (std::nothrow) std::byte[bytes + 64]);
    if (own == nullptr) {
      return Status::out_of_memory("a session needs " + std::to_string(bytes) + " bytes of memory, which are not left");
    }
    const auto address = reinterpret_cast<std::uintptr_t>(own.get());
    memory = own.get() + (64 - address % 64) % 64;
  }
  if (reinterpret_cast<std::uintptr_t>(memory) % 64 != 0) {
    return Status::invalid_argument("the memory of a session must begin at a multiple of 64 bytes");
  }
  session = std::make_unique<Session>(std::move(program), memory);
  session->own_ = std::move(own);
  return {};
}

void* Session::input(std::size_t position) { return memory_.base + program_->impl_->inputs[position].place.offset; }

const void* Session::output(std::size_t position) const { return memory_.at(program_->impl_->outputs[position].place); }

void Session::carry_states() {
  for (const Carried& state : copied_) {
    std::memcpy(memory_.base + state.input, memory_.at(state.output), state.bytes);
  }
}

void Session::reset() {
  for (const Carried& state : program_->impl_->states) std::memset(memory_.base + state.input, 0, state.bytes);
}

void Session::read_state(void* bytes) const {
  auto* to = static_cast<std::byte*>(bytes);
  for (const Carried& state : program_->impl_->states) {
    std::memcpy(to, memory_.base + state.input, state.bytes);
    to += state.bytes;
  }
}

void Session::write_state(const void* bytes) {
  const auto* from = static_cast<const std::byte*>(bytes);
  for (const Carried& state : program_->impl_->states) {
    std::memcpy(memory_.base + state.input, from, state.bytes);
    from += state.bytes;
  }
}

void Session::take_state(const Session& other) {
  for (const Carried& state : program_->impl_->states) {
    std::memcpy(memory_.base + state.input, other.memory_.base + state.input, state.bytes);
  }
}

}  // namespace penstock::network
