/* See scitoolkit_pool.h. The surrogate of least value is evicted: seconds of reading it again,
   times its frequency of use, per byte. The frequency is a decaying count of uses with a half-life
   of ten calls per surrogate. Threads that need memory receive it in the order of their requests;
   if all of it is in use, surrogates are marked for eviction, so that no further call begins. */
#define _XOPEN_SOURCE 700
#include "scitoolkit_pool.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

enum { ALIGN = 64, PAGE = 4096, MOST_ARRAYS = 10, FORGETTING = 10 };
#define LARGEST_HEADER (64 << 20)
#define MAGIC "STKWTS01"
#define SURPRISE 1.5 /* largest growth of the seconds of reading from one read to the next */

static _Thread_local char message[512];

const char *stk_pool_error(void) { return message; }

static int failed(int status, const char *format, ...) {
  va_list given;
  va_start(given, format);
  vsnprintf(message, sizeof message, format, given);
  va_end(given);
  return status;
}

/* ---- JSON: members, items, numbers and strings of headers written by Python ---- */

static const char *blank(const char *at) {
  while (at && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
  return at;
}

/* The character after a value, or null if there is no value. */
static const char *after(const char *at) {
  at = blank(at);
  if (!at || !*at) return NULL;
  if (*at == '"') {
    for (at++; *at && *at != '"'; at++)
      if (*at == '\\' && at[1]) at++;
    return *at ? at + 1 : NULL;
  }
  if (*at == '{' || *at == '[') {
    const char close = *at == '{' ? '}' : ']';
    at = blank(at + 1);
    while (at && *at && *at != close) {
      at = blank(after(at));
      if (at && (*at == ',' || *at == ':')) at = blank(at + 1);
      else if (at && *at != close) return NULL;
    }
    return at && *at ? at + 1 : NULL;
  }
  const char *start = at;
  while (*at && !strchr(",:]} \n\t\r", *at)) at++;
  return at > start ? at : NULL;
}

/* The value of a member of an object, or null. */
static const char *member(const char *object, const char *key) {
  const char *at = blank(object);
  const size_t length = strlen(key);
  if (!at || *at != '{') return NULL;
  at = blank(at + 1);
  while (at && *at == '"') {
    const char *name = at + 1, *end = after(at);
    const char *value = blank(end);
    if (!value || *value != ':') return NULL;
    value = blank(value + 1);
    if ((size_t)(end - name) == length + 1 && !strncmp(name, key, length)) return value;
    at = blank(after(value));
    if (at && *at == ',') at = blank(at + 1);
  }
  return NULL;
}

/* An item of an array, or null. */
static const char *item(const char *array, int place) {
  const char *at = blank(array);
  if (!at || *at != '[') return NULL;
  for (at = blank(at + 1); at && *at && *at != ']';) {
    if (!place--) return at;
    at = blank(after(at));
    if (at && *at == ',') at = blank(at + 1);
  }
  return NULL;
}

static int items(const char *array) {
  int count = 0;
  while (item(array, count)) count++;
  return count;
}

static int64_t number(const char *value, int64_t otherwise) {
  if (!value || (*value != '-' && (*value < '0' || *value > '9'))) return otherwise;
  return strtoll(value, NULL, 10);
}

/* Copy a string without escapes; returns 0 if it is not one or too long. */
static int text(const char *value, char *into, size_t size) {
  const char *end = after(value);
  if (!end || *value != '"' || (size_t)(end - value) > size + 1) return 0;
  const size_t length = (size_t)(end - value) - 2;
  memcpy(into, value + 1, length);
  into[length] = 0;
  return !strchr(into, '\\');
}

/* ---- files ---- */

typedef struct {
  ino_t inode;
  int64_t size;
  struct timespec changed;
} identity;

typedef struct {
  char *about;
  char key[17];
  int64_t start, bytes;
  uint32_t crc;
  identity at;
} header;

static uint32_t crc_table[256];

static void make_crc_table(void) {
  for (uint32_t k = 0; k < 256; k++) {
    uint32_t value = k;
    for (int bit = 0; bit < 8; bit++) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
    crc_table[k] = value;
  }
}

static uint32_t crc32_of(const unsigned char *data, int64_t size) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_crc_table);
  uint32_t out = 0xFFFFFFFFu;
  for (int64_t k = 0; k < size; k++) out = crc_table[(out ^ data[k]) & 255] ^ out >> 8;
  return ~out;
}

static identity identity_of(const struct stat *found) {
  return (identity){found->st_ino, found->st_size, found->st_mtim};
}

static int same(const identity *a, const identity *b) {
  return a->inode == b->inode && a->size == b->size && a->changed.tv_sec == b->changed.tv_sec &&
         a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Read bytes of a file; returns 0 on success. */
static int read_bytes(int file, void *into, int64_t size, int64_t start) {
  for (int64_t filled = 0; filled < size;) {
    const ssize_t count = pread(file, (char *)into + filled, (size_t)(size - filled),
                                (off_t)(start + filled));
    if (count <= 0) return 1;
    filled += count;
  }
  return 0;
}

static int read_header(const char *path, header *into) {
  const int file = open(path, O_RDONLY);
  if (file < 0) return failed(STK_POOL_FILE, "%s: no such file", path);
  struct stat found;
  unsigned char head[16];
  char *content = NULL;
  int status = STK_POOL_FILE;
  if (fstat(file, &found) || read_bytes(file, head, 16, 0) || memcmp(head, MAGIC, 8)) {
    failed(status, "%s: not a file of weights", path);
    goto done;
  }
  int64_t size = 0;
  for (int k = 7; k >= 0; k--) size = size << 8 | head[8 + k];
  if (size <= 0 || size > found.st_size || size > LARGEST_HEADER) {
    failed(status, "%s: damaged: its header is truncated", path);
    goto done;
  }
  content = malloc((size_t)size + 1);
  if (!content) {
    status = failed(STK_POOL_MEMORY, "no memory for the header of %s", path);
    goto done;
  }
  if (read_bytes(file, content, size, 16)) {
    failed(status, "%s: damaged: its header is truncated", path);
    goto done;
  }
  content[size] = 0;
  const char *about = member(content, "about"), *end = after(about);
  into->bytes = number(member(content, "bytes"), -1);
  const int64_t crc = number(member(content, "crc32"), -1);
  const int64_t length = 16 + size;
  into->start = length + (ALIGN - length % ALIGN) % ALIGN;
  if (!end || into->bytes < 0 || crc < 0 || !text(member(content, "shell"), into->key, 17) ||
      strlen(into->key) != 16 || strspn(into->key, "0123456789abcdef") != 16) {
    failed(status, "%s: damaged: its header cannot be read", path);
    goto done;
  }
  if (found.st_size != into->start + into->bytes) {
    failed(status, "%s: damaged: %lld bytes, %lld expected", path, (long long)found.st_size,
           (long long)(into->start + into->bytes));
    goto done;
  }
  into->crc = (uint32_t)crc;
  into->at = identity_of(&found);
  memmove(content, about, (size_t)(end - about));
  content[end - about] = 0;
  into->about = content;
  content = NULL;
  status = 0;
done:
  free(content);
  close(file);
  return status;
}

/* ---- the pool ---- */

typedef struct shell {
  char *path;
  void *library;
  struct shell *next;
} shell;

typedef struct entry {
  char *name, *path;
  header file;
  shell *code;
  int64_t size;
  void *memory;
  int users, loading, leaving, verified, removed;
  double seconds, uses;
  int64_t last;
  struct entry *next;
} entry;

typedef struct waiter {
  struct waiter *next;
} waiter; /* a thread that waits for memory */

typedef struct workspace {
  int64_t size;
  struct workspace *next;
} workspace; /* the bytes follow at the next multiple of ALIGN */

struct stk_pool {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  entry *entries;
  shell *shells;
  workspace *idle;
  waiter *line;
  int64_t budget, held, now;
  double rate;
  stk_pool_counts counts;
};

int stk_pool_new(int64_t budget, stk_pool **pool) {
  if (!pool) return failed(STK_POOL_ARGUMENTS, "stk_pool_new: a null pointer");
  if (budget <= 0) return failed(STK_POOL_ARGUMENTS, "a budget of %lld bytes", (long long)budget);
  stk_pool *made = calloc(1, sizeof *made);
  if (!made) return failed(STK_POOL_MEMORY, "no memory");
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->changed, NULL);
  made->budget = budget;
  *pool = made;
  return 0;
}

static void free_entry(entry *gone) {
  free(gone->memory);
  free(gone->file.about);
  free(gone->name);
  free(gone->path);
  free(gone);
}

void stk_pool_free(stk_pool *pool) {
  if (!pool) return;
  while (pool->entries) {
    entry *gone = pool->entries;
    pool->entries = gone->next;
    free_entry(gone);
  }
  while (pool->shells) {
    shell *gone = pool->shells;
    pool->shells = gone->next;
    dlclose(gone->library);
    free(gone->path);
    free(gone);
  }
  while (pool->idle) {
    workspace *gone = pool->idle;
    pool->idle = gone->next;
    free(gone);
  }
  pthread_cond_destroy(&pool->changed);
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}

static entry *find(stk_pool *pool, const char *name) {
  for (entry *one = pool->entries; one; one = one->next)
    if (!one->removed && !strcmp(one->name, name)) return one;
  return NULL;
}

/* The code of a file, loaded once; called with the lock. */
static shell *code_of(stk_pool *pool, const char *path, const header *file) {
  const char *slash = strrchr(path, '/');
  const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
  char *place = malloc(folder + 32);
  char *whole = NULL;
  if (place) {
    sprintf(place, "%.*sshell-%s.so", (int)folder, path, file->key);
    whole = realpath(place, NULL);
  }
  if (!whole) {
    failed(STK_POOL_FILE, "%s: no such file: copy the code with the weights", place ? place : path);
    free(place);
    return NULL;
  }
  free(place);
  for (shell *one = pool->shells; one; one = one->next)
    if (!strcmp(one->path, whole)) {
      free(whole);
      return one;
    }
  void *library = dlopen(whole, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    failed(STK_POOL_FILE, "%s", dlerror());
    free(whole);
    return NULL;
  }
  int (*check)(int, int64_t) = (int (*)(int, int64_t))dlsym(library, "shell_check");
  const int64_t checksum = number(member(file->about, "checksum"), 0);
  const int status = check ? check((int)number(member(file->about, "abi"), -1), checksum) : 4;
  shell *made = status ? NULL : malloc(sizeof *made);
  if (!made) {
    failed(STK_POOL_FILE, "%s: %s", whole,
           status == 6 ? "compiled for another processor" : "not the code of these weights");
    dlclose(library);
    free(whole);
    return NULL;
  }
  *made = (shell){whole, library, pool->shells};
  pool->shells = made;
  return made;
}

static int64_t rounded(int64_t size) {
  const int64_t whole = (size + PAGE - 1) / PAGE * PAGE;
  return whole > PAGE ? whole : PAGE;
}

int stk_pool_add(stk_pool *pool, const char *name, const char *path) {
  if (!pool || !name || !path) return failed(STK_POOL_ARGUMENTS, "stk_pool_add: a null pointer");
  header file = {0};
  int status = read_header(path, &file);
  if (status) return status;
  entry *made = calloc(1, sizeof *made);
  if (!made || !(made->name = strdup(name)) || !(made->path = strdup(path))) {
    free(file.about);
    if (made) free_entry(made);
    return failed(STK_POOL_MEMORY, "no memory");
  }
  made->file = file;
  made->size = rounded(file.bytes);
  pthread_mutex_lock(&pool->lock);
  if (made->size > pool->budget)
    status = failed(STK_POOL_TOO_LARGE, "%s: %lld bytes of weights, more than the budget of %lld",
                    path, (long long)file.bytes, (long long)pool->budget);
  else if (find(pool, name))
    status = failed(STK_POOL_TAKEN, "%s is in the pool already: remove it first", name);
  else if (!(made->code = code_of(pool, path, &file)))
    status = STK_POOL_FILE;
  if (!status) {
    made->next = pool->entries;
    pool->entries = made;
    pool->counts.models++;
  }
  pthread_mutex_unlock(&pool->lock);
  if (status) free_entry(made);
  return status;
}

static void release(stk_pool *pool, entry *one) {
  if (one->memory) pool->held -= one->size;
  free(one->memory);
  one->memory = NULL;
  one->leaving = 0;
}

int stk_pool_remove(stk_pool *pool, const char *name) {
  if (!pool || !name) return failed(STK_POOL_ARGUMENTS, "stk_pool_remove: a null pointer");
  pthread_mutex_lock(&pool->lock);
  entry *gone = find(pool, name);
  if (!gone) {
    pthread_mutex_unlock(&pool->lock);
    return failed(STK_POOL_UNKNOWN, "no surrogate %s in the pool", name);
  }
  gone->removed = 1;
  pool->counts.models--;
  pthread_cond_broadcast(&pool->changed);
  while (gone->users || gone->loading) pthread_cond_wait(&pool->changed, &pool->lock);
  release(pool, gone);
  for (entry **at = &pool->entries; *at; at = &(*at)->next)
    if (*at == gone) {
      *at = gone->next;
      break;
    }
  pthread_cond_broadcast(&pool->changed);
  pthread_mutex_unlock(&pool->lock);
  free_entry(gone);
  return 0;
}

static double half_life(const stk_pool *pool) {
  return (double)FORGETTING * (double)(pool->counts.models > 1 ? pool->counts.models : 1);
}

static double decayed(const stk_pool *pool, const entry *one) {
  return one->uses * exp2(-(double)(pool->now - one->last) / half_life(pool));
}

static double worth(const stk_pool *pool, const entry *one) {
  const double seconds = one->seconds > 1e-9 ? one->seconds : 1e-9;
  return seconds * decayed(pool, one) / (double)one->size;
}

static void use(stk_pool *pool, entry *one) {
  pool->now++;
  one->uses = 1 + decayed(pool, one);
  one->last = pool->now;
}

/* Mark surrogates of least value until their sizes suffice, including those already marked. */
static void mark(stk_pool *pool, int64_t size) {
  int64_t missing = size - (pool->budget - pool->held);
  for (entry *one = pool->entries; one; one = one->next)
    if (one->memory && one->leaving) missing -= one->size;
  while (missing > 0) {
    entry *least = NULL;
    for (entry *one = pool->entries; one; one = one->next)
      if (one->memory && !one->leaving && (!least || worth(pool, one) < worth(pool, least)))
        least = one;
    if (!least) return;
    least->leaving = 1;
    missing -= least->size;
  }
}

/* Allocate memory for a surrogate; returns 0 if calls in progress must end first, -1 on failure. */
static int take(stk_pool *pool, entry *target) {
  while (pool->held + target->size > pool->budget) {
    entry *least = NULL;
    for (entry *one = pool->entries; one; one = one->next) {
      if (!one->memory || one->users || one->loading) continue;
      if (!least || one->leaving > least->leaving ||
          (one->leaving == least->leaving && worth(pool, one) < worth(pool, least)))
        least = one;
    }
    if (!least) {
      mark(pool, target->size);
      return 0;
    }
    pool->counts.evictions++;
    if (least->size == target->size) { /* reuse its memory */
      target->memory = least->memory;
      least->memory = NULL;
      least->leaving = 0;
      return 1;
    }
    release(pool, least);
  }
  if (posix_memalign(&target->memory, ALIGN, (size_t)target->size)) {
    target->memory = NULL;
    return -1;
  }
  pool->held += target->size;
  return 1;
}

/* Read the weights; called without the lock. */
static int read_weights(entry *one) {
  const int file = open(one->path, O_RDONLY);
  struct stat found;
  if (file < 0) return failed(STK_POOL_FILE, "%s: no such file", one->path);
  int status = fstat(file, &found) ? 1 : 0;
  const identity now = identity_of(&found);
  if (!status && !same(&now, &one->file.at)) { /* replaced, perhaps by a compatible file */
    header other = {0};
    close(file);
    status = read_header(one->path, &other);
    if (status) return status;
    if (strcmp(other.key, one->file.key) || other.bytes != one->file.bytes) {
      free(other.about);
      return failed(STK_POOL_FILE, "%s: was replaced by a surrogate with other arrays or code",
                    one->path);
    }
    free(other.about);
    one->file.start = other.start;
    one->file.crc = other.crc;
    one->file.at = other.at;
    one->verified = 0;
    return read_weights(one);
  }
  if (!status) status = read_bytes(file, one->memory, one->file.bytes, one->file.start);
  close(file);
  if (status) return failed(STK_POOL_FILE, "%s: cannot be read", one->path);
  if (!one->verified && crc32_of(one->memory, one->file.bytes) != one->file.crc)
    return failed(STK_POOL_FILE, "%s: the weights in it are damaged", one->path);
  one->verified = 1;
  return 0;
}

/* Read a surrogate marked as loading; called with the lock, which is released while reading. */
static int read_in(stk_pool *pool, entry *one) {
  struct timespec a, b;
  pthread_mutex_unlock(&pool->lock);
  clock_gettime(CLOCK_MONOTONIC, &a);
  const int status = read_weights(one);
  clock_gettime(CLOCK_MONOTONIC, &b);
  pthread_mutex_lock(&pool->lock);
  one->loading = 0;
  pthread_cond_broadcast(&pool->changed);
  if (status) {
    pool->counts.failures++;
    release(pool, one);
    return status;
  }
  pool->counts.loads++;
  const double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
  double expected = one->seconds > 0 ? one->seconds : pool->rate * (double)one->size;
  if (expected <= 0) expected = seconds;
  one->seconds = seconds < SURPRISE * expected ? seconds : SURPRISE * expected;
  const double rate = one->seconds / (double)one->size;
  pool->rate = pool->rate > 0 ? 0.9 * pool->rate + 0.1 * rate : rate;
  return 0;
}

static void leave_line(stk_pool *pool, waiter *own) {
  for (waiter **at = &pool->line; *at; at = &(*at)->next)
    if (*at == own) {
      if (pool->line == own) /* the marks were for this thread */
        for (entry *one = pool->entries; one; one = one->next) one->leaving = 0;
      *at = own->next;
      pthread_cond_broadcast(&pool->changed);
      return;
    }
}

/* Load a surrogate; called with the lock, which is released while reading. */
static int bring(stk_pool *pool, const char *name, entry **found) {
  waiter own = {NULL};
  int queued = 0, status = 0;
  for (;;) {
    entry *one = *found = find(pool, name);
    if (!one) {
      status = failed(STK_POOL_UNKNOWN, "no surrogate %s in the pool", name);
      break;
    }
    if (one->memory && !one->loading && !one->leaving) break;
    if (!one->memory) {
      if (!queued) {
        waiter **last = &pool->line;
        while (*last) last = &(*last)->next;
        *last = &own;
        queued = 1;
      }
      const int taken = pool->line == &own ? take(pool, one) : 0;
      if (taken < 0) {
        status = failed(STK_POOL_MEMORY, "no memory");
        break;
      }
      if (taken) {
        one->loading = 1; /* before leave_line wakes other threads */
        leave_line(pool, &own);
        return read_in(pool, one);
      }
    }
    pthread_cond_wait(&pool->changed, &pool->lock);
  }
  leave_line(pool, &own);
  return status;
}

/* ---- calls ---- */

static workspace *take_workspace(stk_pool *pool, int64_t size) {
  for (workspace **at = &pool->idle; *at; at = &(*at)->next)
    if ((*at)->size >= size) {
      workspace *found = *at;
      *at = found->next;
      return found;
    }
  void *made = NULL;
  if (posix_memalign(&made, ALIGN, (size_t)(size + ALIGN))) return NULL;
  ((workspace *)made)->size = size;
  return made;
}

#define A(k) array[k]
#define CASE(n, ...)                                                                              \
  case n:                                                                                         \
    return ((int (*)(const void *, int64_t, __VA_ARGS__, void *, int64_t, int32_t *))function)
#define P const void *
typedef P const *arrays_of;

/* Call generated code with weights, samples, arrays, workspace and statuses. */
static int run(void *function, const void *weights, int64_t samples, arrays_of array, int count,
               void *work, int64_t bytes, int32_t *status) {
  switch (count) {
    CASE(2, P, P)(weights, samples, A(0), A(1), work, bytes, status);
    CASE(3, P, P, P)(weights, samples, A(0), A(1), A(2), work, bytes, status);
    CASE(4, P, P, P, P)(weights, samples, A(0), A(1), A(2), A(3), work, bytes, status);
    CASE(5, P, P, P, P, P)(weights, samples, A(0), A(1), A(2), A(3), A(4), work, bytes, status);
    CASE(6, P, P, P, P, P, P)
    (weights, samples, A(0), A(1), A(2), A(3), A(4), A(5), work, bytes, status);
    CASE(7, P, P, P, P, P, P, P)
    (weights, samples, A(0), A(1), A(2), A(3), A(4), A(5), A(6), work, bytes, status);
    CASE(8, P, P, P, P, P, P, P, P)
    (weights, samples, A(0), A(1), A(2), A(3), A(4), A(5), A(6), A(7), work, bytes, status);
    CASE(9, P, P, P, P, P, P, P, P, P)
    (weights, samples, A(0), A(1), A(2), A(3), A(4), A(5), A(6), A(7), A(8), work, bytes, status);
    CASE(10, P, P, P, P, P, P, P, P, P, P)
    (weights, samples, A(0), A(1), A(2), A(3), A(4), A(5), A(6), A(7), A(8), A(9), work, bytes,
     status);
  }
  return failed(STK_POOL_ARGUMENTS, "%d arrays; 2 to %d can be called", count, MOST_ARRAYS);
}

/* The description of a function of a surrogate, or null. */
static const char *function_of(const entry *one, const char *name) {
  const char *functions = member(one->file.about, "functions"), *found;
  char own[256];
  for (int k = 0; (found = item(functions, k)); k++)
    if (text(member(found, "name"), own, sizeof own) && !strcmp(own, name)) return found;
  return NULL;
}

/* Find the code of a call and check the numbers of arrays; called with the lock. */
static int prepare(const entry *one, const char *function, int inputs, int outputs, void **code,
                   int64_t *bytes) {
  const char *about = function_of(one, function);
  char symbol[512];
  if (!about || !text(member(about, "symbol"), symbol, sizeof symbol))
    return failed(STK_POOL_UNKNOWN, "%s has no function '%s'", one->name, function);
  const int wanted[] = {items(member(about, "inputs")), items(member(about, "outputs"))};
  if (inputs != wanted[0] || outputs != wanted[1] || inputs + outputs > MOST_ARRAYS)
    return failed(STK_POOL_ARGUMENTS, "%d inputs and %d outputs; %s takes %d and %d (at most %d)",
                  inputs, outputs, one->name, wanted[0], wanted[1], MOST_ARRAYS);
  *bytes = number(member(about, "workspace_bytes"), 0);
  *code = dlsym(one->code->library, symbol);
  return *code ? 0 : failed(STK_POOL_FILE, "%s: no function %s", one->code->path, symbol);
}

int stk_pool_call(stk_pool *pool, const char *name, const char *function, int64_t samples,
                  const float *const *inputs, int number_of_inputs, float *const *outputs,
                  int number_of_outputs, int32_t *sample_status) {
  if (!pool || !name || !function || !inputs || !outputs || samples < 0)
    return failed(STK_POOL_ARGUMENTS, "stk_pool_call: a null pointer, or %lld samples",
                  (long long)samples);
  P array[MOST_ARRAYS];
  for (int k = 0; k < number_of_inputs + number_of_outputs && k < MOST_ARRAYS; k++) {
    array[k] = k < number_of_inputs ? (P)inputs[k] : (P)outputs[k - number_of_inputs];
    if (!array[k]) return failed(STK_POOL_ARGUMENTS, "%s: array %d is null", name, k);
  }
  void *code = NULL;
  int64_t bytes = 0;
  workspace *work = NULL;
  pthread_mutex_lock(&pool->lock);
  entry *one = find(pool, name);
  int status = one ? prepare(one, function, number_of_inputs, number_of_outputs, &code, &bytes)
                   : failed(STK_POOL_UNKNOWN, "no surrogate %s in the pool", name);
  if (!status && !(work = take_workspace(pool, bytes)))
    status = failed(STK_POOL_MEMORY, "no memory for a workspace of %lld bytes", (long long)bytes);
  if (!status) {
    pool->counts.calls++;
    if (one->memory && !one->loading && !one->leaving) pool->counts.hits++;
    else status = bring(pool, name, &one);
    if (!status) { /* the name may refer to another surrogate by now */
      status = prepare(one, function, number_of_inputs, number_of_outputs, &code, &bytes);
      if (!status && bytes > work->size)
        status = failed(STK_POOL_FILE, "%s was replaced meanwhile", name);
    }
  }
  if (!status) {
    use(pool, one);
    one->users++;
    pthread_mutex_unlock(&pool->lock);
    status = run(code, one->memory, samples, array, number_of_inputs + number_of_outputs,
                 (char *)work + ALIGN, bytes, sample_status);
    pthread_mutex_lock(&pool->lock);
    if (!--one->users) pthread_cond_broadcast(&pool->changed);
  }
  if (work) {
    work->next = pool->idle;
    pool->idle = work;
  }
  pthread_mutex_unlock(&pool->lock);
  return status;
}

/* Check the number of elements of an array against its description. */
static int check_size(const char *about, int64_t samples, int64_t size, const char *name) {
  const char *shape = member(about, "shape"), *own;
  int64_t wanted = 1;
  char array[256] = "";
  for (int k = 0; (own = item(shape, k)); k++) {
    const int64_t count = number(own, 0);
    wanted *= count < 0 ? samples : count; /* the sample dim */
  }
  text(member(about, "name"), array, sizeof array);
  if (size == wanted) return 0;
  if (size < 0)
    return failed(STK_POOL_ARGUMENTS, "%s: array %s has gaps: a copy of the section has none", name,
                  array);
  return failed(STK_POOL_ARGUMENTS, "%s: array %s has %lld elements, not %lld for %lld samples", name,
                array, (long long)size, (long long)wanted, (long long)samples);
}

int stk_pool_check(stk_pool *pool, const char *name, const char *function, int64_t samples,
                   const int64_t *inputs, int number_of_inputs, const int64_t *outputs,
                   int number_of_outputs) {
  if (!pool || !name || !function || !inputs || !outputs || samples < 0)
    return failed(STK_POOL_ARGUMENTS, "stk_pool_check: a null pointer, or %lld samples",
                  (long long)samples);
  void *code = NULL;
  int64_t bytes = 0;
  pthread_mutex_lock(&pool->lock);
  const entry *one = find(pool, name);
  int status = one ? prepare(one, function, number_of_inputs, number_of_outputs, &code, &bytes)
                   : failed(STK_POOL_UNKNOWN, "no surrogate %s in the pool", name);
  if (!status) {
    const char *about = function_of(one, function);
    const char *in = member(about, "inputs"), *out = member(about, "outputs");
    for (int k = 0; !status && k < number_of_inputs; k++)
      status = check_size(item(in, k), samples, inputs[k], name);
    for (int k = 0; !status && k < number_of_outputs; k++)
      status = check_size(item(out, k), samples, outputs[k], name);
  }
  pthread_mutex_unlock(&pool->lock);
  return status;
}

const char *stk_pool_about(stk_pool *pool, const char *name) {
  if (!pool || !name) return NULL;
  pthread_mutex_lock(&pool->lock);
  const entry *one = find(pool, name);
  const char *about = one ? one->file.about : NULL;
  pthread_mutex_unlock(&pool->lock);
  return about;
}

void stk_pool_statistics(stk_pool *pool, stk_pool_counts *counts) {
  pthread_mutex_lock(&pool->lock);
  *counts = pool->counts;
  counts->budget_bytes = pool->budget;
  counts->resident_bytes = pool->held;
  pthread_mutex_unlock(&pool->lock);
}
