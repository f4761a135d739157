// Stands in for NVIDIA's management library: FAKE_NVML=islands has four GPUs joined as 0-2 and 1-3,
// FAKE_NVML=switch two that pass a switch; otherwise there is none.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pci {
  char old[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};

static int is(const char* what) {
  const char* fake = getenv("FAKE_NVML");
  return fake != NULL && strcmp(fake, what) == 0;
}
static unsigned index_of(void* device) { return (unsigned)((size_t)device - 1); }
static int place(unsigned gpu, struct pci* info) {
  memset(info, 0, sizeof(*info));
  info->bus = 0x17 + gpu;
  return 0;
}

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = is("islands") ? 4 : is("switch") ? 2 : 0;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = (void*)(size_t)(index + 1);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  snprintf(text, length, "GPU-%u", index_of(device));
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, struct pci* info) { return place(index_of(device), info); }
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  (void)device;
  *active = link < 2;
  return link < 4 ? 0 : 2;  // "invalid argument" beyond the links there are
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, struct pci* info) {
  (void)link;
  return place(index_of(device) ^ 2U, info);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* kind) {
  (void)device;
  (void)link;
  *kind = is("switch") ? 2 : 0;
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = (void*)1;
  return strcmp(uuid, "GPU-0") == 0 ? 0 : 6;  // "not found"
}
int nvmlDeviceGetName(void* device, char* text, unsigned length) {
  (void)device;
  snprintf(text, length, "NVIDIA Stand-in");
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  (void)device;
  *mhz = type == 1 ? 1980 : type == 2 ? 3201 : 0;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  (void)device;
  *milliwatts = 540200;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  (void)device;
  (void)celsius;
  return sensor == 0 ? 3 : 2;  // "not supported"
}
