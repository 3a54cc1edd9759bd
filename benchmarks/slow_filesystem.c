/* A slow parallel file system, for any program: cc -shared -fPIC -O2 slow_filesystem.c -o slow.so -ldl
 *
 * LD_PRELOAD it. Reads of files below $SLOW_ROOT then take $SLOW_LATENCY seconds a request, which
 * overlap, and a transfer of bytes / $SLOW_BANDWIDTH seconds, which do not: all processes and
 * threads share one line. Requests and bytes are counted. State lies in the file $SLOW_STATE, three
 * int64: requests, bytes, time in ns (CLOCK_MONOTONIC) until which the line is taken.
 * Reads through mmap and io_uring are not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct state {
    int64_t requests, bytes, busy_until;
};

static struct state *state;
static const char *root;
static double latency, bandwidth;

static double number(const char *name)
{
    const char *text = getenv(name);
    return text ? atof(text) : 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("SLOW_STATE");
    root = getenv("SLOW_ROOT");
    latency = number("SLOW_LATENCY");
    bandwidth = number("SLOW_BANDWIDTH");
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0)
        return;
    if (ftruncate(fd, sizeof *state) == 0) {
        void *memory = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        state = memory == MAP_FAILED ? NULL : memory;
    }
    close(fd);
}

static int is_slow(int fd)
{
    char link[48], target[1024];
    if (!state || !root)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0)
        return 0;
    target[length] = 0;
    return strncmp(target, root, strlen(root)) == 0;
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void wait_until(int64_t end)
{
    struct timespec time = {end / 1000000000, end % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        ;
}

static void charge(int64_t bytes)
{
    __atomic_add_fetch(&state->requests, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&state->bytes, bytes, __ATOMIC_RELAXED);
    int64_t transfer = bandwidth > 0 ? (int64_t)(1e9 * bytes / bandwidth) : 0;
    int64_t taken = __atomic_load_n(&state->busy_until, __ATOMIC_RELAXED), begin, moment = now();
    do {
        begin = taken > moment ? taken : moment;
    } while (!__atomic_compare_exchange_n(&state->busy_until, &taken, begin + transfer, 0,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    wait_until(begin + transfer + (int64_t)(1e9 * latency));
}

/* Each reader calls the library's own function of its name, then waits as long as it should take. */
#define READER(name, parameters, arguments)                      \
    ssize_t name parameters                                      \
    {                                                            \
        static ssize_t(*library) parameters;                     \
        if (!library)                                            \
            library = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name); \
        ssize_t count = library arguments;                       \
        if (count >= 0 && is_slow(fd))                           \
            charge(count);                                       \
        return count;                                            \
    }

READER(read, (int fd, void *to, size_t size), (fd, to, size))
READER(pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at))
READER(pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at))
READER(readv, (int fd, const struct iovec *to, int parts), (fd, to, parts))
READER(preadv, (int fd, const struct iovec *to, int parts, off_t at), (fd, to, parts, at))
READER(preadv64, (int fd, const struct iovec *to, int parts, off64_t at), (fd, to, parts, at))
READER(preadv2, (int fd, const struct iovec *to, int parts, off_t at, int flags),
       (fd, to, parts, at, flags))
READER(preadv64v2, (int fd, const struct iovec *to, int parts, off64_t at, int flags),
       (fd, to, parts, at, flags))
