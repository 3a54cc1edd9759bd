/* A function of a torch package, and calls of it; torch_runner.cpp defines them. */
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct {
  const char *package; /* the .pt2 file in memory */
  int64_t package_bytes;
  const char *device; /* cpu or cuda */
  int64_t batch; /* samples of each call of the package; 0 for any number */
  int is_double;
  int64_t num_inputs, num_outputs;
  const int64_t *arrays; /* of each array: whether all samples share it, number of dims, dims */
} stk_torch_function;
/* Load the package: 0, or 6 if it cannot run here. */
__attribute__((visibility("hidden"))) int stk_torch_load(const stk_torch_function *function);
/* Compute all samples: 0, or 6 if the device failed. Samples that torch refuses become NaN. */
__attribute__((visibility("hidden"))) int stk_torch_call(
    const stk_torch_function *function, int64_t samples, const void *const *inputs,
    void *const *outputs);
#ifdef __cplusplus
}
#endif
