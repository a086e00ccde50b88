/* A library that is loaded before all others (LD_PRELOAD), counts a program's calls, and fails the n-th.
 *
 * It stands where the kernel and the allocator do, so no layer of the program is left out. FAULTS_STATE
 * is a file of a `struct state`, mapped and shared: it says what to fail, and has the counts, also when
 * the program was aborted. Counted are calls about files below FAULTS_FOLDER, or allocations.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum target { FILES, SPACE, PARTS, MEMORY };

struct state {
    /* What to fail: a kind of call, the first (from 1; 0 for none), the last, with which error. */
    uint64_t target, first, last, error;
    /* Allocations of fewer bytes are not counted. */
    uint64_t bytes_min;
    /* Whether calls are counted: from the start, or from `faults_begin`. */
    _Atomic uint64_t counts;
    _Atomic uint64_t calls, faults;
    /* The call that failed first, and its file. */
    char what[448];
};

static struct state *state;
static const char *folder;
static size_t folder_length;

#define REAL(name) ({ \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    real; })

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("FAULTS_STATE");
    folder = getenv("FAULTS_FOLDER");
    if (!path || !folder) return;
    folder_length = strlen(folder);
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    void *map = (void *)syscall(SYS_mmap, 0, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (map != MAP_FAILED) state = map;
}

/* For Python, which forks a process for each fault: only what is between these two is counted. */
void *faults_state(void) { return state; }
void faults_begin(void) { if (state) state->counts = 1; }
void faults_end(void) { if (state) state->counts = 0; }

/* Counts a call; whether it must fail. */
static int strikes(enum target target, const char *call, const char *path, size_t bytes) {
    if (!state || state->target != target || !state->counts) return 0;
    uint64_t number = atomic_fetch_add(&state->calls, 1) + 1;
    if (!state->first || number < state->first || number > state->last) return 0;
    if (atomic_fetch_add(&state->faults, 1) == 0) {
        /* Without allocation. */
        size_t at = 0;
        for (; *call && at < 40; call++) state->what[at++] = *call;
        state->what[at++] = ' ';
        if (!path) {
            char digits[24];
            int length = 0;
            do digits[length++] = '0' + bytes % 10; while (bytes /= 10);
            while (length) state->what[at++] = digits[--length];
        }
        for (; path && *path && at < sizeof state->what - 1; path++) state->what[at++] = *path;
    }
    return 1;
}

/* Whether a path is below the folder, which is also the program's working directory. */
static int is_ours(const char *path) {
    if (!state || !path) return 0;
    return path[0] != '/' || !strncmp(path, folder, folder_length);
}

static const char *path_of(int fd, char *buffer, size_t room) {
    char link[40];
    if (!state || !state->counts || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, room - 1);
    if (length <= 0 || buffer[0] != '/') return 0;
    buffer[length] = 0;
    return buffer;
}

/* Whether a call about a path must fail; it sets errno. */
static int path_fails(const char *call, const char *path, int needs_space) {
    if (!is_ours(path)) return 0;
    if (!strikes(FILES, call, path, 0) && !(needs_space && strikes(SPACE, call, path, 0))) return 0;
    errno = state->error;
    return 1;
}

static int fd_fails(const char *call, int fd, int needs_space) {
    char buffer[4096];
    const char *path = path_of(fd, buffer, sizeof buffer);
    return path && path_fails(call, path, needs_space);
}

/* The number of bytes to read or write: fewer where this call must be short. */
static size_t part(const char *call, int fd, size_t bytes) {
    char buffer[4096];
    const char *path = bytes > 1 ? path_of(fd, buffer, sizeof buffer) : 0;
    return path && is_ours(path) && strikes(PARTS, call, path, 0) ? (bytes + 1) / 2 : bytes;
}

#define OPEN(name, parameters, arguments, path_fails) \
    int name parameters { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        if (path_fails) return -1; \
        return REAL(name) arguments; \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), path_fails("open", path, flags & O_CREAT))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), path_fails("open", path, flags & O_CREAT))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode),
     path_fails("openat", path, flags & O_CREAT))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode),
     path_fails("openat", path, flags & O_CREAT))

#define FAILS(type, name, parameters, arguments, fails) \
    type name parameters { return fails ? (type)-1 : REAL(name) arguments; }

#define MOVES(name, parameters, arguments, needs_space) \
    ssize_t name parameters { \
        if (fd_fails(#name, fd, needs_space)) return -1; \
        count = part(#name, fd, count); \
        return REAL(name) arguments; \
    }
MOVES(read, (int fd, void *buffer, size_t count), (fd, buffer, count), 0)
MOVES(pread, (int fd, void *buffer, size_t count, off_t at), (fd, buffer, count, at), 0)
MOVES(pread64, (int fd, void *buffer, size_t count, off64_t at), (fd, buffer, count, at), 0)
MOVES(write, (int fd, const void *buffer, size_t count), (fd, buffer, count), 1)
MOVES(pwrite, (int fd, const void *buffer, size_t count, off_t at), (fd, buffer, count, at), 1)
MOVES(pwrite64, (int fd, const void *buffer, size_t count, off64_t at), (fd, buffer, count, at), 1)

/* Of several pieces a short call moves the first. */
#define MOVES_PIECES(name, needs_space) \
    ssize_t name(int fd, const struct iovec *pieces, int count) { \
        if (fd_fails(#name, fd, needs_space)) return -1; \
        if (count > 1 && part(#name, fd, 2) == 1) count = 1; \
        return REAL(name)(fd, pieces, count); \
    }
MOVES_PIECES(readv, 0)
MOVES_PIECES(writev, 1)

/* Nothing here is about a loss of power, so that no disk need be waited for. */
#define SYNCS(name) \
    int name(int fd) { \
        char buffer[4096]; \
        if (fd_fails(#name, fd, 1)) return -1; \
        return is_ours(path_of(fd, buffer, sizeof buffer)) ? 0 : REAL(name)(fd); \
    }
SYNCS(fsync)
SYNCS(fdatasync)

FAILS(int, rename, (const char *from, const char *to), (from, to), path_fails("rename", from, 1))
FAILS(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to),
      path_fails("renameat", from, 1))
FAILS(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
      (a, from, b, to, flags), path_fails("renameat2", from, 1))
FAILS(int, unlink, (const char *path), (path), path_fails("unlink", path, 0))
FAILS(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), path_fails("unlinkat", path, 0))
FAILS(int, rmdir, (const char *path), (path), path_fails("rmdir", path, 0))
FAILS(int, mkdir, (const char *path, mode_t mode), (path, mode), path_fails("mkdir", path, 1))
FAILS(int, access, (const char *path, int mode), (path, mode), path_fails("access", path, 0))
FAILS(int, stat, (const char *path, struct stat *found), (path, found), path_fails("stat", path, 0))
FAILS(int, stat64, (const char *path, struct stat64 *found), (path, found), path_fails("stat", path, 0))
FAILS(int, lstat, (const char *path, struct stat *found), (path, found), path_fails("lstat", path, 0))
FAILS(int, lstat64, (const char *path, struct stat64 *found), (path, found), path_fails("lstat", path, 0))
FAILS(int, fstat, (int fd, struct stat *found), (fd, found), fd_fails("fstat", fd, 0))
FAILS(int, fstat64, (int fd, struct stat64 *found), (fd, found), fd_fails("fstat", fd, 0))
/* Rust asks with no path whether there is such a call; a function of its own, because the header says that
 * there is always one. */
static __attribute__((noinline, noclone)) int statx_fails(int at, const char *path) {
    return path && *path ? path_fails("statx", path, 0) : fd_fails("statx", at, 0);
}
FAILS(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *found),
      (at, path, flags, mask, found),
      statx_fails(at, path))
FAILS(int, ftruncate, (int fd, off_t length), (fd, length), fd_fails("ftruncate", fd, 1))
FAILS(int, ftruncate64, (int fd, off64_t length), (fd, length), fd_fails("ftruncate", fd, 1))
FAILS(off_t, lseek, (int fd, off_t at, int from), (fd, at, from), fd_fails("lseek", fd, 0))
FAILS(off64_t, lseek64, (int fd, off64_t at, int from), (fd, at, from), fd_fails("lseek", fd, 0))
FAILS(int, flock, (int fd, int how), (fd, how), fd_fails("flock", fd, 0))
FAILS(ssize_t, copy_file_range, (int fd, off64_t *a, int to, off64_t *b, size_t count, unsigned flags),
      (fd, a, to, b, count, flags), fd_fails("copy_file_range", to, 1))

char *realpath(const char *path, char *found) {
    return path_fails("realpath", path, 0) ? NULL : REAL(realpath)(path, found);
}
DIR *opendir(const char *path) { return path_fails("opendir", path, 0) ? NULL : REAL(opendir)(path); }

/* The end of a folder and an error are told apart by errno alone. */
#define LISTS(name, type) \
    struct type *name(DIR *entries) { \
        return fd_fails(#name, dirfd(entries), 0) ? NULL : REAL(name)(entries); \
    }
LISTS(readdir, dirent)
LISTS(readdir64, dirent64)

static int allocation_fails(const char *call, size_t bytes) {
    if (!state || bytes < state->bytes_min || !strikes(MEMORY, call, NULL, bytes)) return 0;
    errno = ENOMEM;
    return 1;
}

/* Small maps without a file are the stacks of signal handlers, without which no thread can begin. */
#define MAPS(name, offset) \
    void *name(void *at, size_t length, int protection, int flags, int fd, offset from) { \
        int fails = fd >= 0 ? fd_fails("mmap", fd, 0) : length >= 65536 && allocation_fails("mmap", length); \
        return fails ? MAP_FAILED : REAL(name)(at, length, protection, flags, fd, from); \
    }
MAPS(mmap, off_t)
MAPS(mmap64, off64_t)

/* glibc's own names, since dlsym allocates. */
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes) { return allocation_fails("malloc", bytes) ? NULL : __libc_malloc(bytes); }
void *calloc(size_t count, size_t each) {
    return allocation_fails("calloc", count * each) ? NULL : __libc_calloc(count, each);
}
void *realloc(void *old, size_t bytes) {
    return bytes && allocation_fails("realloc", bytes) ? NULL : __libc_realloc(old, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
    return allocation_fails("memalign", bytes) ? NULL : __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    void *found = memalign(alignment, bytes);
    if (!found) return ENOMEM;
    *memory = found;
    return 0;
}
