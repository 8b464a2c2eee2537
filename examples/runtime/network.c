/* Runs a network that `penstock import` wrote on a stream: numbers in, the outputs of each step on a line.
 *
 *     cc network.c -o network $(pkg-config --cflags --libs penstock-runtime)
 *     ./network silero_vad.safetensors input=1,576 < samples.txt
 *
 * An argument such as input=1,576 is the shape of an input with extents that the caller chooses. A step reads all
 * elements of all inputs; the state stays in the session.
 */
#include <penstock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SHAPES 16
#define MOST_AXES 12

static int fail(const penstock_error* error) {
  fprintf(stderr, "network: %s\n", error->text);
  return 1;
}

/* Reads "input=1,576". */
static int read_shape(char* text, penstock_shape* shape, int64_t* extents) {
  char* at = strchr(text, '=');
  if (at == NULL) return 0;
  *at = '\0';
  shape->input = text;
  shape->extents = extents;
  shape->rank = 0;
  do {
    if (shape->rank == MOST_AXES) return 0;
    extents[shape->rank++] = strtoll(at + 1, &at, 10);
  } while (*at == ',');
  return *at == '\0';
}

int main(int count, char** arguments) {
  static int64_t extents[MOST_SHAPES][MOST_AXES];
  penstock_shape shapes[MOST_SHAPES];
  penstock_error error;
  penstock_model* model = NULL;
  penstock_session* session = NULL;
  penstock_model_info info = {0};
  penstock_tensor tensor;
  float *inputs, *outputs;
  size_t filled = 0, i;
  int argument;

  if (count < 2 || count > 2 + MOST_SHAPES) return fprintf(stderr, "usage: network NETWORK [INPUT=EXTENTS ...] < NUMBERS\n"), 2;
  for (argument = 2; argument < count; ++argument) {
    if (!read_shape(arguments[argument], &shapes[argument - 2], extents[argument - 2]))
      return fprintf(stderr, "network: a shape is written as input=1,576\n"), 2;
  }
  info.struct_size = sizeof info;
  if (penstock_network_open(arguments[1], shapes, (size_t)count - 2, &model, &error) != PENSTOCK_OK ||
      penstock_model_get_info(model, &info, &error) != PENSTOCK_OK ||
      penstock_session_open(model, NULL, 0, &session, &error) != PENSTOCK_OK)
    return fail(&error);
  for (i = 0; penstock_network_get_input(model, i, &tensor, NULL) == PENSTOCK_OK; ++i)
    fprintf(stderr, "reads %s, %lu numbers of a step from number %lu on\n", tensor.name, (unsigned long)tensor.size,
            (unsigned long)tensor.first);
  inputs = calloc(info.inputs, sizeof *inputs);
  outputs = calloc(info.outputs, sizeof *outputs);
  if (inputs == NULL || outputs == NULL) return fprintf(stderr, "network: no memory\n"), 1;

  while (scanf("%f", &inputs[filled]) == 1) {
    if (++filled < info.inputs) continue;
    filled = 0;
    if (penstock_session_step(session, inputs, info.inputs, outputs, info.outputs, &error) != PENSTOCK_OK)
      return fail(&error);
    for (i = 0; i < info.outputs; ++i) printf("%s%.9g", i > 0 ? " " : "", outputs[i]);
    printf("\n");
  }
  free(inputs), free(outputs);
  penstock_session_close(session, NULL);
  penstock_model_close(model, NULL);
  return 0;
}
