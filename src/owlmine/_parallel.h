/* Splits work over the threads that PyTorch uses.
 *
 * PyTorch brings an OpenMP runtime. A pool of our own, or a second runtime, would fight for the cores with its threads,
 * which stay awake for a while after each operation. So the loaded one is looked up by name; if there is
 * none, the calling thread does the work. Nothing is linked, and no compiler flag is needed.
 *
 * Threads take ranges in any order, so the result for one item must not depend on the others.
 */
#ifndef OWLMINE_PARALLEL_H
#define OWLMINE_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && (defined(__linux__) || defined(__APPLE__))
#define HAS_THREADS 1
#include <dlfcn.h>
#else
#define HAS_THREADS 0
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

/* NULL if there is none. Threads whose first calls coincide all look it up, and find the same. */
static RunParallel run_parallel(void)
{
    static void *found = NULL;
    static int is_known = 0;
    RunParallel run;
    if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&found, dlsym(RTLD_DEFAULT, "GOMP_parallel"), __ATOMIC_RELAXED);
        __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
    }
    *(void **)&run = __atomic_load_n(&found, __ATOMIC_RELAXED);
    return run;
}
#endif

/* Ranges write shared results with these two functions; the caller reads them when all ranges are done. */
static inline void lower_flag(int *flag)
{
#if HAS_THREADS
    __atomic_store_n(flag, 0, __ATOMIC_RELAXED);
#else
    *flag = 0;
#endif
}

static inline void add_to(int64_t *sum, int64_t amount)
{
#if HAS_THREADS
    __atomic_fetch_add(sum, amount, __ATOMIC_RELAXED);
#else
    *sum += amount;
#endif
}

/* A desk is work space for one thread: any struct that begins with an int, which is 0 while the desk is free. With as
 * many desks as threads, one is always free. */
static inline void *take_desk(void *desks, int count, size_t size)
{
#if HAS_THREADS
    for (int i = 0;; i = (i + 1) % count) {
        char *desk = (char *)desks + (size_t)i * size;
        if (!__atomic_exchange_n((int *)(void *)desk, 1, __ATOMIC_ACQUIRE))
            return desk;
    }
#else
    (void)count;
    (void)size;
    return desks;
#endif
}

static inline void leave_desk(void *desk)
{
#if HAS_THREADS
    __atomic_store_n((int *)desk, 0, __ATOMIC_RELEASE);
#else
    (void)desk;
#endif
}

/* Work on items 0 .. count, handed out in ranges of ``grain``. PyTorch must have been imported before. */
static void in_parallel(RangeWork work, void *job, int64_t count, int64_t grain, int threads)
{
#if HAS_THREADS
    RunParallel run = run_parallel();
    Ranges ranges = {work, job, count, grain, 0};
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
