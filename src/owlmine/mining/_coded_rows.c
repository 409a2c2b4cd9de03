/* Reads a few rows of a large table of bytes: sums of rows, and dot products. A row is scale * codes.
 *
 * Bounds: sizes of all buffers are checked against the counts given, and every id before the first row is read.
 * The terms of a sum are added in the order of the entries, for any number of threads.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_parallel.h"

#include <string.h>

#define GRAIN 4      /* queries that a thread takes at a time: a query reads many rows */
#define ALONE 262144 /* codes that one thread reads before others have woken up */
#define CACHE_LINE 64

typedef struct {
    const int8_t *codes;
    const float *scales;
    int64_t num_rows, dim;
} Table;

INLINED void prefetch_codes(const Table *table, int64_t row)
{
    for (int64_t d = 0; d < table->dim; d += CACHE_LINE)
        PREFETCH(table->codes + row * table->dim + d);
}

/* ---- sums ---- */

typedef struct {
    Table table;
    const int64_t *ids, *starts; /* the entries of bag n begin at starts[n]; the last one's go to the end */
    const float *values;
    int64_t num_entries, num_bags;
    float *sums;
} SumJob;

INLINED void add_row(float *restrict sum, const int8_t *restrict codes, float factor, int64_t dim)
{
    for (int64_t d = 0; d < dim; d++)
        sum[d] += factor * (float)codes[d];
}

FOR_EACH_CPU static void sum_range(void *given, int64_t start, int64_t stop)
{
    const SumJob *job = given;
    const Table *table = &job->table;
    for (int64_t n = start; n < stop; n++) {
        int64_t end = n + 1 < job->num_bags ? job->starts[n + 1] : job->num_entries;
        float *sum = job->sums + n * table->dim;
        memset(sum, 0, (size_t)table->dim * sizeof(float));
        for (int64_t e = job->starts[n]; e < end; e++) {
            if (e + 1 < end)
                prefetch_codes(table, job->ids[e + 1]);
            add_row(sum, table->codes + job->ids[e] * table->dim, job->values[e] * table->scales[job->ids[e]],
                    table->dim);
        }
    }
}

/* ---- dot products ---- */

typedef struct {
    Table table;
    const float *queries;
    const int64_t *ids;
    int64_t per_query;
    float *dots;
} DotJob;

INLINED float dot_codes(const float *left, const int8_t *right, int64_t dim)
{
    float lanes[LANES] = {0}, rest = 0;
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += left[d + lane] * (float)right[d + lane];
    for (; d < dim; d++)
        rest += left[d] * (float)right[d];
    return sum_of(lanes) + rest;
}

FOR_EACH_CPU static void dot_range(void *given, int64_t start, int64_t stop)
{
    const DotJob *job = given;
    const Table *table = &job->table;
    int64_t last = stop * job->per_query;
    for (int64_t n = start; n < stop; n++)
        for (int64_t e = n * job->per_query; e < (n + 1) * job->per_query; e++) {
            if (e + 1 < last)
                prefetch_codes(table, job->ids[e + 1]);
            job->dots[e] = table->scales[job->ids[e]] *
                           dot_codes(job->queries + n * table->dim, table->codes + job->ids[e] * table->dim, table->dim);
        }
}

/* ---- what Python gives ---- */

/* Fills ``table``, and tells whether the sizes of its buffers fit each other. */
static int table_fits(Table *table, const Py_buffer *codes, const Py_buffer *scales, int64_t dim)
{
    Table given = {codes->buf, scales->buf, count_of(scales, sizeof(float)), dim};
    *table = given;
    return dim > 0 && dim <= INT32_MAX && given.num_rows <= INT64_MAX / dim &&
           holds(scales, given.num_rows, sizeof(float)) && holds(codes, given.num_rows * dim, 1);
}

static int starts_are_sound(const SumJob *job)
{
    int ascend = job->num_bags > 0 ? job->starts[0] == 0 : job->num_entries == 0;
    for (int64_t n = 1; n < job->num_bags; n++)
        ascend &= job->starts[n - 1] <= job->starts[n];
    return ascend && ids_are_below(job->starts, job->num_bags, job->num_entries + 1);
}

static PyObject *finished(Py_buffer *const *buffers, int count, int is_sound)
{
    release(buffers, count);
    if (!is_sound)
        return refusal();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(sum_rows_doc, "sum_rows(codes, scales, dim, ids, starts, values, sums, threads)\n\n"
                           "sums[n] = sum of values[e] * scales[ids[e]] * codes[ids[e]] over the entries e from\n"
                           "starts[n] to those of the next bag; the last one's go to the end.");

static PyObject *sum_rows(PyObject *module, PyObject *args)
{
    Py_buffer codes, scales, ids, starts, values, sums;
    Py_buffer *const buffers[] = {&codes, &scales, &ids, &starts, &values, &sums};
    Py_ssize_t dim;
    int threads, is_sound;
    SumJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*ny*y*y*w*i", &codes, &scales, &dim, &ids, &starts, &values, &sums, &threads))
        return NULL;
    job.ids = ids.buf;
    job.starts = starts.buf;
    job.values = values.buf;
    job.sums = sums.buf;
    job.num_entries = count_of(&ids, sizeof(int64_t));
    job.num_bags = count_of(&starts, sizeof(int64_t));
    is_sound = table_fits(&job.table, &codes, &scales, dim) && holds(&ids, job.num_entries, sizeof(int64_t)) &&
               holds(&starts, job.num_bags, sizeof(int64_t)) && holds(&values, job.num_entries, sizeof(float)) &&
               job.num_bags <= INT64_MAX / dim && holds(&sums, job.num_bags * dim, sizeof(float)) &&
               starts_are_sound(&job) && ids_are_below(job.ids, job.num_entries, job.table.num_rows);
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        int is_small = job.num_entries <= ALONE / dim;
        in_parallel(sum_range, &job, job.num_bags, GRAIN, is_small ? 1 : threads);
        Py_END_ALLOW_THREADS
    }
    return finished(buffers, 6, is_sound);
}

PyDoc_STRVAR(dot_rows_doc, "dot_rows(codes, scales, dim, queries, ids, dots, threads)\n\n"
                           "dots[n, r] = <query n, scales[ids[n, r]] * codes[ids[n, r]]>");

static PyObject *dot_rows(PyObject *module, PyObject *args)
{
    Py_buffer codes, scales, queries, ids, dots;
    Py_buffer *const buffers[] = {&codes, &scales, &queries, &ids, &dots};
    Py_ssize_t dim;
    int threads, is_sound;
    DotJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*ny*y*w*i", &codes, &scales, &dim, &queries, &ids, &dots, &threads))
        return NULL;
    is_sound = table_fits(&job.table, &codes, &scales, dim);
    int64_t num_queries = is_sound ? count_of(&queries, sizeof(float)) / dim : 0;
    int64_t num_ids = count_of(&ids, sizeof(int64_t));
    job.queries = queries.buf;
    job.ids = ids.buf;
    job.dots = dots.buf;
    job.per_query = num_queries > 0 ? num_ids / num_queries : 0;
    is_sound = is_sound && holds(&queries, num_queries * dim, sizeof(float)) &&
               holds(&ids, num_queries * job.per_query, sizeof(int64_t)) && holds(&dots, num_ids, sizeof(float)) &&
               ids_are_below(job.ids, num_ids, job.table.num_rows);
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        int is_small = num_ids <= ALONE / dim;
        in_parallel(dot_range, &job, num_queries, GRAIN, is_small ? 1 : threads);
        Py_END_ALLOW_THREADS
    }
    return finished(buffers, 5, is_sound);
}

static PyMethodDef methods[] = {
    {"sum_rows", sum_rows, METH_VARARGS, sum_rows_doc},
    {"dot_rows", dot_rows, METH_VARARGS, dot_rows_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "owlmine.mining._coded_rows",
    .m_doc = "Rows of a table of bytes, summed and multiplied; see coded_rows.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__coded_rows(void) { return PyModuleDef_Init(&definition); }
