/* A libcuda.so.1 of long ago: it knows CUDA 12.4 and nothing else. */
int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
