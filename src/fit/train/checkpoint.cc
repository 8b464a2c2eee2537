#include "train/checkpoint.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/json_fields.h"
#include "io/model_file.h"
#include "io/model_json.h"
#include "penstock/train/fields.h"

namespace penstock {

using nlohmann::json;

namespace training {

namespace {

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

// The fields of each state, for a FieldReader or a FieldWriter. No count may be larger than `step`.

/// Those that visit_fields() knows, except for a truth value: the file says it by having the state.
auto known_fields(Index step) {
  return [step](auto& of, auto& state) {
    visit_fields(state, [&](const char* name, auto& value) {
      using Value = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, Index>) {
        of.count(name, value, step);
      } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
        of.optional(name, value);
      } else if constexpr (!std::is_same_v<Value, bool>) {
        of.field(name, value);
      }
    });
  };
}

auto point_fields(auto& state, Index step) {
  return [&state, step](auto& of, auto& point) {
    of.count("step", point.step, step);
    of.count("updates", state.updates, point.step);
    of.count("good_steps", state.good_steps, point.step);
    of.optional("loss_scale", state.loss_scale);
    of.object("memory", point.memory, known_fields(point.step));
  };
}

auto guard_fields(auto& state) {
  return [&state](auto& of, auto& guard) {
    of.object("memory", guard.memory, known_fields(state.step));
    of.count("rollbacks", guard.rollbacks, state.step);
    of.count("last_rollback", guard.last_rollback, state.step);
    of.count("rate_changed", guard.rate_changed, state.step);
    of.field("rate_factor", guard.rate_factor);
    of.object("good", guard.good, point_fields(state.good, state.step));
    if (of.has("pending", static_cast<bool>(guard.pending))) {
      of.object("pending", guard.pending, point_fields(state.pending, state.step));
    }
  };
}

void run_fields(auto& of, auto& state, auto& guard) {
  constexpr Index any = Index{1} << 60;
  of.count("step", state.step, any);
  of.count("skipped", state.skipped, state.step);
  of.count("skipped_in_a_row", state.skipped_in_a_row, state.skipped);
  of.count("updates", state.updates, state.step);
  of.count("scored", state.scored, any);
  of.field("seconds", state.seconds);
  of.count("carried_rows", state.carried_rows, Index{1} << 32);
  of.optional("loss_scale", state.loss_scale);
  if (state.loss_scale) of.count("good_steps", state.good_steps, state.step);
  if (of.has("validations", state.history.known)) of.object("validations", state.history, known_fields(state.step));
  if (of.has("plateau", state.plateau != Plateau{})) of.object("plateau", state.plateau, known_fields(state.step));
  if (of.has("guard", static_cast<bool>(guard.good))) of.object("guard", guard, guard_fields(state));
}

/// The tensors point into `values`.
void add_slot(std::vector<io::TensorData>& tensors, const std::string& name, std::span<const float> values,
              const nn::ParameterLayout& layout) {
  for (const nn::ParameterEntry& entry : layout.entries()) {
    tensors.push_back(io::tensor_data(slot_tensor(name, entry), entry.shape, values.subspan(entry.offset, entry.size)));
  }
}

std::vector<float> read_slot(const io::SafetensorsFile& file, const std::string& name,
                             const nn::ParameterLayout& layout) {
  std::vector<float> values(static_cast<std::size_t>(layout.size()), 0.0f);
  for (const nn::ParameterEntry& entry : layout.entries()) {
    file.read(slot_tensor(name, entry), entry.shape, std::span(values).subspan(entry.offset, entry.size));
  }
  return values;
}

std::vector<float> read_carried(const io::SafetensorsFile& file, Index size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  if (size > 0) file.read(state_tensor(), {size}, std::span(values));
  return values;
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
  FieldWriter fields;
  fields.field("format_version", format_version);
  fields.field("options", identity);
  fields.field("position", data.position());
  run_fields(fields, state, guard);
  metadata[metadata_key] = io::to_text(fields.written());
  io::write_model(path, tensors, metadata);
}

namespace {

json fields_of(const io::SafetensorsFile& file, const std::string& path) {
  const auto text = file.metadata().find(metadata_key);
  if (text == file.metadata().end()) {
    fail(ErrorCode::incompatible, "{}: a model, not a checkpoint: it has nothing to resume from", path);
  }
  return io::parse_object(text->second, path, metadata_key);
}

/// Reads what a checkpoint says of its run, and refuses values that no run has.
RunState read_state(FieldReader& reader) {
  RunState state;
  run_fields(reader, state, state.guard);
  reader.finish();
  const auto demand = [&](bool condition, const std::string& field, const std::string& problem) {
    if (!condition) reader.refuse(field, problem);
  };
  demand(state.seconds >= 0.0, "seconds", "must not be negative");
  demand(state.loss_scale.value_or(1.0) >= 1.0, "loss_scale", "must be at least 1");
  state.history.known = reader.has("validations");
  const double cooldown = state.history.cooldown_from, rate = state.guard.rate_factor;
  demand(cooldown >= 0.0 && cooldown <= 1.0, "validations.cooldown_from",
         fmt::format("must be 0 to 1, not {}", cooldown));
  demand(rate > 0.0 && rate <= 1.0, "guard.rate_factor", fmt::format("must be in (0, 1], not {}", rate));
  demand(state.plateau.factor > 0.0 && state.plateau.factor <= 1.0, "plateau.factor",
         fmt::format("must be in (0, 1], not {}", state.plateau.factor));
  for (const auto& [name, memory] : {std::pair("guard.memory.losses", &state.guard.memory),
                                     std::pair("guard.good.memory.losses", &state.guard.good.memory),
                                     std::pair("guard.pending.memory.losses", &state.guard.pending.memory)}) {
    demand(memory->losses.size() == memory->norms.size(), name, "must hold as many numbers as norms");
  }
  return state;
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

RunState load_checkpoint(const std::string& path, Model::Impl& model, OptimizerState& optimizer, Dataset& data,
                         const json& identity) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  const io::ModelDescription description = io::read_description(file);
  const json fields = fields_of(file, path);
  FieldReader reader(fields, path, metadata_key);
  const Index version = reader.integer("format_version");
  if (version != format_version) {
    fail(ErrorCode::incompatible, "{}: checkpoint format_version is {}, this version of Penstock reads {}", path,
         version, format_version);
  }
  check_same(path, "model", io::to_json(description.spec), io::to_json(model.spec));
  const auto learnt = [](const DataDescription& of) {
    json all = io::to_json(of);
    for (json& target : all.at("targets")) target.erase("non_negative");  // which layers do not learn
    return all;
  };
  check_same(path, "data", learnt(description.data), learnt(model.data));
  check_same(path, "options", reader.object("options"), identity);

  const std::string position = reader.string("position");
  RunState state = read_state(reader);

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
  state.carried = read_carried(file, state_size);
  data.restore(position);

  std::ranges::copy(parameters.values(), model.parameters->values().begin());
  model.parameters->changed();
  for (std::size_t i = 0; i < slots.size(); ++i) optimizer.slots[i].values = std::move(slots[i]);
  return state;
}

}  // namespace training

TrainOptions suggest_resumed(const std::string& checkpoint, Dataset& data, Device device) {
  using training::metadata_key;
  TrainOptions options = suggest_options(data, device);
  const json fields = training::fields_of(io::SafetensorsFile::open(checkpoint), checkpoint);
  FieldReader reader(fields, checkpoint, metadata_key);
  const std::string name = std::string(metadata_key) + ".options";
  FieldReader there(reader.object("options"), checkpoint, name);
  options.batch = there.integer("batch");
  options.length = there.integer("length");
  options.patience = 0;
  there.optional("patience", options.patience);
  if (options.patience > 0 || there.has("validate_steps")) options.validate_steps = there.integer("validate_steps");
  return options;
}

}  // namespace penstock
