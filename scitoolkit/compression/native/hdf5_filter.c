/* HDF5 filter, built without HDF5's headers and not linked to an HDF5 library.
 *
 * A process may have several HDF5 libraries (the wheels of h5py and netCDF4 each contain one), whose
 * identifiers are not interchangeable. Callbacks therefore look up the functions that they call in
 * the CALLING library, found through the return address, at every call.
 */
#include <dlfcn.h>
#include <stddef.h>

typedef int64_t hid_t;
typedef unsigned long long hsize_t;
enum { FILTER_ID = 33793, REVERSE = 0x100, FLOAT_CLASS = 1, LITTLE = 0, BIG = 1, USER_FILL = 2 };
/* PASSED: the only parameter of datasets of other types, whose chunks pass unchanged. */
enum { PASSED = 0x53434b00 };

static void *caller_symbol(void *address, const char *name) {
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return NULL;
    void *handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) handle = dlopen(NULL, RTLD_LAZY);  /* HDF5 linked into the executable */
    if (!handle) return NULL;
    void *found = dlsym(handle, name);
    dlclose(handle);
    return found;
}
static void complain(void *caller, const char *what) {
    int (*push)(hid_t, const char *, const char *, unsigned, hid_t, hid_t, hid_t, const char *, ...)
        = caller_symbol(caller, "H5Epush2");
    const hid_t *cls = caller_symbol(caller, "H5E_ERR_CLS_g");
    const hid_t *major = caller_symbol(caller, "H5E_PLINE_g");
    const hid_t *minor = caller_symbol(caller, "H5E_CANTFILTER_g");
    if (push && cls && major && minor)
        push(0, "scitoolkit", "filter", 0, *cls, *major, *minor, "scitoolkit filter: %s", what);
}

static int takes_type(void *caller, hid_t type) {
    int (*get_class)(hid_t) = caller_symbol(caller, "H5Tget_class");
    size_t (*get_size)(hid_t) = caller_symbol(caller, "H5Tget_size");
    int (*get_order)(hid_t) = caller_symbol(caller, "H5Tget_order");
    if (!get_class || !get_size || !get_order || get_class(type) != FLOAT_CLASS) return 0;
    const int order = get_order(type);
    return (get_size(type) == 4 || get_size(type) == 8) && (order == LITTLE || order == BIG);
}
/* Read the parameters of a dataset; return their number, or -1. */
static int parameters_of(void *caller, hid_t dcpl, unsigned *flags, unsigned *words) {
    int (*get_filter)(hid_t, int, unsigned *, size_t *, unsigned *, size_t, char *, unsigned *)
        = caller_symbol(caller, "H5Pget_filter_by_id2");
    unsigned config;
    size_t num = MOST_WORDS;
    if (!get_filter || get_filter(dcpl, FILTER_ID, flags, &num, words, 0, NULL, &config) < 0)
        return -1;
    return num > MOST_WORDS ? -1 : (int)num;
}
/* NCO copies the filter of one variable to all others, of any type, with one parameter instead of
 * ours. No bound is known then: floats are coded losslessly, and other types pass unchanged. */
static int can_apply(hid_t dcpl, hid_t type, hid_t space) {
    void *caller = __builtin_return_address(0);
    unsigned flags = 0, words[MOST_WORDS];
    (void)space;
    return takes_type(caller, type) || parameters_of(caller, dcpl, &flags, words) == 1;
}

/* Write type, bound, fill value and the chunk's extents into the filter's parameters, which contain
 * all that reading requires. h5py and netCDF set filters as optional, for which HDF5 ignores the
 * result of can_apply, so all conditions are checked here again. */
static int set_local(hid_t dcpl, hid_t type, hid_t space) {
    void *caller = __builtin_return_address(0);
    int (*modify)(hid_t, int, unsigned, size_t, const unsigned *)
        = caller_symbol(caller, "H5Pmodify_filter");
    int (*num_dims)(hid_t) = caller_symbol(caller, "H5Sget_simple_extent_ndims");
    int (*get_dims)(hid_t, hsize_t *, hsize_t *) = caller_symbol(caller, "H5Sget_simple_extent_dims");
    size_t (*get_size)(hid_t) = caller_symbol(caller, "H5Tget_size");
    int (*get_order)(hid_t) = caller_symbol(caller, "H5Tget_order");
    int (*fill_state)(hid_t, int *) = caller_symbol(caller, "H5Pfill_value_defined");
    int (*get_fill)(hid_t, hid_t, void *) = caller_symbol(caller, "H5Pget_fill_value");
    unsigned flags = 0, given[MOST_WORDS] = {0}, words[MOST_WORDS] = {0};
    const int num = parameters_of(caller, dcpl, &flags, given);
    if (!modify || num < 0) return -1;
    if (!takes_type(caller, type)) {
        words[0] = PASSED;
        if (num == 1) return modify(dcpl, FILTER_ID, flags, 1, words);
        complain(caller, "only float32 and float64 can be compressed");
        return -1;
    }
    if (!num_dims || !get_dims) return -1;
    /* h5repack and nccopy pass the parameters written here. */
    const unsigned lossless[2] = {0, 0};
    const int extended = num >= FIXED_WORDS && given[0] == EXTENDED;
    const unsigned *bound = extended || (num > FIXED_WORDS && given[0] == PARAMETERS) ? given + 2
        : num == 1 ? lossless : given;
    if (num != 2 && bound == given) {
        complain(caller, "give the absolute bound as one double in two words, low first");
        return -1;
    }
    const int rank = num_dims(space);
    hsize_t dims[MAX_RANK];
    if (rank < 1 || rank > MAX_RANK || get_dims(space, dims, NULL) < 0) {
        complain(caller, "a chunk must have 1 to 32 dimensions");
        return -1;
    }
    /* The tail of extended parameters follows the extents, of which a creator gives none. */
    const size_t from = extended ? FIXED_WORDS + (size_t)given[6] : 0;
    const size_t tail = from && from <= (size_t)num ? (size_t)num - from : 0;
    if (extended && (given[6] > MAX_RANK || from > (size_t)num)) {
        complain(caller, "the parameters are damaged");
        return -1;
    }
    words[0] = extended ? EXTENDED : PARAMETERS;
    words[1] = (get_size(type) == 8 ? IS_DOUBLE : 0) | (get_order(type) == BIG ? IS_BIG : 0);
    words[2] = bound[0];
    words[3] = bound[1];
    int state = 0;
    uint8_t fill[8] = {0};
    if (fill_state && get_fill && fill_state(dcpl, &state) >= 0 && state == USER_FILL &&
        get_fill(dcpl, type, fill) >= 0) {
        uint64_t raw = 0;
        const int size = (int)get_size(type), big = get_order(type) == BIG;
        for (int i = 0; i < size; i++) raw |= (uint64_t)fill[big ? size - 1 - i : i] << (8 * i);
        words[1] |= HAS_FILL;
        words[4] = (unsigned)raw;
        words[5] = (unsigned)(raw >> 32);
    }
    /* nccopy passes the parameters, but sets no fill value. */
    const int passed = num > FIXED_WORDS && (extended || given[0] == PARAMETERS);
    if (passed && !(words[1] & HAS_FILL) && given[1] & HAS_FILL &&
        !((words[1] ^ given[1]) & IS_DOUBLE)) {
        words[1] |= HAS_FILL;
        words[4] = given[4];
        words[5] = given[5];
    }
    words[6] = (unsigned)rank;
    for (int i = 0; i < rank; i++) {
        if (dims[i] > 0xffffffffu) { complain(caller, "a chunk is too large"); return -1; }
        words[FIXED_WORDS + i] = (unsigned)dims[i];
    }
    chunk c;
    const size_t fixed = FIXED_WORDS + (size_t)rank;
    if (fixed + tail > MOST_WORDS) {
        complain(caller, "more than 256 parameters: leave out the enhancer");
        return -1;
    }
    if (tail) memcpy(words + fixed, given + from, tail * sizeof *words);
    if (!read_parameters(&c, words, fixed + tail)) {
        complain(caller, "the bound must be a positive number or 0, a chunk below 2^31 values, the "
                 "limits of an enhancer must rise");
        return -1;
    }
    return modify(dcpl, FILTER_ID, flags, fixed + tail, words);
}

/* Filter in both directions; on failure return 0 and leave *buf unchanged. Encoding fails only if
 * memory is exhausted. */
static size_t filter(unsigned flags, size_t num, const unsigned words[], size_t nbytes,
                     size_t *buf_size, void **buf) {
    void *caller = __builtin_return_address(0);
    void *(*allocate)(size_t, int) = caller_symbol(caller, "H5allocate_memory");
    int (*release)(void *) = caller_symbol(caller, "H5free_memory");
    chunk c;
    if (num == 1 && words[0] == PASSED) return nbytes;
    if (!read_parameters(&c, words, num)) {
        complain(caller, "the filter's parameters are damaged, or limits of its enhancer do not rise");
        return 0;
    }
    const int64_t whole = c.count * c.size, reading = flags & REVERSE;
    const int64_t room = reading ? whole : sck_chunk_capacity(whole);
    if (!reading && (int64_t)nbytes != whole) {
        complain(caller, "the size of a chunk does not match its parameters");
        return 0;
    }
    uint8_t *out = malloc((size_t)room);
    const int64_t used = !out ? SCK_MEMORY
        : reading ? sck_chunk_decode(words, num, *buf, (int64_t)nbytes, out, whole)
                  : sck_chunk_encode(words, num, *buf, whole, out, room);
    const size_t made = reading ? (size_t)whole : (size_t)used;
    void *taken = used < 0 ? NULL : allocate && release ? allocate(made, 0) : malloc(made);
    if (!taken) {
        complain(caller, used == SCK_DAMAGED ? "a chunk is damaged" : "out of memory");
        free(out);
        return 0;
    }
    memcpy(taken, out, made);
    free(out);
    if (allocate && release) release(*buf);
    else free(*buf);
    *buf = taken;
    *buf_size = made;
    return made;
}

typedef struct {
    int version, id;
    unsigned encoder_present, decoder_present;
    const char *name;
    int (*can_apply)(hid_t, hid_t, hid_t);
    int (*set_local)(hid_t, hid_t, hid_t);
    size_t (*filter)(unsigned, size_t, const unsigned *, size_t, size_t *, void **);
} filter_class;
static const filter_class CLASS = {1, FILTER_ID, 1, 1, "scitoolkit: interpolation within a bound",
                                   can_apply, set_local, filter};
__attribute__((visibility("default"))) int H5PLget_plugin_type(void) { return 0; }
__attribute__((visibility("default"))) const void *H5PLget_plugin_info(void) { return &CLASS; }
