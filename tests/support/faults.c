/* Faults of the world for `dtrain doctor` to find: preloaded into its ranks. DTRAIN_FAULTS names those that happen, each
   followed by a comma: no_locks, no_sync, slow_sync, hung_lock, no_room, small_shm, no_rename, one_thread, old_mpi, old_hdf5,
   old_nccl, other_nccl, old_cuda, stopped (rank 1); DTRAIN_CLOCK_SHIFT_S is what CLOCK_REALTIME is ahead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static int happens(const char* fault) {
  const char* faults = getenv("DTRAIN_FAULTS");
  return faults != NULL && strstr(faults, fault) != NULL;
}

static int fails(int code) {
  errno = code;
  return -1;
}

int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (command == F_SETLK && happens("no_locks,")) return fails(ENOLCK);
  if (command == F_SETLK && happens("hung_lock,")) sleep(600);
  int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl");
  return real(fd, command, argument);
}

int fsync(int fd) {
  if (happens("no_sync,")) return fails(EIO);
  if (happens("slow_sync,")) usleep(1200000);
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  return real(fd);
}

int rename(const char* from, const char* to) {
  if (happens("no_rename,")) return fails(EPERM);
  int (*real)(const char*, const char*) = (int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename");
  return real(from, to);
}

int statvfs(const char* path, struct statvfs* facts) {
  int (*real)(const char*, struct statvfs*) = (int (*)(const char*, struct statvfs*))dlsym(RTLD_NEXT, "statvfs");
  const int code = real(path, facts);
  const int shm = strcmp(path, "/dev/shm") == 0;
  if (code == 0 && happens(shm ? "small_shm," : "no_room,")) facts->f_bavail = (3 << 20) / facts->f_frsize;
  return code;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*) = NULL;
  if (real == NULL) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int code = real(clock, now);
  const char* shift_s = getenv("DTRAIN_CLOCK_SHIFT_S");
  if (clock == CLOCK_REALTIME && shift_s != NULL) now->tv_sec += atoi(shift_s);
  return code;
}

int MPI_Query_thread(int* provided) {
  int (*real)(int*) = (int (*)(int*))dlsym(RTLD_NEXT, "PMPI_Query_thread");
  const int code = real(provided);
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (happens("stopped,") && rank != NULL && strcmp(rank, "1") == 0) raise(SIGSTOP);
  if (happens("one_thread,")) *provided = 0;
  return code;
}

int MPI_Get_library_version(char* text, int* length) {
  int (*real)(char*, int*) = (int (*)(char*, int*))dlsym(RTLD_NEXT, "PMPI_Get_library_version");
  const int code = real(text, length);
  if (happens("old_mpi,")) *length = sprintf(text, "Open MPI v4.1.4, package: another");
  return code;
}

int H5get_libversion(unsigned* major, unsigned* minor, unsigned* release) {
  int (*real)(unsigned*, unsigned*, unsigned*) =
      (int (*)(unsigned*, unsigned*, unsigned*))dlsym(RTLD_NEXT, "H5get_libversion");
  const int code = real(major, minor, release);
  if (happens("old_hdf5,")) *minor = 8;
  return code;
}

/* These come with the CUDA module, which is opened later and for itself: RTLD_NEXT would not find them. */
static int version_of(const char* library, const char* function, int* version, const char* fault, int old) {
  int (*real)(int*) = (int (*)(int*))dlsym(dlopen(library, RTLD_NOLOAD | RTLD_LAZY), function);
  const int code = real(version);
  if (happens(fault)) *version = old;
  return code;
}

int ncclGetVersion(int* version) {
  const int code = version_of("libnccl.so.2", "ncclGetVersion", version, "old_nccl,", 21801);
  if (happens("other_nccl,")) *version = 30105;
  return code;
}

int cudaRuntimeGetVersion(int* version) {
  return version_of("libcudart.so.13", "cudaRuntimeGetVersion", version, "old_cuda,", 11080);
}
