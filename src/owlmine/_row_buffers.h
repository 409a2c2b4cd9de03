/* Rows of float32 in buffers from Python: the checks of a buffer before it is read, and dot products.
 *
 * A function marked FOR_EACH_CPU may only call INLINED functions; others would be compiled for the oldest machine.
 */
#ifndef OWLMINE_ROW_BUFFERS_H
#define OWLMINE_ROW_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#define LANES 32 /* partial sums, so that many terms are added in parallel */
#define LINE 16  /* floats of a cache line */

/* One version of a function for each vector instruction set, chosen when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

#if defined(__GNUC__)
#define INLINED static inline __attribute__((always_inline))
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define INLINED static inline
#define PREFETCH(address) ((void)(address))
#endif

/* ---- rows ---- */

INLINED void prefetch_row(const float *row, int64_t dim)
{
    for (int64_t d = 0; d < dim; d += LINE)
        PREFETCH(row + d);
}

/* Adds up in place. */
INLINED float sum_of(float *lanes)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int lane = 0; lane < width; lane++)
            lanes[lane] += lanes[lane + width];
    return lanes[0];
}

INLINED float dot(const float *left, const float *right, int64_t dim)
{
    float lanes[LANES] = {0}, rest = 0;
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += left[d + lane] * right[d + lane];
    for (; d < dim; d++)
        rest += left[d] * right[d];
    return sum_of(lanes) + rest;
}

/* ---- buffers ---- */

/* Whether these are ``count`` items of ``item`` bytes, and lie where such items may. */
static int holds(const Py_buffer *buffer, int64_t count, size_t item)
{
    return count >= 0 && (uint64_t)buffer->len == (uint64_t)count * item && (uintptr_t)buffer->buf % item == 0;
}

INLINED int64_t count_of(const Py_buffer *buffer, size_t item) { return (int64_t)((size_t)buffer->len / item); }

INLINED int ids_are_below(const int64_t *ids, int64_t count, int64_t bound)
{
    int all = 1;
    for (int64_t i = 0; i < count; i++)
        all &= (uint64_t)ids[i] < (uint64_t)bound;
    return all;
}

static void release(Py_buffer *const *buffers, int count)
{
    for (int i = 0; i < count; i++)
        PyBuffer_Release(buffers[i]);
}

static PyObject *refusal(void)
{
    PyErr_SetString(PyExc_ValueError, "an id is out of range, or a buffer does not fit the others");
    return NULL;
}

#endif
