/* Preloaded into a command: from the n-th change of a file below FAULT_PREFIX on, something goes wrong.

   FAULT_PREFIX  absolute path; other files are left alone
   FAULT_AT      which change is the first that fails, from 1; 0: none, only count
   FAULT_KIND    kill | term | int | ENOSPC | EROFS | EMFILE | EIO
   FAULT_COUNT   file that gets one line with the number of changes when a process ends

   A change is a write, a file opened to be written, a rename, a new folder, or a file brought to
   the disk. A full disk stays full; a signal comes once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long changes;
static const char *prefix;
static long first;
static int error_number, signal_number;

/* Reads the environment; a fork whose environment changed calls it again. */
__attribute__((constructor)) void fault_begin(void) {
  const char *kind = getenv("FAULT_KIND"), *at = getenv("FAULT_AT");
  prefix = getenv("FAULT_PREFIX");
  first = at ? atol(at) : 0;
  atomic_store(&changes, 0);
  error_number = signal_number = 0;
  if (!kind) return;
  if (!strcmp(kind, "kill")) signal_number = SIGKILL;
  if (!strcmp(kind, "term")) signal_number = SIGTERM;
  if (!strcmp(kind, "int")) signal_number = SIGINT;
  if (!strcmp(kind, "ENOSPC")) error_number = ENOSPC;
  if (!strcmp(kind, "EROFS")) error_number = EROFS;
  if (!strcmp(kind, "EMFILE")) error_number = EMFILE;
  if (!strcmp(kind, "EIO")) error_number = EIO;
}

/* A process that ends without destructors calls it. */
__attribute__((destructor)) void fault_end(void) {
  const char *name = getenv("FAULT_COUNT");
  if (!name) return;
  FILE *file = fopen(name, "a");
  if (file) {
    fprintf(file, "%ld\n", atomic_load(&changes));
    fclose(file);
  }
}

static int below(const char *path) {
  if (!prefix || !path) return 0;
  if (path[0] == '/') return !strncmp(path, prefix, strlen(prefix));
  char folder[PATH_MAX];
  return getcwd(folder, sizeof folder) && !strncmp(folder, prefix, strlen(prefix));
}

static int below_open(int file) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return path[0] == '/' && below(path);
}

/* Returns 1, with errno set, if this change has to fail. */
static int fails(int counts) {
  if (!counts) return 0;
  long number = atomic_fetch_add(&changes, 1) + 1;
  if (!first || number < first) return 0;
  if (signal_number && number == first) raise(signal_number);
  if (!error_number) return 0;
  errno = error_number;
  return 1;
}

#define ORIGINAL(name) \
  static __typeof__(&name) original; \
  if (!original) original = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define WRITES(flags) (((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0)
#define MODE(flags, mode) \
  mode_t mode = 0; \
  if ((flags) & O_CREAT) { \
    va_list more; \
    va_start(more, flags); \
    mode = va_arg(more, mode_t); \
    va_end(more); \
  }

int open(const char *path, int flags, ...) {
  ORIGINAL(open);
  MODE(flags, mode)
  return fails(WRITES(flags) && below(path)) ? -1 : original(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  ORIGINAL(open64);
  MODE(flags, mode)
  return fails(WRITES(flags) && below(path)) ? -1 : original(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
  ORIGINAL(openat);
  MODE(flags, mode)
  return fails(WRITES(flags) && below(path)) ? -1 : original(folder, path, flags, mode);
}
FILE *fopen(const char *path, const char *mode) {
  ORIGINAL(fopen);
  return fails(strpbrk(mode, "wa+") && below(path)) ? NULL : original(path, mode);
}
FILE *fopen64(const char *path, const char *mode) {
  ORIGINAL(fopen64);
  return fails(strpbrk(mode, "wa+") && below(path)) ? NULL : original(path, mode);
}
ssize_t write(int file, const void *data, size_t size) {
  ORIGINAL(write);
  return fails(error_number != EMFILE && below_open(file)) ? -1 : original(file, data, size);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
  ORIGINAL(pwrite);
  return fails(error_number != EMFILE && below_open(file)) ? -1 : original(file, data, size, at);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
  ORIGINAL(pwrite64);
  return fails(error_number != EMFILE && below_open(file)) ? -1 : original(file, data, size, at);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
  ORIGINAL(writev);
  return fails(error_number != EMFILE && below_open(file)) ? -1 : original(file, parts, count);
}
size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
  ORIGINAL(fwrite);
  return fails(error_number != EMFILE && below_open(fileno(file))) ? 0 : original(data, size, count, file);
}
int fsync(int file) {
  ORIGINAL(fsync);
  return fails(error_number != EMFILE && below_open(file)) ? -1 : original(file);
}
int fdatasync(int file) {
  ORIGINAL(fdatasync);
  return fails(error_number != EMFILE && below_open(file)) ? -1 : original(file);
}
int mkdir(const char *path, mode_t mode) {
  ORIGINAL(mkdir);
  return fails(error_number != EMFILE && below(path)) ? -1 : original(path, mode);
}
int rename(const char *from, const char *to) {
  ORIGINAL(rename);
  return fails(error_number != EMFILE && below(to)) ? -1 : original(from, to);
}
