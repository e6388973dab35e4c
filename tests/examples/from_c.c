/* Kiln from C11: a kernel on each device, and an operation. */

#include <kiln/c.h>
#include <stdint.h>
#include <stdio.h>

/* Says what failed, and returns whether anything did. */
static int is_failure(kiln_result result) {
  if (result == NULL)
    return 0;
  fprintf(stderr, "error %d: %s\n", kiln_error_code(result),
          kiln_error_message(result));
  kiln_error_free(result);
  return 1;
}

/* A program has its tensors in the device's memory. Without rows, nothing of them is
 * read or written. */
static int use(kiln_service* service, int device) {
  kiln_device info = KILN_DEVICE_INIT;
  kiln_kernel* kernel = NULL;
  if (is_failure(kiln_device_info(service, device, &info)) ||
      is_failure(kiln_get_template(service, device, "scaled_softmax_fwd",
                                   "{\"dtype\": \"bf16\"}", NULL, &kernel)))
    return 1;

  void* out = NULL;
  const void* in = NULL;
  float scale = 0.125f;
  int64_t rows = 0, cols = 1024;
  const char* const names[] = {"rows", "cols"};
  const int64_t values[] = {rows, cols};
  void* const arguments[] = {&out, &in, &scale, &rows, &cols};
  const size_t sizes[] = {sizeof out, sizeof in, sizeof scale, sizeof rows,
                          sizeof cols};
  kiln_geometry geometry = KILN_GEOMETRY_INIT;
  int failed =
      is_failure(kiln_kernel_geometry(kernel, names, values, 2, &geometry)) ||
      is_failure(kiln_kernel_launch(kernel, &geometry, NULL, arguments, sizes, 5));
  kiln_kernel_free(kernel);

  kiln_softmax_forward_args softmax = KILN_SOFTMAX_FORWARD_ARGS_INIT;
  softmax.dtype = KILN_BF16;
  softmax.sq = 0;
  softmax.skv = 4096;
  failed = failed ||
           is_failure(kiln_softmax_forward_prepare(service, device, &softmax)) ||
           is_failure(kiln_softmax_forward(service, device, NULL, &softmax));
  if (!failed)
    printf("device %d, a %s (%d.%d): launched\n", device, info.name,
           info.capability_major, info.capability_minor);
  return failed;
}

int main(void) {
  kiln_service* service = NULL;
  int count = 0;
  if (is_failure(kiln_service_open(NULL, &service)))
    return 1;
  int failed = is_failure(kiln_device_count(service, &count));
  for (int device = 0; device < count && !failed; ++device)
    failed = use(service, device);
  kiln_service_close(service);
  return failed;
}
