#include <penstock.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  penstock_model* model;
  penstock_error error;
  if (penstock_model_open("/nowhere", &model, &error) != PENSTOCK_IO_FAILURE) return 1;
  printf("Penstock %s: %s\n", penstock_version(), error.text);
  return strstr(error.text, "/nowhere") == NULL;
}
