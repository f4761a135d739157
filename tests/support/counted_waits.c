/* To be preloaded: counts how often a process waits for a GPU through CUDA's runtime. A line with the number goes to
   the file that DTRAIN_DEVICE_WAITS names when the process ends; none from a process that never waited. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static long waits;

static void* real(const char* name) {
  void* const function = dlsym(RTLD_NEXT, name);
  if (function == NULL) {
    fprintf(stderr, "counted_waits: no %s of CUDA's behind this one\n", name);
    abort();
  }
  __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED);
  return function;
}

int cudaDeviceSynchronize(void) { return ((int (*)(void))real("cudaDeviceSynchronize"))(); }
int cudaStreamSynchronize(void* stream) { return ((int (*)(void*))real("cudaStreamSynchronize"))(stream); }
int cudaEventSynchronize(void* event) { return ((int (*)(void*))real("cudaEventSynchronize"))(event); }
int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return ((int (*)(void*, const void*, size_t, int))real("cudaMemcpy"))(to, from, bytes, kind);
}

__attribute__((destructor)) static void tell(void) {
  const char* const path = getenv("DTRAIN_DEVICE_WAITS");
  FILE* const file = path != NULL && waits > 0 ? fopen(path, "a") : NULL;
  if (file == NULL) return;
  fprintf(file, "%ld\n", waits);
  fclose(file);
}
