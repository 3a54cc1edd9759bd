/* See scitoolkit_pool.h. The surrogate of least value is evicted: seconds of reading it again,
   times its frequency of use, per byte. The frequency is a decaying count of uses with a half-life
   of ten calls per surrogate. Threads that need memory receive it in the order of their requests;
   if all of it is in use, surrogates are marked for eviction, so that no further call begins.
   Memory that becomes free is kept for surrogates of the same size, and counts as held. */
#define _XOPEN_SOURCE 700
#ifdef __APPLE__
#define _DARWIN_C_SOURCE
#define st_mtim st_mtimespec
#endif
#include "scitoolkit_pool.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

enum { ALIGN = 64, PAGE = 4096, SLOTS = 1024, FORGETTING = 10 };
#define MOST_ARRAYS STK_POOL_MOST_ARRAYS
#define CODE_ABI 1   /* version of the calling convention of generated code */
#define DEEPEST 32   /* levels of a header's JSON; those of Python have seven */
#define LARGEST_HEADER (64 << 20)
#define MAGIC "STKWTS01"
#define SURPRISE 1.5 /* largest growth of the seconds of reading from one read to the next */

static _Thread_local char message[4608]; /* a path and a reason */

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

/* The character after a value of at most so many levels, or null if there is no value. */
static const char *after_levels(const char *at, int levels) {
  at = blank(at);
  if (!at || !*at) return NULL;
  if (*at == '"') {
    for (at++; *at && *at != '"'; at++)
      if (*at == '\\' && at[1]) at++;
    return *at ? at + 1 : NULL;
  }
  if (*at == '{' || *at == '[') {
    if (!levels) return NULL;
    const char close = *at == '{' ? '}' : ']';
    at = blank(at + 1);
    while (at && *at && *at != close) {
      at = blank(after_levels(at, levels - 1));
      if (at && (*at == ',' || *at == ':')) at = blank(at + 1);
      else if (at && *at != close) return NULL;
    }
    return at && *at ? at + 1 : NULL;
  }
  const char *start = at;
  while (*at && !strchr(",:]} \n\t\r", *at)) at++;
  return at > start ? at : NULL;
}

static const char *after(const char *at) { return after_levels(at, DEEPEST); }

/* The next member or item after one that ends here. */
static const char *following(const char *end) {
  const char *at = blank(end);
  return at && *at == ',' ? blank(at + 1) : at;
}

static int is_key(const char *at, const char *key) {
  const size_t length = strlen(key);
  return *at == '"' && !strncmp(at + 1, key, length) && at[length + 1] == '"';
}

/* The value of a member of an object, or null. */
static const char *member(const char *object, const char *key) {
  const char *at = blank(object);
  if (!at || *at != '{') return NULL;
  at = blank(at + 1);
  while (at && *at == '"') {
    const char *value = blank(after(at));
    if (!value || *value != ':') return NULL;
    value = blank(value + 1);
    if (is_key(at, key)) return value;
    at = following(after(value));
  }
  return NULL;
}

/* An item of an array, or null. */
static const char *item(const char *array, int place) {
  const char *at = blank(array);
  if (!at || *at != '[') return NULL;
  for (at = blank(at + 1); at && *at && *at != ']';) {
    if (!place--) return at;
    at = following(after(at));
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

/* The first member from here that is neither the units nor the box of an array. */
static const char *common(const char *at) {
  while (at && (is_key(at, "units") || is_key(at, "box"))) {
    at = blank(after(at));
    at = at && *at == ':' ? following(after(at + 1)) : NULL;
  }
  return at;
}

/* Whether two values are equal in all but units and boxes, which differ within an architecture. */
static int alike(const char *a, const char *b) {
  a = blank(a), b = blank(b);
  const char *end = after(a), *other = after(b);
  if (!end || !other || *a != *b) return 0;
  const int object = *a == '{';
  if (!object && *a != '[') return end - a == other - b && !memcmp(a, b, (size_t)(end - a));
  const char close = object ? '}' : ']';
  a = blank(a + 1), b = blank(b + 1);
  for (;;) {
    if (object) a = common(a), b = common(b);
    if (!a || !b) return 0;
    if (*a == close || *b == close) return *a == *b;
    if (object) { /* names, then values */
      if (!alike(a, b)) return 0;
      a = blank(after(a)), b = blank(after(b));
      if (*a++ != ':' || *b++ != ':') return 0;
    }
    if (!alike(a, b)) return 0;
    a = following(after(a)), b = following(after(b));
  }
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

static uint32_t crc_table[16][256];

static void make_crc_table(void) {
  for (uint32_t k = 0; k < 256; k++) {
    uint32_t value = k;
    for (int bit = 0; bit < 8; bit++) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
    crc_table[0][k] = value;
  }
  for (int later = 1; later < 16; later++)
    for (int k = 0; k < 256; k++) {
      const uint32_t value = crc_table[later - 1][k];
      crc_table[later][k] = crc_table[0][value & 255] ^ value >> 8;
    }
}

/* CRC-32 of bytes, 16 at a time. */
static uint32_t crc32_of(const unsigned char *data, int64_t size) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_crc_table);
  uint32_t out = 0xFFFFFFFFu;
  for (; size >= 16; size -= 16, data += 16) {
    uint32_t next = 0;
    for (int k = 0; k < 4; k++) next ^= crc_table[15 - k][(out >> 8 * k & 255) ^ data[k]];
    for (int k = 4; k < 16; k++) next ^= crc_table[15 - k][data[k]];
    out = next;
  }
  for (; size > 0; size--) out = crc_table[0][(out ^ *data++) & 255] ^ out >> 8;
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

static int not_open(const char *path) {
  const char *reason = errno == ENOENT ? "no such file" : strerror(errno);
  return failed(STK_POOL_FILE, "%s: %s", path, reason);
}

static int read_header(const char *path, header *into) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return not_open(path);
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

/* A function of generated code; `about` is its description. */
typedef struct {
  char name[256];
  const char *about;
  void *code;
  int inputs, outputs;
  int64_t workspace;
} function;

typedef struct shell {
  char *path;
  void *library;
  const char *about;
  function *functions;
  int number;
  struct shell *next;
} shell;

/* A description before its file was replaced; kept, as stk_pool_about may have returned it. */
typedef struct past {
  char *about;
  struct past *next;
} past;

typedef struct entry {
  char *name, *path;
  header file;
  shell *code;
  int64_t size;
  void *memory;
  int users;
  int loading;  /* a thread is reading it */
  int leaving;  /* to be evicted: no further call may begin */
  int awaited;  /* prefetched and not called yet */
  int verified; /* its checksum was right */
  int removed;
  double seconds, uses;
  int64_t last;
  past *before;
  struct entry *next;  /* in its slot */
  struct entry *newer; /* in memory, in the order of taking it */
} entry;

typedef struct waiter {
  struct waiter *next;
} waiter; /* a thread that waits for memory */

/* Memory that is not in use: of weights, or a workspace, whose bytes follow at the next multiple of
   ALIGN. */
typedef struct block {
  int64_t size;
  struct block *next;
} block;

typedef struct wish {
  struct wish *next;
  char name[];
} wish; /* a surrogate to be read in advance */

struct stk_pool {
  pthread_mutex_t lock;
  /* Two conditions, so that a call that ends does not wake a reader without wishes. */
  pthread_cond_t changed, wished;
  entry *slots[SLOTS], *resident;
  shell *shells;
  block *workspaces, *kept;
  waiter *line;
  wish *ahead;
  pthread_t reader;
  int reading, ending;
  pid_t owner;
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
  pthread_cond_init(&made->wished, NULL);
  made->budget = budget;
  made->owner = getpid();
  *pool = made;
  return 0;
}

/* Take the lock. In the child of a fork there is neither a reader nor a thread that waits. */
static void enter(stk_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  if (pool->owner == getpid()) return;
  pool->owner = getpid();
  pthread_cond_init(&pool->changed, NULL);
  pthread_cond_init(&pool->wished, NULL);
  pool->line = NULL;
  pool->reading = 0;
}

static void free_entry(entry *gone) {
  while (gone->before) {
    past *one = gone->before;
    gone->before = one->next;
    free(one->about);
    free(one);
  }
  free(gone->memory);
  free(gone->file.about);
  free(gone->name);
  free(gone->path);
  free(gone);
}

static void free_blocks(block *first) {
  while (first) {
    block *gone = first;
    first = gone->next;
    free(gone);
  }
}

static void free_wishes(wish *first) {
  while (first) {
    wish *gone = first;
    first = gone->next;
    free(gone);
  }
}

static void free_shell(shell *gone) {
  if (gone->library) dlclose(gone->library);
  free(gone->functions);
  free(gone->path);
  free(gone);
}

void stk_pool_free(stk_pool *pool) {
  if (!pool) return;
  /* In the child of a fork that did not use it: the threads of the parent are not there. */
  const int own = pool->owner == getpid();
  if (own && pool->reading) {
    pthread_mutex_lock(&pool->lock);
    pool->ending = 1;
    pthread_cond_broadcast(&pool->wished);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    pthread_join(pool->reader, NULL);
  }
  free_wishes(pool->ahead);
  for (int k = 0; k < SLOTS; k++)
    while (pool->slots[k]) {
      entry *gone = pool->slots[k];
      pool->slots[k] = gone->next;
      free_entry(gone);
    }
  while (pool->shells) {
    shell *gone = pool->shells;
    pool->shells = gone->next;
    free_shell(gone);
  }
  free_blocks(pool->workspaces);
  free_blocks(pool->kept);
  if (own) {
    pthread_cond_destroy(&pool->changed);
    pthread_cond_destroy(&pool->wished);
    pthread_mutex_destroy(&pool->lock);
  }
  free(pool);
}

static entry **slot_of(stk_pool *pool, const char *name) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return &pool->slots[(hash ^ hash >> 16) % SLOTS];
}

static entry *find(stk_pool *pool, const char *name) {
  for (entry *one = *slot_of(pool, name); one; one = one->next)
    if (!one->removed && !strcmp(one->name, name)) return one;
  return NULL;
}

static int unknown(const char *name) {
  return failed(STK_POOL_UNKNOWN, "no surrogate %s in the pool", name);
}

/* Read the functions of loaded code from its description; returns 0 if it is not one. */
static int list_functions(shell *of) {
  const char *(*describe)(void) = (const char *(*)(void))dlsym(of->library, "shell_about");
  if (!describe) return 0;
  of->about = describe();
  const char *all = member(of->about, "functions");
  of->number = items(all);
  of->functions = calloc((size_t)of->number + 1, sizeof *of->functions);
  if (!of->functions) return 0;
  for (int k = 0; k < of->number; k++) {
    function *one = &of->functions[k];
    char symbol[512];
    one->about = item(all, k);
    one->inputs = items(member(one->about, "inputs"));
    one->outputs = items(member(one->about, "outputs"));
    one->workspace = number(member(one->about, "workspace_bytes"), -1);
    if (!text(member(one->about, "name"), one->name, sizeof one->name) || one->workspace < 0 ||
        !text(member(one->about, "symbol"), symbol, sizeof symbol) ||
        !(one->code = dlsym(of->library, symbol)))
      return 0;
  }
  return 1;
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
  shell *made = calloc(1, sizeof *made);
  if (!made) {
    failed(STK_POOL_MEMORY, "no memory");
    free(whole);
    return NULL;
  }
  made->path = whole;
  made->library = dlopen(whole, RTLD_NOW | RTLD_LOCAL);
  int (*check)(int, int64_t) = NULL;
  if (!made->library) failed(STK_POOL_FILE, "%s", dlerror());
  else if (!(check = (int (*)(int, int64_t))dlsym(made->library, "shell_check")))
    failed(STK_POOL_FILE, "%s: not the code of surrogates", whole);
  else {
    const int status = check(CODE_ABI, number(member(file->about, "checksum"), 0));
    if (!status && list_functions(made)) {
      made->next = pool->shells;
      return pool->shells = made;
    }
    failed(STK_POOL_FILE, "%s: %s", whole,
           status == 6 ? "compiled for another processor" : "not the code of these weights");
  }
  free_shell(made);
  return NULL;
}

/* Whether the arrays of a file are those of its code. */
static int fits(const header *file, const shell *code) {
  return alike(file->about, code->about) &&
         number(member(code->about, "weights_bytes"), -1) == file->bytes;
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
  enter(pool);
  if (made->size > pool->budget)
    status = failed(STK_POOL_TOO_LARGE, "%s: %lld bytes of weights, more than the budget of %lld",
                    path, (long long)file.bytes, (long long)pool->budget);
  else if (find(pool, name))
    status = failed(STK_POOL_TAKEN, "%s is in the pool already: remove it first", name);
  else if (!(made->code = code_of(pool, path, &file)))
    status = STK_POOL_FILE;
  else if (!fits(&file, made->code))
    status = failed(STK_POOL_FILE, "%s: its arrays do not match %s", path, made->code->path);
  if (!status) {
    entry **slot = slot_of(pool, name);
    made->next = *slot;
    *slot = made;
    pool->counts.models++;
  }
  pthread_mutex_unlock(&pool->lock);
  if (status) free_entry(made);
  return status;
}

/* Keep the memory of a surrogate that is not in use for another one. */
static void release(stk_pool *pool, entry *one) {
  if (one->memory) {
    entry **at = &pool->resident;
    while (*at != one) at = &(*at)->newer;
    *at = one->newer;
    block *freed = one->memory;
    *freed = (block){one->size, pool->kept};
    pool->kept = freed;
  }
  one->memory = NULL;
  one->leaving = one->awaited = 0;
}

int stk_pool_remove(stk_pool *pool, const char *name) {
  if (!pool || !name) return failed(STK_POOL_ARGUMENTS, "stk_pool_remove: a null pointer");
  enter(pool);
  entry *gone = find(pool, name);
  if (!gone) {
    pthread_mutex_unlock(&pool->lock);
    return unknown(name);
  }
  gone->removed = 1;
  pool->counts.models--;
  pthread_cond_broadcast(&pool->changed);
  while (gone->users || gone->loading) pthread_cond_wait(&pool->changed, &pool->lock);
  release(pool, gone);
  entry **at = slot_of(pool, name);
  while (*at != gone) at = &(*at)->next;
  *at = gone->next;
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
  one->awaited = 0;
}

/* Mark surrogates of least value until their sizes suffice, including those already marked. */
static void mark(stk_pool *pool, int64_t size) {
  int64_t missing = size - (pool->budget - pool->held);
  for (entry *one = pool->resident; one; one = one->newer)
    if (one->leaving) missing -= one->size;
  while (missing > 0) {
    entry *least = NULL;
    for (entry *one = pool->resident; one; one = one->newer)
      if (!one->leaving && (!least || worth(pool, one) < worth(pool, least))) least = one;
    if (!least) return;
    least->leaving = 1;
    missing -= least->size;
  }
}

/* Whether one leaves before another: those marked, then those called since they were read. */
static int leaves_before(const stk_pool *pool, const entry *one, const entry *other) {
  if (one->leaving != other->leaving) return one->leaving;
  if (one->awaited != other->awaited) return other->awaited;
  return worth(pool, one) < worth(pool, other);
}

/* Kept memory of a size, or null. */
static void *kept_of(stk_pool *pool, int64_t size) {
  for (block **at = &pool->kept; *at; at = &(*at)->next)
    if ((*at)->size == size) {
      block *same = *at;
      *at = same->next;
      return same;
    }
  return NULL;
}

/* Find memory for a surrogate; returns 0 if calls in progress must end first, -1 on failure.
   ahead: for prefetching: mark nothing, and do not evict what was prefetched. */
static int take(stk_pool *pool, entry *target, int ahead) {
  void *memory;
  while (!(memory = kept_of(pool, target->size)) && pool->held + target->size > pool->budget) {
    if (pool->kept) { /* of another size */
      block *gone = pool->kept;
      pool->kept = gone->next;
      pool->held -= gone->size;
      free(gone);
      continue;
    }
    entry *least = NULL;
    for (entry *one = pool->resident; one; one = one->newer)
      if (!one->users && !one->loading && !(ahead && one->awaited) &&
          (!least || leaves_before(pool, one, least)))
        least = one;
    if (!least) {
      if (!ahead) mark(pool, target->size);
      return 0;
    }
    pool->counts.evictions++;
    release(pool, least);
  }
  if (!memory) {
    if (posix_memalign(&memory, ALIGN, (size_t)target->size)) return -1;
    pool->held += target->size;
  }
  target->memory = memory;
  target->newer = NULL;
  entry **last = &pool->resident;
  while (*last) last = &(*last)->newer;
  *last = target;
  return 1;
}

/* Read the weights; called without the lock.
   file: the header; afterwards that of a compatible file which replaced it.
   verified: whether its checksum was right before. */
static int read_weights(const entry *one, header *file, int verified) {
  for (int tries = 0;; tries++) {
    const int opened = open(one->path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    if (opened < 0) return not_open(one->path);
    int status = fstat(opened, &found);
    const identity now = identity_of(&found);
    const int current = !status && same(&now, &file->at);
    if (current) status = read_bytes(opened, one->memory, file->bytes, file->start);
    close(opened);
    if (status) return failed(STK_POOL_FILE, "%s: cannot be read", one->path);
    if (current) break;
    if (tries == 3) return failed(STK_POOL_FILE, "%s: was replaced while it was read", one->path);
    header other = {0};
    status = read_header(one->path, &other);
    if (status) return status;
    if (file->about != one->file.about) free(file->about);
    *file = other;
    verified = 0;
    if (strcmp(other.key, one->file.key) || !fits(&other, one->code))
      return failed(STK_POOL_FILE, "%s: was replaced by a surrogate with other arrays or code",
                    one->path);
  }
  if (!verified && crc32_of(one->memory, file->bytes) != file->crc)
    return failed(STK_POOL_FILE, "%s: the weights in it are damaged", one->path);
  return 0;
}

/* Keep the header of a file that was read; called with the lock. */
static void accept(entry *one, header *file) {
  char *before = one->file.about;
  if (file->about != before && !strcmp(file->about, before)) {
    free(file->about);
    file->about = before;
  }
  one->file = *file;
  one->verified = 1;
  if (file->about == before) return;
  past *kept = malloc(sizeof *kept);
  if (!kept) return; /* rather lost than freed: a caller may have it */
  *kept = (past){before, one->before};
  one->before = kept;
}

/* Read a surrogate marked as loading; called with the lock, which is released while reading. */
static int read_in(stk_pool *pool, entry *one) {
  struct timespec a, b;
  header file = one->file;
  const int verified = one->verified;
  pthread_mutex_unlock(&pool->lock);
  clock_gettime(CLOCK_MONOTONIC, &a);
  const int status = read_weights(one, &file, verified);
  clock_gettime(CLOCK_MONOTONIC, &b);
  pthread_mutex_lock(&pool->lock);
  one->loading = 0;
  pthread_cond_broadcast(&pool->changed);
  if (status) {
    if (file.about != one->file.about) free(file.about);
    pool->counts.failures++;
    release(pool, one);
    return status;
  }
  accept(one, &file);
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
        for (entry *one = pool->resident; one; one = one->newer) one->leaving = 0;
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
      status = unknown(name);
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
      const int taken = pool->line == &own ? take(pool, one, 0) : 0;
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

/* ---- reading in advance ---- */

static void forget_first(stk_pool *pool) {
  wish *gone = pool->ahead;
  pool->ahead = gone->next;
  free(gone);
}

static void *read_ahead(void *given) {
  stk_pool *pool = given;
  pthread_mutex_lock(&pool->lock);
  while (!pool->ending) {
    entry *one = pool->ahead ? find(pool, pool->ahead->name) : NULL;
    if (!pool->ahead) pthread_cond_wait(&pool->wished, &pool->lock);
    else if (!one || one->memory) forget_first(pool);
    else if (!pool->line && take(pool, one, 1) > 0) {
      forget_first(pool);
      one->loading = one->awaited = 1;
      read_in(pool, one); /* after a failure the next call reads it again and tells the reason */
    } else pthread_cond_wait(&pool->changed, &pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

/* Start the reader, which leaves signals to the threads of the program; called with the lock. */
static int start_reader(stk_pool *pool) {
  sigset_t all, own;
  if (pool->reading) return 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &own);
  pool->reading = !pthread_create(&pool->reader, NULL, read_ahead, pool);
  pthread_sigmask(SIG_SETMASK, &own, NULL);
  return pool->reading ? 0 : failed(STK_POOL_MEMORY, "no thread to read in advance");
}

int stk_pool_prefetch(stk_pool *pool, const char *const *names, int number_of_names) {
  if (!pool || number_of_names < 0 || (number_of_names && !names))
    return failed(STK_POOL_ARGUMENTS, "stk_pool_prefetch: a null pointer, or %d names",
                  number_of_names);
  wish *first = NULL, **last = &first;
  int status = 0;
  enter(pool);
  for (int k = 0; !status && k < number_of_names; k++) {
    const size_t bytes = names[k] ? strlen(names[k]) + 1 : 0;
    wish *one = bytes && find(pool, names[k]) ? malloc(sizeof *one + bytes) : NULL;
    if (!bytes) status = failed(STK_POOL_ARGUMENTS, "stk_pool_prefetch: name %d is null", k);
    else if (!find(pool, names[k])) status = unknown(names[k]);
    else if (!one) status = failed(STK_POOL_MEMORY, "no memory");
    else {
      memcpy(one->name, names[k], bytes);
      one->next = NULL;
      *last = one;
      last = &one->next;
    }
  }
  if (!status && number_of_names) status = start_reader(pool);
  if (status) free_wishes(first);
  else if (!number_of_names) {
    free_wishes(pool->ahead);
    pool->ahead = NULL;
  } else {
    wish **end = &pool->ahead;
    while (*end) end = &(*end)->next;
    *end = first;
    pthread_cond_broadcast(&pool->wished);
    pthread_cond_broadcast(&pool->changed);
  }
  pthread_mutex_unlock(&pool->lock);
  return status;
}

/* ---- calls ---- */

static block *take_workspace(stk_pool *pool, int64_t size) {
  for (block **at = &pool->workspaces; *at; at = &(*at)->next)
    if ((*at)->size >= size) {
      block *work = *at;
      *at = work->next;
      return work;
    }
  void *made = NULL;
  if (posix_memalign(&made, ALIGN, (size_t)(size + ALIGN))) return NULL;
  ((block *)made)->size = size;
  return made;
}

/* Lists of 8 a + b items: EACH_b has the last b, EIGHTS_a those before. */
typedef const void *P;
#define TYPE(k) P
#define ARRAY(k) array[k]
#define EACH_1(x, k) x(k)
#define EACH_2(x, k) EACH_1(x, k), x(k + 1)
#define EACH_3(x, k) EACH_2(x, k), x(k + 2)
#define EACH_4(x, k) EACH_3(x, k), x(k + 3)
#define EACH_5(x, k) EACH_4(x, k), x(k + 4)
#define EACH_6(x, k) EACH_5(x, k), x(k + 5)
#define EACH_7(x, k) EACH_6(x, k), x(k + 6)
#define EACH_8(x, k) EACH_7(x, k), x(k + 7)
#define EIGHTS_0(x)
#define EIGHTS_1(x) EACH_8(x, 0),
#define EIGHTS_2(x) EIGHTS_1(x) EACH_8(x, 8),
#define EIGHTS_3(x) EIGHTS_2(x) EACH_8(x, 16),
#define EIGHTS_4(x) EIGHTS_3(x) EACH_8(x, 24),
#define EIGHTS_5(x) EIGHTS_4(x) EACH_8(x, 32),
#define EIGHTS_6(x) EIGHTS_5(x) EACH_8(x, 40),
#define EIGHTS_7(x) EIGHTS_6(x) EACH_8(x, 48),
#define LIST(a, b, x) EIGHTS_##a(x) EACH_##b(x, 8 * a)
#define CASE(a, b)                                                                                \
  case 8 * a + b:                                                                                 \
    return ((int (*)(P, int64_t, LIST(a, b, TYPE), void *, int64_t, int32_t *))code)(             \
        weights, samples, LIST(a, b, ARRAY), work, bytes, status);
#define CASES(a)                                                                                  \
  CASE(a, 1) CASE(a, 2) CASE(a, 3) CASE(a, 4) CASE(a, 5) CASE(a, 6) CASE(a, 7) CASE(a, 8)

/* Call generated code with weights, samples, arrays, workspace and statuses. */
static int run(void *code, P weights, int64_t samples, const P *array, int count, void *work,
               int64_t bytes, int32_t *status) {
  switch (count) {
    CASES(0)
    CASES(1)
    CASES(2)
    CASES(3)
    CASES(4)
    CASES(5)
    CASES(6)
    CASES(7)
  }
  return failed(STK_POOL_ARGUMENTS, "%d arrays; 1 to %d can be called", count, MOST_ARRAYS);
}

/* Find a function and check the numbers of its arrays; called with the lock. */
static int prepare(const entry *one, const char *name, int inputs, int outputs,
                   const function **found) {
  const function *of = one->code->functions, *end = of + one->code->number;
  while (of < end && strcmp(of->name, name)) of++;
  if (of == end) return failed(STK_POOL_UNKNOWN, "%s has no function '%s'", one->name, name);
  if (inputs != of->inputs || outputs != of->outputs || inputs + outputs > MOST_ARRAYS)
    return failed(STK_POOL_ARGUMENTS, "%d inputs and %d outputs; %s takes %d and %d (at most %d)",
                  inputs, outputs, one->name, of->inputs, of->outputs, MOST_ARRAYS);
  *found = of;
  return 0;
}

int stk_pool_call(stk_pool *pool, const char *name, const char *function_name, int64_t samples,
                  const float *const *inputs, int number_of_inputs, float *const *outputs,
                  int number_of_outputs, int32_t *sample_status) {
  if (!pool || !name || !function_name || !inputs || !outputs || samples < 0)
    return failed(STK_POOL_ARGUMENTS, "stk_pool_call: a null pointer, or %lld samples",
                  (long long)samples);
  P array[MOST_ARRAYS];
  for (int k = 0; k < number_of_inputs + number_of_outputs && k < MOST_ARRAYS; k++) {
    array[k] = k < number_of_inputs ? (P)inputs[k] : (P)outputs[k - number_of_inputs];
    if (!array[k]) return failed(STK_POOL_ARGUMENTS, "%s: array %d is null", name, k);
  }
  const function *of = NULL;
  block *work = NULL;
  enter(pool);
  entry *one = find(pool, name);
  int status = one ? prepare(one, function_name, number_of_inputs, number_of_outputs, &of)
                   : unknown(name);
  if (!status) {
    pool->counts.calls++;
    if (one->memory && !one->loading && !one->leaving) pool->counts.hits++;
    else status = bring(pool, name, &one);
    if (!status) /* the name may refer to another surrogate by now */
      status = prepare(one, function_name, number_of_inputs, number_of_outputs, &of);
  }
  if (!status && !(work = take_workspace(pool, of->workspace)))
    status = failed(STK_POOL_MEMORY, "no memory for a workspace of %lld bytes",
                    (long long)of->workspace);
  if (!status) {
    use(pool, one);
    one->users++;
    pthread_mutex_unlock(&pool->lock);
    status = run(of->code, one->memory, samples, array, number_of_inputs + number_of_outputs,
                 (char *)work + ALIGN, of->workspace, sample_status);
    pthread_mutex_lock(&pool->lock);
    if (!--one->users) pthread_cond_broadcast(&pool->changed);
    work->next = pool->workspaces;
    pool->workspaces = work;
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

int stk_pool_check(stk_pool *pool, const char *name, const char *function_name, int64_t samples,
                   const int64_t *inputs, int number_of_inputs, const int64_t *outputs,
                   int number_of_outputs) {
  if (!pool || !name || !function_name || !inputs || !outputs || samples < 0)
    return failed(STK_POOL_ARGUMENTS, "stk_pool_check: a null pointer, or %lld samples",
                  (long long)samples);
  const function *of = NULL;
  enter(pool);
  const entry *one = find(pool, name);
  int status = one ? prepare(one, function_name, number_of_inputs, number_of_outputs, &of)
                   : unknown(name);
  for (int k = 0; !status && k < number_of_inputs; k++)
    status = check_size(item(member(of->about, "inputs"), k), samples, inputs[k], name);
  for (int k = 0; !status && k < number_of_outputs; k++)
    status = check_size(item(member(of->about, "outputs"), k), samples, outputs[k], name);
  pthread_mutex_unlock(&pool->lock);
  return status;
}

const char *stk_pool_about(stk_pool *pool, const char *name) {
  if (!pool || !name) return NULL;
  enter(pool);
  const entry *one = find(pool, name);
  const char *about = one ? one->file.about : NULL;
  pthread_mutex_unlock(&pool->lock);
  return about;
}

void stk_pool_statistics(stk_pool *pool, stk_pool_counts *counts) {
  enter(pool);
  *counts = pool->counts;
  counts->budget_bytes = pool->budget;
  counts->held_bytes = pool->held;
  counts->resident_bytes = 0;
  for (const entry *one = pool->resident; one; one = one->newer)
    counts->resident_bytes += one->size;
  pthread_mutex_unlock(&pool->lock);
}
