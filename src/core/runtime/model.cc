#include "runtime/model.h"

#include <memory>

#include "runtime/model_builder.h"

namespace penstock::runtime {

Model* Model::open(const char* path, Failure& failure) {
  std::unique_ptr<Model> model(new Model());
  const bool opened = model->file_.read(path, failure) && model->build(failure);
  return opened ? model.release() : nullptr;
}

Model* Model::open(std::string_view bytes, Failure& failure) {
  std::unique_ptr<Model> model(new Model());
  const bool opened = model->file_.use(bytes, failure) && model->build(failure);
  return opened ? model.release() : nullptr;
}

bool Model::build(Failure& failure) {
  kernels = step_kernels();
  if (kernels == nullptr) {
    return failure.set(PENSTOCK_UNSUPPORTED,
                       "PENSTOCK_ISA names an instruction set that this machine or this build "
                       "does not have: unset it");
  }
  if (!file_.describes_model()) {
    return failure.in_file(PENSTOCK_INCOMPATIBLE, "not a model of Penstock: its metadata have no \"penstock\"");
  }
  if (!read_description(file_.description(), description, failure)) return false;
  // Since version 2 files carry a checksum, so that one without is damaged.
  if (description.version >= 2 && !file_.has_checksum()) {
    return failure.in_file(PENSTOCK_BAD_INPUT, "damaged: files of format_version 2 carry a checksum");
  }
  checksum = file_.checksum();
  return ModelBuilder(*this, file_, failure).build();
}

}  // namespace penstock::runtime
