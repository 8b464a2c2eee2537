#include "runtime/recurrent_model.h"

#include <memory>

#include "runtime/recurrent_builder.h"

namespace penstock::runtime {

Model* RecurrentModel::open(const char* path, Failure& failure, FindInt8 find_int8) {
  auto model = std::make_unique<RecurrentModel>();
  const bool opened = model->file_.read(path, failure) && model->build(failure, find_int8);
  return opened ? model.release() : nullptr;
}

Model* RecurrentModel::open(std::string_view bytes, Failure& failure, FindInt8 find_int8) {
  auto model = std::make_unique<RecurrentModel>();
  const bool opened = model->file_.use(bytes, failure) && model->build(failure, find_int8);
  return opened ? model.release() : nullptr;
}

bool RecurrentModel::build(Failure& failure, FindInt8 find_int8) {
  if (!choose_kernels(failure)) return false;
  kernels = step_kernels();
  if (file_.network()) {
    return failure.in_file(PENSTOCK_INCOMPATIBLE,
                           "a network that 'penstock import' wrote: open it by penstock_network_open()");
  }
  if (!file_.describes_model()) {
    return failure.in_file(PENSTOCK_INCOMPATIBLE, "not a model of Penstock: its metadata have no \"penstock\"");
  }
  if (!read_description(file_.description(), description, failure)) return false;
  if (!description.int8.empty()) {
    if (find_int8 == nullptr) {
      return failure.in_file(PENSTOCK_UNSUPPORTED, "its weights are int8: open it by penstock_int8_model_open()");
    }
    int8 = find_int8();
  }
  // Since version 2 files carry a checksum, so that one without is damaged.
  if (description.version >= 2 && !file_.has_checksum()) {
    return failure.in_file(PENSTOCK_BAD_INPUT, "damaged: files of format_version 2 carry a checksum");
  }
  checksum = file_.checksum();
  inputs = static_cast<std::size_t>(description.input_size());
  outputs = static_cast<std::size_t>(description.output_size());
  return RecurrentBuilder(*this, file_, failure).build();
}

}  // namespace penstock::runtime
