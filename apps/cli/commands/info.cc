#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "commands/commands.h"
#include "options/data_options.h"
#include "options/device_choice.h"
#include "options/load_model.h"
#include "options/options.h"
#include "penstock/fields.h"
#include "penstock/penstock.h"
#include "terminal/describe.h"
#include "terminal/describe_network.h"
#include "terminal/progress_line.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct InfoArguments {
  std::string model;
  std::string shape;
  std::optional<DataKind> kind;
  Execution execution;
  bool automatic = false;  // the device
  bool json = false;
};

void line(std::string& out, const char* name, const std::string& value) {
  out += fmt::format("{:<13}{}\n", name, value);
}

std::string cache_sizes(const SystemInfo& system) {
  const auto size = [](long bytes) { return bytes > 0 ? fmt::format("{} KiB", with_commas(bytes / 1024)) : "unknown"; };
  return fmt::format("L1d {}, L2 {}, L3 {}", size(system.l1_data_bytes), size(system.l2_bytes), size(system.l3_bytes));
}

std::string gpu_text(const GpuInfo& gpu) {
  const auto kib = [](long long bytes) { return with_commas(bytes / 1024); };
  return fmt::format(
      "{}, compute capability {}, {} multiprocessors of {} registers and {} KiB shared memory ({} a block), "
      "L2 {} KiB, memory {}",
      printable(gpu.name), gpu.compute_capability, gpu.multiprocessors, with_commas(gpu.registers),
      kib(gpu.shared_bytes), kib(gpu.block_bytes), kib(gpu.l2_bytes), byte_size(static_cast<double>(gpu.memory_bytes)));
}

void add_cuda(std::string& out, const CudaInfo& cuda) {
  for (const GpuInfo& gpu : cuda.gpus) line(out, "gpu", gpu_text(gpu));
  if (!cuda.missing.empty()) line(out, "gpu", "none that can be used: " + printable(cuda.missing));
  if (!cuda.driver.empty()) line(out, "gpu driver", "runs CUDA " + cuda.driver);
  if (!cuda.compiler.empty()) {
    line(out, "gpu compiler", fmt::format("NVRTC {}, {}", cuda.compiler, printable(cuda.compiler_at)));
    line(out, "gpu kernels", cuda.cache.empty() ? "not kept on disk" : "kept in " + printable(cuda.cache));
  }
  if (!cuda.products.empty()) {
    line(out, "gpu products", fmt::format("cuBLASLt {}, {}", cuda.products, printable(cuda.products_at)));
  }
}

Json cuda_json(const CudaInfo& cuda) {
  Json gpus = Json::array();
  for (const GpuInfo& gpu : cuda.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"compute_capability", gpu.compute_capability},
                    {"multiprocessors", gpu.multiprocessors},
                    {"registers", gpu.registers},
                    {"shared_bytes", gpu.shared_bytes},
                    {"block_bytes", gpu.block_bytes},
                    {"l2_bytes", gpu.l2_bytes},
                    {"memory_bytes", gpu.memory_bytes}});
  }
  return {{"missing", cuda.missing},   {"driver", cuda.driver},
          {"compiler", cuda.compiler}, {"compiler_at", cuda.compiler_at},
          {"products", cuda.products}, {"products_at", cuda.products_at},
          {"cache", cuda.cache},       {"gpus", gpus}};
}

std::string machine_text() {
  const SystemInfo system = system_info();
  std::string out;
  line(out, "penstock", system.version);
  line(out, "cpu", system.cpu);
  line(out, "instructions", fmt::format("{} (of {}; PENSTOCK_ISA chooses)", system.isa, fmt::join(system.isas, ", ")));
  line(out, "threads", fmt::format("{}", system.threads));
  line(out, "caches", cache_sizes(system));
  line(out, "products", system.gemm);
  add_cuda(out, cuda_info());
  line(out, "tasks", fmt::format("task:{}", fmt::join(task_names(), ", task:")));
  out += "\ncell         kind   gates  states\n";
  for (const CellInfo& cell : cells()) {
    out += fmt::format("{:<12} {:<5}  {:>5}  {:>6}  {}\n", cell.name, cell.scan ? "scan" : "dense", cell.gates,
                       cell.states, cell.description);
  }
  return out;
}

Json machine_json() {
  const SystemInfo system = system_info();
  Json all = Json::array();
  for (const CellInfo& cell : cells()) {
    all.push_back({{"name", cell.name},
                   {"kind", cell.scan ? "scan" : "dense"},
                   {"gates", cell.gates},
                   {"states", cell.states},
                   {"description", cell.description}});
  }
  return {{"version", system.version},   {"cpu", system.cpu},
          {"isa", system.isa},           {"isas", system.isas},
          {"threads", system.threads},   {"l1_data_bytes", system.l1_data_bytes},
          {"l2_bytes", system.l2_bytes}, {"l3_bytes", system.l3_bytes},
          {"gemm", system.gemm},         {"cuda", cuda_json(cuda_info())},
          {"tasks", task_names()},       {"cells", all}};
}

/// Returns whether this is the first category of its column, or no category.
bool begins_column(const std::vector<Column>& columns, const Column& column) {
  if (column.feature != Feature::category) return true;
  const auto first = std::ranges::find_if(columns, [&](const Column& each) {
    return each.feature == Feature::category && each.name == column.name && each.ahead == column.ahead;
  });
  return &*first == &column;
}

/// "weekday (7 categories)": they are too many to be told one by one.
std::string title_of(const std::vector<Column>& columns, const Column& column) {
  if (column.feature != Feature::category) return column.title();
  const auto count = std::ranges::count_if(columns, [&](const Column& each) {
    return each.feature == Feature::category && each.name == column.name && each.ahead == 0;
  });
  return fmt::format("{} ({} categor{})", column.name, count, count == 1 ? "y" : "ies");
}

/// Mean and spread are those of each series where there are groups, and not told one by one.
std::string columns_text(const DataDescription& data, const std::vector<Column>& columns) {
  std::string text;
  for (const Column& column : columns) {
    if (column.ahead > 1 || !begins_column(columns, column)) continue;
    const bool later = column.ahead == 1;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", printable(later ? column.name : title_of(columns, column)),
                        later ? " of future rows" : "");
    if (later) continue;
    if (column.feature != Feature::value || !data.series.groups.empty()) continue;
    text += fmt::format(" (mean {}, spread {})", short_number(column.mean), short_number(column.scale));
  }
  return text;
}

Index file_size(const std::string& path) {
  std::error_code unknown;
  const auto size = std::filesystem::file_size(path, unknown);
  return unknown ? 0 : static_cast<Index>(size);
}

/// "a checkpoint at step 120", and where the model comes from.
void add_origin(std::string& out, const ModelFile& file) {
  const bool checkpoint = file.kind == ModelFile::Kind::checkpoint;
  line(out, "is",
       checkpoint ? fmt::format("a checkpoint after {} and {}; 'penstock train --resume' continues the run",
                                counted(file.step, "step"), clock_time(file.seconds))
                  : "a model");
  if (file.history) {
    line(out, "trained",
         fmt::format("{}, {}, penstock {}", printable(file.history->trained), counted(file.history->steps, "step"),
                     printable(file.history->version)));
    line(out, "on", printable(file.history->data));
    if (!file.history->origin.empty()) line(out, "from", printable(file.history->origin));
    if (!file.history->weight.empty()) line(out, "weight", printable(file.history->weight));
    if (!file.history->score.empty()) line(out, "score", printable(file.history->score));
  }
  line(out, "checksum", file.verified ? file.checksum + ", valid" : "none: the file was written by an older version");
}

std::string model_text(const std::string& path, const Model& model, const ModelFile& file) {
  const DataDescription& data = model.data();
  std::string out;
  line(out, "file", fmt::format("{}, {}", printable(path), byte_size(static_cast<double>(file_size(path)))));
  add_origin(out, file);
  line(out, "model", describe_model(model));
  line(out, "task", std::string(to_string(data.task)));
  const bool bytes = data.task == Task::language && reads_bytes(model);
  if (bytes) line(out, "reads", "bytes");
  if (data.labels_texts()) {
    line(out, "reads",
         fmt::format("texts of column {}, up to {} each", printable(data.labels.text_column),
                     counted(data.labels.longest_text, "byte")));
  } else if (!bytes && data.vocabulary > 0) {
    line(out, "reads", fmt::format("tokens: integers 0 to {}", data.vocabulary - 1));
  }
  if (data.vocabulary == 0) line(out, "reads", columns_text(data, data.inputs));
  if (data.sample_rate > 0) {
    line(out, "sound", fmt::format("one channel in and one out, at {} Hz", data.sample_rate));
    if (data.latency != 0) line(out, "latency", fmt::format("{} samples, removed in training", data.latency));
  } else if (data.task == Task::forecast) {
    line(out, "predicts", columns_text(data, data.targets));
    if (!data.series.groups.empty()) {
      line(out, "series",
           fmt::format("{}, named by {}", data.series.groups.size(), printable(data.series.group_column)));
      const std::string own = describe_own_forecasts(data);
      if (!own.empty()) line(out, "own", own);
    }
    line(out, "horizon", counted(data.series.horizon, "row"));
  }
  if (data.task == Task::classify)
    line(out, "labels", printable(fmt::format("{}", fmt::join(data.labels.classes, ", "))));
  return out;
}

Json memory_json(const ModelMemory& memory, Index parameters) {
  return {{"parameters", parameters},
          {"weights", memory.weights},
          {"state", memory.state},
          {"forward", memory.forward},
          {"forward_peak", memory.forward_peak},
          {"training", memory.training},
          {"training_peak", memory.training_peak},
          {"optimizer", memory.optimizer}};
}

std::string memory_text(const ModelMemory& memory, const std::string& shape, const Execution& execution) {
  const auto size = [](std::size_t bytes) { return byte_size(static_cast<double>(bytes)); };
  std::string out;
  line(out, "memory",
       fmt::format("for {} rows and steps on {}, {}", shape, to_string(execution.device),
                   to_string(execution.precision)));
  line(out, "weights", size(memory.weights));
  line(out, "state", size(memory.state));
  line(out, "forward", fmt::format("{} planned, {} at the peak", size(memory.forward), size(memory.forward_peak)));
  line(out, "training",
       fmt::format("{} planned, {} at the peak, and {} for gradients and moments", size(memory.training),
                   size(memory.training_peak), size(memory.optimizer)));
  return out;
}

Json origin_json(const ModelFile& file) {
  Json json = {{"kind", file.kind == ModelFile::Kind::checkpoint ? "checkpoint" : "model"},
               {"checksum", file.checksum},
               {"verified", file.verified}};
  if (file.kind == ModelFile::Kind::checkpoint) {
    json["step"] = file.step;
    json["seconds"] = file.seconds;
  }
  if (file.history) {
    Json& history = json["history"];
    visit_fields(*file.history, [&](const char* name, const auto& value) { history[name] = value; });
    for (const char* const name : {"options", "scores"}) {
      history[name] = Json::parse(history[name].get<std::string>(), nullptr, false);
      if (history[name].is_discarded()) history.erase(name);
    }
  }
  return json;
}

int describe_sound(const InfoArguments& arguments) {
  const Sound sound = read_sound(arguments.model);
  const double seconds = static_cast<double>(sound.samples.size()) / static_cast<double>(sound.sample_rate);
  if (arguments.json) {
    return print_answer(json_line(
        {{"file", arguments.model}, {"kind", "sound"}, {"seconds", seconds}, {"sample_rate", sound.sample_rate}}));
  }
  std::string text;
  line(text, "file", printable(arguments.model));
  line(text, "is", fmt::format("sound: {:.3f} s at {} Hz", seconds, sound.sample_rate));
  line(text, "next", fmt::format("penstock train {} --target FILE", shell_word(arguments.model)));
  return print_answer(text);
}

/// " --as series" of a kind that was given.
std::string as_option(const std::optional<DataKind>& kind) {
  return kind ? word_of({" --as text", " --as series", " --as labelled", " --as texts", "", ""}, *kind) : "";
}

/// Opens data like `penstock train`, but fits nothing, since it only describes them; messages name the options of
/// train.
OpenedData open_to_describe(DataOptions data, DataKind kind, const CLI::App& train) {
  data.choices.from_last = false;
  const WorkProgress shown(data.source);
  return open_data(train, data, kind, 0);
}

/// Describes a file that is no model.
int describe_data(const InfoArguments& arguments, const CLI::App& train) {
  if (arguments.kind ? *arguments.kind == DataKind::sound : is_sound_file(arguments.model)) {
    return describe_sound(arguments);
  }
  DataOptions data;
  data.kind = arguments.kind;
  data.source = arguments.model;
  data.sources = {arguments.model};
  const DataKind kind = kind_of(data);
  const OpenedData opened = open_to_describe(data, kind, train);
  if (arguments.json) {
    return print_answer(json_line(
        {{"file", arguments.model}, {"kind", "data"}, {"summary", opened.summary}, {"reading", opened.reading}}));
  }
  std::string text;
  line(text, "file", printable(arguments.model));
  line(text, "is", "data: " + opened.summary);
  for (const std::string& finding : opened.reading) line(text, "read", printable(finding));
  line(text, "next", "penstock train " + shell_word(arguments.model) + as_option(arguments.kind));
  return print_answer(text);
}

/// Returns whether a file should be a model, by its name or its first bytes. The reader of models then says what is
/// wrong.
bool should_be_model(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".checkpoint") || begins_as_model(path);
}

int info(const CLI::App& app, InfoArguments arguments, const CLI::App& train) {
  const auto refuse_memory = [&] {
    refuse_given(app, {"--shape", "--device", "--precision"}, "is for a model: 'info MODEL --shape BxT'");
  };
  if (arguments.model.empty()) {
    refuse_memory();
    refuse_given(app, {"--as"}, "is for data: 'info FILE --as text'");
    return print_answer(arguments.json ? json_line(machine_json()) : machine_text());
  }
  const bool is_data = arguments.kind || arguments.model == "-" || std::filesystem::is_directory(arguments.model);
  if (is_data) {
    refuse_memory();
    return describe_data(arguments, train);
  }
  const ModelFile file = inspect_model_file(arguments.model);
  if (file.kind == ModelFile::Kind::other && file.checksum.empty() && !should_be_model(arguments.model)) {
    refuse_memory();
    return describe_data(arguments, train);
  }
  if (file.kind == ModelFile::Kind::network) {
    refuse_memory();
    const penstock::Network network = penstock::Network::load(arguments.model);
    Json json = {{"file", arguments.model}, {"bytes", file_size(arguments.model)}, {"kind", "network"}};
    json.update(network_json(network));
    std::string text;
    line(text, "file",
         fmt::format("{}, {}", printable(arguments.model), byte_size(static_cast<double>(json["bytes"]))));
    line(text, "is", "a network that 'penstock import' made");
    line(text, "checksum", file.checksum + ", valid");
    return print_answer(arguments.json ? json_line(json) : text + network_text(network));
  }
  const Model model = Model::load(arguments.model);
  Json json = {{"file", arguments.model}, {"bytes", file_size(arguments.model)}};
  json.update(origin_json(file));
  json.update(model_json(model));
  std::string text = model_text(arguments.model, model, file);
  if (arguments.shape.empty()) {
    refuse_given(app, {"--device", "--precision"}, "is for the memory of a model: give --shape BxT, too");
  } else {
    const std::vector<Index> sizes = parse_sizes(arguments.shape, "BxT");
    resolve_device(arguments.automatic, arguments.execution, model, {.rows = sizes[0], .steps = sizes[1]});
    const ModelMemory memory = model.memory(sizes[0], sizes[1], arguments.execution);
    json["memory"] = memory_json(memory, model.parameter_count());
    text += memory_text(memory, arguments.shape, arguments.execution);
  }
  return print_answer(arguments.json ? json_line(json) : text);
}

}  // namespace

Command add_info(CLI::App& program) {
  CLI::App* app = program.add_subcommand("info", "Describe a model, a checkpoint, data, or this machine and the cells");
  auto arguments = std::make_shared<InfoArguments>();
  Options options(*app);
  options.positional("[FILE]", arguments->model,
                     "A model, a checkpoint, or data to train on ('-': standard input) [describe this machine]");
  options.group("Options");
  add_kind_option(options, arguments->kind);
  options.flag("--json", arguments->json, "Print one JSON object");
  options.add("--shape", arguments->shape, "BxT", "Print the model's memory for B rows of T time steps");
  options.device(arguments->execution, &arguments->automatic);
  options.finish(
      "  penstock info\n"
      "  penstock info model.safetensors\n"
      "  penstock info model.safetensors --shape 64x512 --device cuda\n"
      "  penstock info model.safetensors --json | jq .parameters");
  return {app, [app, arguments, &program] { return info(*app, *arguments, *program.get_subcommand("train")); }};
}

}  // namespace penstock::cli
