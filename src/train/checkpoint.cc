#include "train/checkpoint.h"

#include <algorithm>

#include "base/check.h"
#include "io/model_file.h"
#include "io/model_json.h"

namespace penstock::training {

namespace {

using nlohmann::json;

constexpr const char* metadata_key = "penstock.training";
constexpr Index format_version = 1;
constexpr const char* best_name = "best";  // of the best weights, which are written as the optimiser's slots are

std::string slot_tensor(const std::string& slot, const nn::ParameterEntry& entry) {
  return std::string(io::training_prefix) + slot + "." + entry.name;
}

/// Returns the name of a slot of an earlier state: "good" or "pending".
std::string of_state(const char* state, const OptimizerState::Slot& slot) {
  return std::string(state) + "_" + slot.name;
}

std::string state_tensor() { return std::string(io::training_prefix) + "state"; }

void check_same(const std::string& path, const std::string& name, const json& there, const json& here) {
  const std::string difference = io::difference(name, {"the checkpoint", there}, {"this run", here});
  if (!difference.empty()) fail(ErrorCode::incompatible, "{}: checkpoint of another run: {}", path, difference);
}

json to_json(const GuardMemory& memory) {
  return {{"losses", memory.losses},
          {"norms", memory.norms},
          {"first_loss", memory.first_loss},
          {"first_norm", memory.first_norm},
          {"accepted", memory.accepted}};
}

json to_json(const GuardPoint& point, const GoodState& state) {
  json object = {{"step", point.step},
                 {"updates", state.updates},
                 {"good_steps", state.good_steps},
                 {"memory", to_json(point.memory)}};
  if (state.loss_scale) object["loss_scale"] = *state.loss_scale;
  return object;
}

json to_json(const GuardState& guard, const RunState& state) {
  json object = {{"memory", to_json(guard.memory)},      {"rollbacks", guard.rollbacks},
                 {"last_rollback", guard.last_rollback}, {"rate_changed", guard.rate_changed},
                 {"rate_factor", guard.rate_factor},     {"good", to_json(guard.good, state.good)}};
  if (guard.pending) object["pending"] = to_json(guard.pending, state.pending);
  return object;
}

/// The tensors point into `values`.
void add_slot(std::vector<io::TensorData>& tensors, const std::string& name, std::span<const float> values,
              const nn::ParameterLayout& layout) {
  for (const nn::ParameterEntry& entry : layout.entries()) {
    tensors.push_back(io::tensor_data(slot_tensor(name, entry), entry.shape, values.subspan(entry.offset, entry.size)));
  }
}

json to_json(const ValidationHistory& history) {
  return {{"best_loss", history.best_loss},
          {"best_step", history.best_step},
          {"without_gain", history.without_gain},
          {"cooldown_begin", history.cooldown_begin},
          {"cooldown_from", history.cooldown_from}};
}

std::vector<float> read_slot(const io::SafetensorsFile& file, const std::string& name,
                             const nn::ParameterLayout& layout) {
  std::vector<float> values(static_cast<std::size_t>(layout.size()), 0.0f);
  for (const nn::ParameterEntry& entry : layout.entries()) {
    file.read(slot_tensor(name, entry), entry.shape, std::span(values).subspan(entry.offset, entry.size));
  }
  return values;
}

std::vector<float> read_state(const io::SafetensorsFile& file, Index size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  if (size > 0) file.read(state_tensor(), {size}, std::span(values));
  return values;
}

Index read_count(io::ObjectReader& reader, const char* field, Index largest) {
  const Index value = reader.integer(field);
  if (value < 0 || value > largest) reader.refuse(field, fmt::format("must be 0 to {}, not {}", largest, value));
  return value;
}

}  // namespace

void save_checkpoint(const std::string& path, const Model::Impl& model, const OptimizerState& optimizer,
                     const RunState& state, const GuardState& guard, const Dataset& data, const json& identity) {
  std::vector<io::TensorData> tensors = io::model_tensors(model);
  const nn::ParameterLayout& layout = model.parameters->layout();
  for (const OptimizerState::Slot& slot : optimizer.slots) add_slot(tensors, slot.name, slot.values, layout);
  if (!state.best.empty()) add_slot(tensors, best_name, state.best, layout);
  for (const auto& slot : state.good.slots) add_slot(tensors, of_state("good", slot), slot.values, layout);
  if (guard.pending) {
    for (const auto& slot : state.pending.slots) add_slot(tensors, of_state("pending", slot), slot.values, layout);
  }
  const std::span<const float> carried(state.carried);
  if (!carried.empty()) {
    tensors.push_back(io::tensor_data(state_tensor(), {static_cast<Index>(carried.size())}, carried));
  }
  io::Metadata metadata = io::model_metadata(model.spec, model.data);
  json fields = {{"format_version", format_version},
                 {"options", identity},
                 {"step", state.step},
                 {"skipped", state.skipped},
                 {"skipped_in_a_row", state.skipped_in_a_row},
                 {"updates", state.updates},
                 {"scored", state.scored},
                 {"seconds", state.seconds},
                 {"carried_rows", state.carried_rows},
                 {"position", data.position()}};
  if (state.loss_scale) {
    fields["loss_scale"] = *state.loss_scale;
    fields["good_steps"] = state.good_steps;
  }
  if (state.history.known) fields["validations"] = to_json(state.history);
  if (guard.good) fields["guard"] = to_json(guard, state);
  metadata[metadata_key] = io::to_text(fields);
  io::write_safetensors(path, tensors, metadata);
}

namespace {

json fields_of(const io::SafetensorsFile& file, const std::string& path) {
  const auto text = file.metadata().find(metadata_key);
  if (text == file.metadata().end()) {
    fail(ErrorCode::incompatible, "{}: a model, not a checkpoint: it has nothing to resume from", path);
  }
  return io::parse_object(text->second, path, metadata_key);
}

ValidationHistory read_history(const json& object, const std::string& path, Index step) {
  io::ObjectReader reader(object, path, std::string(metadata_key) + ".validations");
  ValidationHistory history;
  history.known = true;
  history.best_loss = reader.number("best_loss");
  history.best_step = read_count(reader, "best_step", step);
  history.without_gain = read_count(reader, "without_gain", step);
  history.cooldown_begin = read_count(reader, "cooldown_begin", step);
  history.cooldown_from = reader.number("cooldown_from");
  if (!(history.cooldown_from >= 0.0 && history.cooldown_from <= 1.0)) {
    reader.refuse("cooldown_from", fmt::format("must be 0 to 1, not {}", history.cooldown_from));
  }
  reader.finish();
  return history;
}

GuardMemory read_memory(const json& object, const std::string& path, const std::string& place, Index step) {
  io::ObjectReader reader(object, path, place);
  GuardMemory memory;
  memory.losses = reader.numbers("losses");
  memory.norms = reader.numbers("norms");
  if (memory.losses.size() != memory.norms.size()) reader.refuse("losses", "must hold as many numbers as norms");
  memory.first_loss = reader.number("first_loss");
  memory.first_norm = reader.number("first_norm");
  memory.accepted = read_count(reader, "accepted", step);
  reader.finish();
  return memory;
}

GuardPoint read_point(const json& object, const std::string& path, const std::string& place, Index step,
                      GoodState& state) {
  io::ObjectReader reader(object, path, place);
  GuardPoint point;
  point.step = read_count(reader, "step", step);
  state.updates = read_count(reader, "updates", point.step);
  state.good_steps = read_count(reader, "good_steps", point.step);
  if (object.contains("loss_scale")) state.loss_scale = reader.number("loss_scale");
  point.memory = read_memory(reader.object("memory"), path, place + ".memory", point.step);
  reader.finish();
  return point;
}

GuardState read_guard(const json& object, const std::string& path, RunState& state) {
  const Index step = state.step;
  const std::string place = std::string(metadata_key) + ".guard";
  io::ObjectReader reader(object, path, place);
  GuardState guard;
  guard.memory = read_memory(reader.object("memory"), path, place + ".memory", step);
  guard.rollbacks = read_count(reader, "rollbacks", step);
  guard.last_rollback = read_count(reader, "last_rollback", step);
  guard.rate_changed = read_count(reader, "rate_changed", step);
  guard.rate_factor = reader.number("rate_factor");
  if (!(guard.rate_factor > 0.0 && guard.rate_factor <= 1.0)) {
    reader.refuse("rate_factor", fmt::format("must be in (0, 1], not {}", guard.rate_factor));
  }
  guard.good = read_point(reader.object("good"), path, place + ".good", step, state.good);
  if (object.contains("pending")) {
    guard.pending = read_point(reader.object("pending"), path, place + ".pending", step, state.pending);
  }
  reader.finish();
  return guard;
}

/// Reads the tensors of a state: the weights, and the slots of the optimiser.
void read_good_slots(const io::SafetensorsFile& file, const char* prefix, const OptimizerState& optimizer,
                     const nn::ParameterLayout& layout, GoodState& state) {
  std::vector<std::string> names = {weights_name};
  for (const OptimizerState::Slot& slot : optimizer.slots) names.push_back(slot.name);
  for (const std::string& name : names) {
    state.slots.push_back({name, {}});
    state.slots.back().values = read_slot(file, of_state(prefix, state.slots.back()), layout);
  }
}

}  // namespace

TrainOptions options_of_checkpoint(const std::string& path, TrainOptions options) {
  const json fields = fields_of(io::SafetensorsFile::open(path), path);
  io::ObjectReader reader(fields, path, metadata_key);
  const std::string name = std::string(metadata_key) + ".options";
  io::ObjectReader there(reader.object("options"), path, name);
  options.batch = there.integer("batch");
  options.length = there.integer("length");
  options.patience = there.integer("patience", 0);
  if (options.patience > 0) options.validate_steps = there.integer("validate_steps");
  return options;
}

RunState load_checkpoint(const std::string& path, Model::Impl& model, OptimizerState& optimizer, Dataset& data,
                         const json& identity) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  const io::ModelDescription description = io::read_description(file);
  const json fields = fields_of(file, path);
  io::ObjectReader reader(fields, path, metadata_key);
  const Index version = reader.integer("format_version");
  if (version != format_version) {
    fail(ErrorCode::incompatible, "{}: checkpoint format_version is {}, this version of Penstock reads {}", path,
         version, format_version);
  }
  check_same(path, "model", io::to_json(description.spec), io::to_json(model.spec));
  check_same(path, "data", io::to_json(description.data), io::to_json(model.data));
  check_same(path, "options", reader.object("options"), identity);

  constexpr Index any = Index{1} << 60;
  RunState state;
  state.step = read_count(reader, "step", any);
  state.skipped = read_count(reader, "skipped", state.step);
  state.skipped_in_a_row = read_count(reader, "skipped_in_a_row", state.skipped);
  state.updates = read_count(reader, "updates", state.step);
  state.scored = read_count(reader, "scored", any);
  state.seconds = reader.number("seconds");
  if (!(state.seconds >= 0.0)) reader.refuse("seconds", "must not be negative");
  state.carried_rows = read_count(reader, "carried_rows", Index{1} << 32);
  const std::string position = reader.string("position");
  if (fields.contains("loss_scale")) {
    state.loss_scale = reader.number("loss_scale");
    if (!(*state.loss_scale >= 1.0)) reader.refuse("loss_scale", "must be at least 1");
    state.good_steps = read_count(reader, "good_steps", state.step);
  }
  if (fields.contains("validations")) state.history = read_history(reader.object("validations"), path, state.step);
  if (fields.contains("guard")) state.guard = read_guard(reader.object("guard"), path, state);
  reader.finish();

  // Everything that can fail comes before the first change.
  const nn::ParameterLayout& layout = model.parameters->layout();
  nn::Parameters<float> parameters(layout);
  io::read_parameters(file, parameters);
  std::vector<std::vector<float>> slots;
  for (const OptimizerState::Slot& slot : optimizer.slots) slots.push_back(read_slot(file, slot.name, layout));
  if (state.history.known) state.best = read_slot(file, best_name, layout);
  if (state.guard.good) read_good_slots(file, "good", optimizer, layout, state.good);
  if (state.guard.pending) read_good_slots(file, "pending", optimizer, layout, state.pending);
  const Index state_size = state.carried_rows * model.state_size;
  const io::TensorInfo* const stored = file.find(state_tensor());
  if (state_size > 0 && stored && stored->bytes != state_size * static_cast<Index>(sizeof(float))) {
    reader.refuse("carried_rows", fmt::format("is {}, which does not fit tensor {}", state.carried_rows, stored->name));
  }
  if (state_size > 0 && !stored) reader.refuse("carried_rows", "is not 0, but there is no tensor " + state_tensor());
  state.carried = read_state(file, state_size);
  data.restore(position);

  std::ranges::copy(parameters.values(), model.parameters->values().begin());
  model.parameters->changed();
  for (std::size_t i = 0; i < slots.size(); ++i) optimizer.slots[i].values = std::move(slots[i]);
  return state;
}

}  // namespace penstock::training
