/* Loops over numbers in sanitizer builds. AddressSanitizer and ThreadSanitizer look at every access, which makes a product of
 * matrices many times slower, and its text many times longer. Such loops are left alone (PLAIN_LOOPS), and whoever calls
 * them tells the ranges that they are about to touch as wholes: one that is not allocated, or that another thread writes
 * meanwhile, is reported there, with the stack. Other builds have nothing of it. */
#ifndef MILKIT_BASE_RANGES_H
#define MILKIT_BASE_RANGES_H

#include <stddef.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define RANGES_OF_ADDRESSES 1
#elif __has_feature(thread_sanitizer)
#define RANGES_OF_THREADS 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define RANGES_OF_ADDRESSES 1
#endif
#ifdef __SANITIZE_THREAD__
#define RANGES_OF_THREADS 1
#endif

#ifdef RANGES_OF_ADDRESSES
#include <sanitizer/asan_interface.h>
#define PLAIN_LOOPS __attribute__((no_sanitize("address", "undefined")))
#elif defined(RANGES_OF_THREADS)
void __tsan_read_range(void *p, unsigned long bytes);
void __tsan_write_range(void *p, unsigned long bytes);
#define PLAIN_LOOPS __attribute__((no_sanitize("thread")))
#else
/* A function whose accesses are not looked at one by one. */
#define PLAIN_LOOPS
#endif

/* All of these bytes are read, or written. An access that is reported is that of the first one that is not there. */
static inline void range_of(const void *p, size_t bytes, int is_write)
{
#ifdef RANGES_OF_ADDRESSES
    const volatile char *bad = bytes > 0 ? __asan_region_is_poisoned((void *)(size_t)p, bytes) : NULL;
    if (bad)
        (void)*bad;
#elif defined(RANGES_OF_THREADS)
    if (is_write)
        __tsan_write_range((void *)(size_t)p, bytes);
    else
        __tsan_read_range((void *)(size_t)p, bytes);
#endif
    (void)p, (void)bytes, (void)is_write;
}

static inline void range_read(const void *p, size_t bytes)
{
    range_of(p, bytes, 0);
}

static inline void range_write(const void *p, size_t bytes)
{
    range_of(p, bytes, 1);
}

/* Scratch of one thread: there as a whole, and no other's. */
static inline void range_scratch(const void *p, size_t bytes)
{
#ifdef RANGES_OF_THREADS
    bytes = bytes < 64 ? bytes : 64;
#endif
    range_of(p, bytes, 1);
}

#endif
