// The second half of a builder's work: which steps are needed, and where everything lies.

#include <algorithm>
#include <cstring>

#include "base/memory_plan.h"
#include "network/builder.h"

namespace penstock::network {

namespace {

void run_copy(const Step& step, const Memory& memory) {
  std::memcpy(step.write(0, memory), step.read(0, memory), static_cast<std::size_t>(step.n[0]));
}

}  // namespace

int Builder::buffer_of(int item) const {
  if (item < 0 || items_[item].fact.known != nullptr) return -1;
  int buffer = items_[item].buffer;
  while (buffer >= 0 && buffers_[buffer].merged >= 0) buffer = buffers_[buffer].merged;
  return buffer;
}

Status Builder::check_states() const {
  for (const State& state : network_.states) {
    if (state.input < 0 || state.input >= static_cast<int>(inputs_.size()) || state.output < 0 ||
        state.output >= static_cast<int>(outputs_.size())) {
      return Status::bad_input("a state names an input or an output that does not exist");
    }
    const Fact& input = items_[inputs_[state.input]].fact;
    const Fact& output = items_[outputs_[state.output]].fact;
    if (input.type != output.type || elements(input.shape) != elements(output.shape)) {
      return Status::bad_input("state '" + network_.values[network_.inputs[state.input]].name + "' enters with shape " +
                               text_of(input.shape) + ", but leaves with " + text_of(output.shape));
    }
  }
  return {};
}

/// Outputs that lie in an input get a place of their own: the next run's input must not change them, nor one state
/// another that is carried over later.
void Builder::copy_outputs() {
  for (int& output : outputs_) {
    const Item item = items_[output];
    if (item.fact.known != nullptr || !buffers_[item.buffer].kept) continue;
    const std::size_t bytes = bytes_of(item.fact.type, item.fact.shape);
    const int copied = new_item(item.fact, new_buffer(bytes));
    Emitted emitted;
    emitted.step.run = &run_copy;
    emitted.step.n = {static_cast<Index>(bytes)};
    emitted.reads = {output}, emitted.writes = {copied};
    if (bytes > 0) steps_.push_back(std::move(emitted));
    output = copied;
  }
}

void Builder::drop_unneeded() {
  std::vector<bool> needed(buffers_.size());
  for (const int output : outputs_) {
    if (buffer_of(output) >= 0) needed[buffer_of(output)] = true;
  }
  for (std::size_t i = steps_.size(); i-- > 0;) {
    Emitted& emitted = steps_[i];
    emitted.needed = std::ranges::any_of(emitted.writes, [&](int write) { return needed[items_[write].buffer]; });
    if (!emitted.needed) continue;
    for (const int read : emitted.reads) {
      if (buffer_of(read) >= 0) needed[buffer_of(read)] = true;
    }
  }
  std::erase_if(steps_, [](const Emitted& emitted) { return !emitted.needed; });
}

void Builder::find_lifetimes() {
  const int end = static_cast<int>(steps_.size());
  for (Buffer& buffer : buffers_) {
    buffer.first = end;
    if (buffer.kept) buffer.first = 0, buffer.last = end;
  }
  const auto use = [&](int buffer, int step) {
    if (buffer < 0) return;
    buffers_[buffer].first = std::min(buffers_[buffer].first, step);
    buffers_[buffer].last = std::max(buffers_[buffer].last, step);
  };
  for (int i = 0; i < end; ++i) {
    for (const int read : steps_[i].reads) use(buffer_of(read), i);
    for (const int write : steps_[i].writes) use(buffer_of(write), i);
    use(steps_[i].scratch, i);
    if (steps_[i].step.keeps_scratch) use(steps_[i].scratch, 0), use(steps_[i].scratch, end);
  }
  for (const int output : outputs_) {
    if (buffer_of(output) < 0) continue;
    use(buffer_of(output), end);
    buffers_[buffer_of(output)].kept = true;
  }
}

/// The next value of a state replaces the one before, if the step that writes it reads that, and no other step does.
void Builder::carry_in_place() {
  const auto uses = [&](const std::vector<int>& items, int buffer) {
    return std::ranges::count(items, buffer, [&](int item) { return buffer_of(item); });
  };
  for (const State& state : network_.states) {
    const int from = buffer_of(inputs_[state.input]), to = buffer_of(outputs_[state.output]);
    if (from < 0 || to < 0 || uses(outputs_, to) != 1 || buffers_[from].bytes != buffers_[to].bytes) continue;
    const bool only = std::ranges::all_of(steps_, [&](const Emitted& emitted) {
      const auto reads = uses(emitted.reads, from);
      return reads == uses(emitted.writes, to) && (reads == 0 || (reads == 1 && emitted.step.carries_states));
    });
    if (only) buffers_[to].merged = from;
  }
}

void Builder::lie_in_place() {
  for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
    for (const int replaced : steps_[i].replaces) {
      const int read = steps_[i].reads[replaced], from = buffer_of(read), to = buffer_of(steps_[i].writes[0]);
      if (from < 0 || buffers_[from].kept || buffers_[from].last != i || items_[read].offset != 0) continue;
      if (buffers_[from].bytes < buffers_[to].bytes) continue;
      // Another part of the same memory, or the same elements repeated, would be overwritten before it is read.
      const bool shared = std::ranges::any_of(steps_[i].reads, [&](int other) {
        return buffer_of(other) == from &&
               (items_[other].offset != 0 || items_[other].fact.shape != items_[read].fact.shape);
      });
      if (shared) continue;
      buffers_[to].merged = from;
      buffers_[from].last = std::max(buffers_[from].last, buffers_[to].last);
      buffers_[from].kept = buffers_[to].kept;
      break;
    }
  }
}

Place Builder::place_of(int item) const {
  if (item < 0) return {};
  if (items_[item].fact.known != nullptr) return {items_[item].fact.known};
  return {nullptr, offsets_[buffer_of(item)] + items_[item].offset};
}

void Builder::place() {
  std::vector<Lifetime> lifetimes;
  std::vector<int> planned;
  for (int i = 0; i < static_cast<int>(buffers_.size()); ++i) {
    const Buffer& buffer = buffers_[i];
    if (buffer.merged >= 0 || (buffer.last < 0 && !buffer.kept)) continue;
    planned.push_back(i);
    lifetimes.push_back({std::max<std::size_t>(buffer.bytes, 1), buffer.first, buffer.last});
  }
  const MemoryPlan plan = plan_memory(lifetimes);
  offsets_.assign(buffers_.size(), 0);
  for (std::size_t i = 0; i < planned.size(); ++i) offsets_[planned[i]] = plan.offsets[i];
  impl_.bytes = plan.bytes;
  // Steps that took others into their weights have weights of their own.
  weights_.clear();
  for (Emitted& emitted : steps_) {
    for (const int read : emitted.reads) emitted.step.reads.push_back(place_of(read));
    for (const int write : emitted.writes) emitted.step.writes.push_back(place_of(write));
    share_weights(emitted.step.packed);
    if (emitted.scratch >= 0) emitted.step.scratch.offset = offsets_[emitted.scratch];
    impl_.steps.push_back(std::move(emitted.step));
  }
  for (const int item : inputs_)
    impl_.inputs.push_back({items_[item].fact.type, items_[item].fact.shape, place_of(item)});
  for (const int item : outputs_) {
    impl_.outputs.push_back({items_[item].fact.type, items_[item].fact.shape, place_of(item)});
  }
  for (const State& state : network_.states) {
    const Port& input = impl_.inputs[state.input];
    const Carried& carried = impl_.states.emplace_back(
        Carried{input.place.offset, impl_.outputs[state.output].place, bytes_of(input.type, input.shape)});
    const bool in_place = carried.output.constant == nullptr && carried.output.offset == carried.input;
    if (!in_place) impl_.copied.push_back(carried);
  }
}

}  // namespace penstock::network
