/* Work split over the threads that PyTorch computes with.
 *
 * PyTorch brings an OpenMP runtime. A pool of our own, or a second runtime, would fight for the cores with its threads,
 * which stay awake for a while after each operation. So the one that is loaded is looked up by name, and where there is
 * none the work is done by the calling thread. Nothing is linked, and no flag of the compiler is needed.
 *
 * Threads take ranges as they come: whatever is computed for one item must not depend on the others.
 */
#ifndef OWLMINE_PARALLEL_H
#define OWLMINE_PARALLEL_H

#include <stdint.h>

#if defined(__GNUC__) && (defined(__linux__) || defined(__APPLE__))
#define HAS_THREADS 1
#include <dlfcn.h>
#else
#define HAS_THREADS 0
#endif

/* One version of a function for each kind of vector registers; the machine picks when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

/* Without this a part of such a function would be compiled once, for the oldest machine. */
#if defined(__GNUC__)
#define INLINED static inline __attribute__((always_inline))
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define INLINED static inline
#define PREFETCH(address) ((void)(address))
#endif

typedef void (*RangeWork)(void *job, int64_t start, int64_t stop);

typedef struct {
    RangeWork work;
    void *job;
    int64_t count, grain, next;
} Ranges;

#if HAS_THREADS
static void take_ranges(void *given)
{
    Ranges *ranges = given;
    for (;;) {
        int64_t start = __atomic_fetch_add(&ranges->next, ranges->grain, __ATOMIC_RELAXED);
        if (start >= ranges->count)
            return;
        int64_t left = ranges->count - start;
        ranges->work(ranges->job, start, start + (left < ranges->grain ? left : ranges->grain));
    }
}

/* The entry point of every runtime that serves code compiled by GCC; all parts have run when it returns. */
typedef void (*RunParallel)(void (*part)(void *), void *data, unsigned threads, unsigned flags);
#endif

/* Work on items 0 .. count, handed out in ranges of ``grain``. PyTorch must have been imported before. */
static void in_parallel(RangeWork work, void *job, int64_t count, int64_t grain, int threads)
{
#if HAS_THREADS
    static RunParallel run = NULL;
    static int is_known = 0;
    Ranges ranges = {work, job, count, grain, 0};
    if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
        *(void **)&run = dlsym(RTLD_DEFAULT, "GOMP_parallel");
        __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
    }
    if (threads > 1 && count > grain && run != NULL) {
        run(take_ranges, &ranges, (unsigned)threads, 0);
        return;
    }
#endif
    (void)grain;
    (void)threads;
    work(job, 0, count);
}

#endif
