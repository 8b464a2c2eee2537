#include <algorithm>
#include <cstring>

#include "runtime/finite.h"
#include "runtime/session.h"

/// States of sessions, as floats and as bytes with a header that says whose they are.
namespace penstock::runtime {

namespace {

/// The header of a saved state.
struct SavedHeader {
  char magic[8];
  std::uint64_t model;  ///< Checksum of its file.
  std::uint64_t count;  ///< Floats; bytes if there is anything else.
  std::uint64_t sum;    ///< Checksum of the state.
};
constexpr char kMagic[9] = "pnstckS1";

SavedHeader header_of(const Model& model, const void* state) {
  SavedHeader header = {{},
                        model.checksum,
                        model.float_state ? model.state_bytes / sizeof(float) : model.state_bytes,
                        0xcbf29ce484222325u};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  std::uint32_t word = 0;  // FNV-1a over words
  for (std::size_t i = 0; i < model.state_bytes; i += sizeof(word)) {
    word = 0;
    std::memcpy(&word, static_cast<const char*>(state) + i, std::min(sizeof(word), model.state_bytes - i));
    header.sum = (header.sum ^ word) * 0x100000001b3u;
  }
  return header;
}

}  // namespace

std::size_t Session::saved_size(const Model& model) { return sizeof(SavedHeader) + model.state_bytes; }

bool Session::check_state(std::size_t count, Failure& failure) const {
  if (!model_->float_state) {
    return failure.set(PENSTOCK_UNSUPPORTED,
                       "the state has values that are no floats: use penstock_session_save() and _restore()");
  }
  if (count == state_size()) return true;
  return failure.set(PENSTOCK_INVALID_ARGUMENT, "state must hold %zu values, not %zu", state_size(), count);
}

bool Session::get_state(float* state, std::size_t count, Failure& failure) {
  const Session& of = newest();
  if (!of.check_state(count, failure)) return false;
  of.read_state(state);
  return true;
}

bool Session::set_state(const float* state, std::size_t count, Failure& failure) {
  Session& of = newest();
  if (!of.check_state(count, failure)) return false;
  if (!all_finite(state, count)) return failure.set(PENSTOCK_INVALID_ARGUMENT, "state must hold finite values");
  of.write_state(state);
  return true;
}

bool Session::save(void* bytes, std::size_t size, Failure& failure) {
  const Session& of = newest();
  const std::size_t expected = saved_size(*of.model_);
  if (size != expected) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "bytes must be %zu (saved_size), not %zu", expected, size);
  }
  char* const state = static_cast<char*>(bytes) + sizeof(SavedHeader);
  of.read_state(state);
  const SavedHeader header = header_of(*of.model_, state);
  std::memcpy(bytes, &header, sizeof(header));
  return true;
}

bool Session::restore(const void* bytes, std::size_t size, Failure& failure) {
  Session& of = newest();
  const Model& model = *of.model_;
  SavedHeader header = {};
  if (size >= sizeof(header)) std::memcpy(&header, bytes, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    return failure.set(PENSTOCK_BAD_INPUT, "the bytes are no state that penstock_session_save() wrote");
  }
  const std::size_t expected = saved_size(model);
  const std::uint64_t count = model.float_state ? of.state_size() : model.state_bytes;
  if (header.model != model.checksum || header.count != count) {
    return failure.set(PENSTOCK_INCOMPATIBLE, "the state is of another model");
  }
  if (size != expected) {
    return failure.set(PENSTOCK_BAD_INPUT, "the state is damaged: %zu bytes, not %zu", size, expected);
  }
  // Judged where it lies: a refused state changes nothing.
  const auto* const state = static_cast<const char*>(bytes) + sizeof(header);
  bool finite = true;
  for (std::size_t i = 0; model.float_state && i < of.state_size(); ++i) {
    float value = 0;
    std::memcpy(&value, state + i * sizeof(float), sizeof(value));
    finite = finite && is_finite(value);
  }
  if (header_of(model, state).sum != header.sum || !finite) {
    return failure.set(PENSTOCK_BAD_INPUT, "the state is damaged");
  }
  of.write_state(state);
  return true;
}

}  // namespace penstock::runtime
