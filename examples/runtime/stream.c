/* Runs a model file of Penstock on a stream: rows of numbers in, one answer a line out.
 *
 *     cc stream.c -o stream $(pkg-config --cflags --libs penstock-runtime)
 *     ./stream model.safetensors < rows.txt
 *
 * A row holds the values of the model's inputs, as the table has them. The answers are forecasts in the units of the
 * table, logits of classes, or, for a model of text, the most likely byte after each byte that was read.
 */
#include <math.h>
#include <penstock.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const penstock_error* error) {
  fprintf(stderr, "stream: %s\n", error->text);
  return 1;
}

static float normal(const penstock_column* column, double value) {
  if (column->logarithm) value = log(value);
  return (float)((value - column->mean) / column->scale);
}

static double raw(const penstock_column* column, float value) {
  double result = value * column->scale + column->mean;
  if (column->logarithm) result = exp(result);
  return column->non_negative && result < 0.0 ? 0.0 : result;
}

static void print_answer(const penstock_model* model, const penstock_model_info* info, const float* outputs) {
  size_t i, best = 0;
  if (info->task == PENSTOCK_LANGUAGE) {
    for (i = 1; i < info->outputs; ++i) {
      if (outputs[i] > outputs[best]) best = i;
    }
    printf("%u\n", (unsigned)best);
    return;
  }
  for (i = 0; i < info->outputs; ++i) {
    penstock_column target;
    double value = outputs[i];
    if (info->task == PENSTOCK_FORECAST && penstock_model_get_target(model, i % info->targets, &target, NULL) == PENSTOCK_OK)
      value = raw(&target, outputs[i]);
    printf("%s%.9g", i > 0 ? " " : "", value);
  }
  printf("\n");
}

int main(int count, char** arguments) {
  penstock_error error;
  penstock_model* model = NULL;
  penstock_session* session = NULL;
  penstock_model_info info = {0};
  penstock_column* columns;
  float *features, *outputs;
  size_t filled = 0, i;
  double value;
  int byte;

  if (count != 2) return fprintf(stderr, "usage: stream MODEL < ROWS\n"), 2;
  info.struct_size = sizeof info;
  if (penstock_model_open(arguments[1], &model, &error) != PENSTOCK_OK) return fail(&error);
  if (penstock_model_get_info(model, &info, &error) != PENSTOCK_OK) return fail(&error);
  if (penstock_session_open(model, NULL, 0, &session, &error) != PENSTOCK_OK) return fail(&error);
  columns = calloc(info.inputs, sizeof *columns);
  features = calloc(info.inputs, sizeof *features);
  outputs = calloc(info.outputs, sizeof *outputs);
  if (columns == NULL || features == NULL || outputs == NULL) return fprintf(stderr, "stream: no memory\n"), 1;

  if (info.vocabulary > 0) {
    while ((byte = getchar()) != EOF) {
      if (penstock_session_step_token(session, byte, outputs, info.outputs, &error) != PENSTOCK_OK) return fail(&error);
      print_answer(model, &info, outputs);
    }
  } else {
    for (i = 0; i < info.inputs; ++i) {
      if (penstock_model_get_input(model, i, &columns[i], &error) != PENSTOCK_OK) return fail(&error);
    }
    while (scanf("%lf", &value) == 1) {
      features[filled] = normal(&columns[filled], value);
      if (++filled < info.inputs) continue;
      filled = 0;
      if (penstock_session_step(session, features, info.inputs, outputs, info.outputs, &error) != PENSTOCK_OK)
        return fail(&error);
      print_answer(model, &info, outputs);
    }
  }
  free(columns), free(features), free(outputs);
  penstock_session_close(session, NULL);
  penstock_model_close(model, NULL);
  return 0;
}
