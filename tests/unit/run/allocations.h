/* allocations.h: counts every call that takes memory: libc's allocators and mmap, each by a definition of ours in front
 *
 * Shared libraries call these too. Included by one file of a program. Sanitizers bring allocators of their own: there
 * ALLOCATIONS_COUNTED is 0 and nothing is replaced. */
#ifndef ZR_TEST_ALLOCATIONS_H
#define ZR_TEST_ALLOCATIONS_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOCATIONS_COUNTED 0
#else
#define ALLOCATIONS_COUNTED 1
#endif

static _Atomic uint64_t allocations;

#if ALLOCATIONS_COUNTED

static void *allocations_real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

void *malloc(size_t bytes)
{
    static void *(*_Atomic next)(size_t);
    if (!next) *(void *_Atomic *)&next = allocations_real("malloc");
    atomic_fetch_add(&allocations, 1);
    return next(bytes);
}

/* dlsym() may ask for zeroed memory before the real calloc() is known. */
void *calloc(size_t count, size_t bytes)
{
    static void *(*_Atomic next)(size_t, size_t);
    static _Thread_local bool looking;
    static _Alignas(16) char first_bytes[4096];
    static size_t first_used;
    if (looking) {
        char *at = first_bytes + first_used;
        first_used += (count * bytes + 15) & ~(size_t)15;
        if (first_used > sizeof first_bytes) abort();
        return at;
    }
    if (!next) {
        looking = true;
        *(void *_Atomic *)&next = allocations_real("calloc");
        looking = false;
    }
    atomic_fetch_add(&allocations, 1);
    return next(count, bytes);
}

void *realloc(void *at, size_t bytes)
{
    static void *(*_Atomic next)(void *, size_t);
    if (!next) *(void *_Atomic *)&next = allocations_real("realloc");
    atomic_fetch_add(&allocations, 1);
    return next(at, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    static void *(*_Atomic next)(size_t, size_t);
    if (!next) *(void *_Atomic *)&next = allocations_real("aligned_alloc");
    atomic_fetch_add(&allocations, 1);
    return next(align, bytes);
}

int posix_memalign(void **ret_at, size_t align, size_t bytes)
{
    static int (*_Atomic next)(void **, size_t, size_t);
    if (!next) *(void *_Atomic *)&next = allocations_real("posix_memalign");
    atomic_fetch_add(&allocations, 1);
    return next(ret_at, align, bytes);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    atomic_fetch_add(&allocations, 1);
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset); // NOLINT: an address comes back
}

#endif
#endif
