#pragma once

/// Includes the whole public interface of Penstock.
///
/// To run models, model_file.h and stream.h are enough; recurrent.h has single layers, and onnx.h the export. A build
/// with -D PENSTOCK_TRAINING=OFF has neither data.h nor train.h, nor the folders that they include.
#include "penstock/cell.h"
#include "penstock/checksum.h"
#include "penstock/closed_form_branch.h"
#include "penstock/csp.h"
#include "penstock/cuda.h"
#include "penstock/data_description.h"
#include "penstock/device_choice.h"
#include "penstock/error.h"
#include "penstock/file_writer.h"
#include "penstock/initial_weights.h"
#include "penstock/interval_tracker.h"
#include "penstock/log_file.h"
#include "penstock/model.h"
#include "penstock/model_file.h"
#include "penstock/network.h"
#include "penstock/onnx.h"
#include "penstock/output_files.h"
#include "penstock/plan.h"
#include "penstock/quantize.h"
#include "penstock/recurrent.h"
#include "penstock/recurrent_program.h"
#include "penstock/rtneural.h"
#include "penstock/scan.h"
#include "penstock/scan_program.h"
#include "penstock/sequence_run.h"
#include "penstock/session_pool.h"
#include "penstock/sources.h"
#include "penstock/stop.h"
#include "penstock/stream.h"
#include "penstock/system.h"
#include "penstock/tensor.h"
#include "penstock/tune.h"
#include "penstock/types.h"
#include "penstock/version.h"
#if PENSTOCK_HAS_TRAINING
#include "penstock/data.h"
#include "penstock/train.h"
#endif
