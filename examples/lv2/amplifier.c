/* An LV2 plug-in that plays a model of `penstock train in.wav --target out.wav`. build.sh makes a bundle of it.
 *
 * The model is model.safetensors in the bundle. A step of it allocates nothing and takes no lock, so run() may be called
 * by a real-time thread.
 */
#include <lv2/core/lv2.h>
#include <lv2/core/lv2_util.h>
#include <lv2/log/logger.h>
#include <math.h>
#include <penstock.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUT, OUTPUT, GAIN, LEVEL, PORTS };
enum { BLOCK = 128 }; /* samples that are normalised at once */

typedef struct {
  const float* ports[PORTS];
  penstock_model* model;
  penstock_session* session;
  penstock_column input, target;
  uint32_t rate;
} Amplifier;

static void cleanup(LV2_Handle handle) {
  Amplifier* self = handle;
  if (self->session != NULL) penstock_session_close(self->session, NULL);
  if (self->model != NULL) penstock_model_close(self->model, NULL);
  free(self);
}

/* Opens the model of a bundle. Returns 0, or writes the reason of a failure. */
static int open_model(Amplifier* self, const char* bundle, double rate, penstock_error* error) {
  char path[4096];
  penstock_model_info info = {0};
  info.struct_size = sizeof info;
  snprintf(path, sizeof path, "%smodel.safetensors", bundle);
  if (penstock_model_open(path, &self->model, error) != PENSTOCK_OK ||
      penstock_model_get_info(self->model, &info, error) != PENSTOCK_OK)
    return 1;
  if (info.sample_rate == 0 || info.inputs != 1 || info.outputs != 1) {
    snprintf(error->text, sizeof error->text, "%s: not a model of sound with one channel", path);
    return 1;
  }
  if (rate != info.sample_rate) {
    snprintf(error->text, sizeof error->text, "%s: the model was trained at %u Hz; the host runs at %.0f Hz", path,
             (unsigned)info.sample_rate, rate);
    return 1;
  }
  self->rate = info.sample_rate;
  return penstock_model_get_input(self->model, 0, &self->input, error) != PENSTOCK_OK ||
         penstock_model_get_target(self->model, 0, &self->target, error) != PENSTOCK_OK ||
         penstock_session_open(self->model, NULL, 0, &self->session, error) != PENSTOCK_OK ||
         penstock_session_set_nan_policy(self->session, PENSTOCK_NAN_ZERO, error) != PENSTOCK_OK;
}

static LV2_Handle instantiate(const LV2_Descriptor* descriptor, double rate, const char* bundle,
                              const LV2_Feature* const* features) {
  penstock_error error = {PENSTOCK_OK, ""};
  Amplifier* self = calloc(1, sizeof *self);
  (void)descriptor;
  if (self == NULL || open_model(self, bundle, rate, &error) == 0) return self;
  LV2_Log_Logger logger = {0};
  lv2_log_logger_init(&logger, lv2_features_data(features, LV2_URID__map), lv2_features_data(features, LV2_LOG__log));
  lv2_log_error(&logger, "penstock: %s\n", error.text);
  cleanup(self);
  return NULL;
}

static void connect_port(LV2_Handle handle, uint32_t port, void* data) {
  if (port < PORTS) ((Amplifier*)handle)->ports[port] = data;
}

/* Half a second of silence settles the state, so that the first buffer does not jump. */
static void activate(LV2_Handle handle) {
  Amplifier* self = handle;
  const float silence = (float)((0.0 - self->input.mean) / self->input.scale);
  penstock_session_reset(self->session, NULL);
  penstock_session_prewarm(self->session, &silence, 1, self->rate / 2, NULL);
}

static float from_decibels(const float* port) { return port == NULL ? 1.0f : powf(10.0f, *port / 20.0f); }

static void run(LV2_Handle handle, uint32_t samples) {
  Amplifier* self = handle;
  const float* in = self->ports[INPUT];
  float* out = (float*)self->ports[OUTPUT]; /* may be the same buffer */
  const float gain = from_decibels(self->ports[GAIN]) / (float)self->input.scale;
  const float offset = (float)(self->input.mean / self->input.scale);
  const float level = from_decibels(self->ports[LEVEL]);
  const float scale = (float)self->target.scale * level, mean = (float)self->target.mean * level;
  float features[BLOCK], answers[BLOCK];
  for (uint32_t done = 0; done < samples; done += BLOCK) {
    const uint32_t count = samples - done < BLOCK ? samples - done : BLOCK;
    for (uint32_t i = 0; i < count; ++i) features[i] = in[done + i] * gain - offset;
    penstock_session_chunk(self->session, features, count, answers, count, NULL);
    for (uint32_t i = 0; i < count; ++i) out[done + i] = answers[i] * scale + mean;
  }
}

static const LV2_Descriptor descriptor = {PLUGIN_URI, instantiate, connect_port, activate, run, NULL, cleanup, NULL};

LV2_SYMBOL_EXPORT const LV2_Descriptor* lv2_descriptor(uint32_t index) { return index == 0 ? &descriptor : NULL; }
