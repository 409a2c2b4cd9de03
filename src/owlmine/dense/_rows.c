/* Reads and updates a few rows of a large float32 table in place: dot products and row updates. Also scales vectors to
 * length 1, and updates dense parameters.
 *
 * Bounds: sizes of all buffers are checked against the counts given, and every id before the first row is touched.
 * The terms of a sum are added in the order of the entries, for any number of threads.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_parallel.h"

#include <math.h>

#define STRETCH 1024 /* columns that are summed at a time, on the stack */
#define GRAIN 16     /* rows that a thread takes at a time: few balance uneven bags, many avoid contention */
#define ALONE 262144 /* floats that one thread processes before others have woken up */
#define TINY 1e-12f  /* the least length that a vector is divided by */

typedef struct {
    float *weight;
    int64_t num_rows, dim;
} Table;

/* The gradient of row u is the sum of values[e] * vectors[points[e]] over its entries e, from starts[u] to those of the
 * next row; the last row's go to the end. */
typedef struct {
    const int64_t *starts, *points;
    const float *values, *vectors;
    int64_t num_rows, num_entries;
} Entries;

/* NaN stays NaN. */
INLINED float at_least_tiny(float length) { return length < TINY ? TINY : length; }

/* ---- dot products ---- */

typedef struct {
    Table table;
    const float *queries;
    const int64_t *ids;
    int64_t per_query;
    float *dots;
} DotJob;

FOR_EACH_CPU static void dot_range(void *given, int64_t start, int64_t stop)
{
    const DotJob *job = given;
    int64_t dim = job->table.dim, last = stop * job->per_query;
    for (int64_t n = start; n < stop; n++)
        for (int64_t e = n * job->per_query; e < (n + 1) * job->per_query; e++) {
            if (e + 1 < last)
                prefetch_row(job->table.weight + job->ids[e + 1] * dim, dim);
            job->dots[e] = dot(job->queries + n * dim, job->table.weight + job->ids[e] * dim, dim);
        }
}

/* ---- row updates ---- */

typedef struct {
    Table table;
    const int64_t *rows;
    Entries entries;
    float factor;
    int unit_rows;
} MoveJob;

/* gradient[0 .. width]: of columns from ``first`` on */
INLINED void add_up(const Entries *entries, int64_t row, int64_t dim, int64_t first, int64_t width,
                    float *restrict gradient)
{
    int64_t end = row + 1 < entries->num_rows ? entries->starts[row + 1] : entries->num_entries;
    for (int64_t d = 0; d < width; d++)
        gradient[d] = 0;
    for (int64_t e = entries->starts[row]; e < end; e++) {
        const float *restrict vector = entries->vectors + entries->points[e] * dim + first;
        float value = entries->values[e];
        for (int64_t d = 0; d < width; d++)
            gradient[d] += value * vector[d];
    }
}

INLINED void scale_to_unit(float *row, int64_t dim)
{
    float length = at_least_tiny(sqrtf(dot(row, row, dim)));
    for (int64_t d = 0; d < dim; d++)
        row[d] /= length;
}

FOR_EACH_CPU static void move_range(void *given, int64_t start, int64_t stop)
{
    const MoveJob *job = given;
    int64_t dim = job->table.dim;
    float gradient[STRETCH];
    for (int64_t u = start; u < stop; u++) {
        float *row = job->table.weight + job->rows[u] * dim;
        if (u + 1 < stop)
            prefetch_row(job->table.weight + job->rows[u + 1] * dim, dim);
        for (int64_t first = 0; first < dim; first += STRETCH) {
            int64_t width = dim - first < STRETCH ? dim - first : STRETCH;
            add_up(&job->entries, u, dim, first, width, gradient);
            for (int64_t d = 0; d < width; d++)
                row[first + d] += job->factor * gradient[d];
        }
        if (job->unit_rows)
            scale_to_unit(row, dim);
    }
}

/* ---- vectors of length 1, and their gradient ---- */

typedef struct {
    const float *vectors, *gradient; /* gradient: NULL on the way forward */
    float *unit, *lengths, *result;
    int64_t dim;
} UnitJob;

FOR_EACH_CPU static void unit_range(void *given, int64_t start, int64_t stop)
{
    const UnitJob *job = given;
    int64_t dim = job->dim;
    for (int64_t n = start; n < stop; n++) {
        const float *vector = job->vectors + n * dim;
        float *restrict unit = job->unit + n * dim;
        float length = sqrtf(dot(vector, vector, dim)), divisor = at_least_tiny(length);
        job->lengths[n] = length;
        for (int64_t d = 0; d < dim; d++)
            unit[d] = vector[d] / divisor;
    }
}

FOR_EACH_CPU static void unit_gradient_range(void *given, int64_t start, int64_t stop)
{
    const UnitJob *job = given;
    int64_t dim = job->dim;
    for (int64_t n = start; n < stop; n++) {
        const float *gradient = job->gradient + n * dim, *unit = job->unit + n * dim;
        float *restrict result = job->result + n * dim;
        float length = job->lengths[n], divisor = at_least_tiny(length);
        float along = length < TINY ? 0 : dot(unit, gradient, dim);
        for (int64_t d = 0; d < dim; d++)
            result[d] = (gradient[d] - unit[d] * along) / divisor;
    }
}

/* ---- a dense parameter ---- */

typedef struct {
    float *parameter, *velocity;
    const float *gradient;
    float momentum, rate;
} MomentumJob;

FOR_EACH_CPU static void momentum_range(void *given, int64_t start, int64_t stop)
{
    const MomentumJob *job = given;
    float *restrict parameter = job->parameter, *restrict velocity = job->velocity;
    const float *restrict gradient = job->gradient;
    for (int64_t i = start; i < stop; i++) {
        velocity[i] = job->momentum * velocity[i] + gradient[i];
        parameter[i] -= job->rate * velocity[i];
    }
}

/* ---- arguments from Python ---- */

/* Two threads could update a repeated row at the same time. */
static int ids_ascend(const int64_t *ids, int64_t count)
{
    int all = 1;
    for (int64_t i = 1; i < count; i++)
        all &= ids[i - 1] < ids[i];
    return all;
}

static int entries_are_sound(const Entries *entries, int64_t num_vectors)
{
    int64_t previous = 0;
    for (int64_t row = 0; row < entries->num_rows; row++) {
        if (entries->starts[row] < previous || entries->starts[row] > entries->num_entries)
            return 0;
        previous = entries->starts[row];
    }
    return ids_are_below(entries->points, entries->num_entries, num_vectors);
}

static Table table_of(const Py_buffer *weight, Py_ssize_t dim)
{
    Table table = {weight->buf, dim > 0 ? count_of(weight, sizeof(float)) / dim : 0, dim};
    return table;
}

static int table_holds(const Py_buffer *weight, const Table *table)
{
    return table->dim > 0 && table->dim <= INT32_MAX && holds(weight, table->num_rows * table->dim, sizeof(float));
}

static PyObject *finished(Py_buffer *const *buffers, int count, int is_sound)
{
    release(buffers, count);
    if (!is_sound)
        return refusal();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(dot_rows_doc, "dot_rows(weight, dim, queries, ids, dots, threads)\n\n"
                           "dots[n, t] = <queries[n], weight[ids[n, t]]>");

static PyObject *dot_rows(PyObject *module, PyObject *args)
{
    Py_buffer weight, queries, ids, dots;
    Py_buffer *const buffers[] = {&weight, &queries, &ids, &dots};
    Py_ssize_t dim;
    int64_t num_queries = 0, num_ids;
    int threads, is_sound;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*y*w*i", &weight, &dim, &queries, &ids, &dots, &threads))
        return NULL;
    DotJob job = {table_of(&weight, dim), queries.buf, ids.buf, 0, dots.buf};
    num_ids = count_of(&ids, sizeof(int64_t));
    is_sound = table_holds(&weight, &job.table) && holds(&ids, num_ids, sizeof(int64_t));
    if (is_sound) {
        num_queries = count_of(&queries, sizeof(float)) / dim;
        job.per_query = num_queries > 0 ? num_ids / num_queries : 0;
        is_sound = holds(&queries, num_queries * dim, sizeof(float)) && num_queries * job.per_query == num_ids &&
                   holds(&dots, num_ids, sizeof(float)) && ids_are_below(job.ids, num_ids, job.table.num_rows);
    }
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        in_parallel(dot_range, &job, num_queries, GRAIN, threads);
        Py_END_ALLOW_THREADS
    }
    return finished(buffers, 4, is_sound);
}

PyDoc_STRVAR(move_rows_doc,
             "move_rows(weight, rows, starts, points, values, vectors, dim, factor, unit_rows, threads)\n\n"
             "weight[rows[u]] += factor * sum of values[e] * vectors[points[e]] over the entries e of u, then scaled to\n"
             "length 1 where unit_rows; rows ascend.");

static PyObject *move_rows(PyObject *module, PyObject *args)
{
    Py_buffer weight, rows, starts, points, values, vectors;
    Py_buffer *const buffers[] = {&weight, &rows, &starts, &points, &values, &vectors};
    Py_ssize_t dim;
    double factor;
    int threads, is_sound, unit_rows;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*y*y*y*y*ndpi", &weight, &rows, &starts, &points, &values, &vectors, &dim, &factor,
                          &unit_rows, &threads))
        return NULL;
    int64_t num_moved = count_of(&rows, sizeof(int64_t)), num_entries = count_of(&points, sizeof(int64_t));
    MoveJob job = {table_of(&weight, dim), rows.buf,
                   {starts.buf, points.buf, values.buf, vectors.buf, num_moved, num_entries}, (float)factor, unit_rows};
    is_sound = table_holds(&weight, &job.table) && holds(&rows, num_moved, sizeof(int64_t)) &&
               holds(&starts, num_moved, sizeof(int64_t)) && holds(&points, num_entries, sizeof(int64_t)) &&
               holds(&values, num_entries, sizeof(float));
    if (is_sound) {
        int64_t num_vectors = count_of(&vectors, sizeof(float)) / dim;
        is_sound = holds(&vectors, num_vectors * dim, sizeof(float)) && entries_are_sound(&job.entries, num_vectors) &&
                   ids_are_below(job.rows, num_moved, job.table.num_rows) && ids_ascend(job.rows, num_moved);
    }
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        in_parallel(move_range, &job, num_moved, GRAIN, threads);
        Py_END_ALLOW_THREADS
    }
    return finished(buffers, 6, is_sound);
}

PyDoc_STRVAR(unit_vectors_doc, "unit_vectors(vectors, dim, unit, lengths, threads)\n\n"
                               "lengths[n] = |vectors[n]|, unit[n] = vectors[n] / max(lengths[n], 1e-12)");

static PyObject *unit_vectors(PyObject *module, PyObject *args)
{
    Py_buffer vectors, unit, lengths;
    Py_buffer *const buffers[] = {&vectors, &unit, &lengths};
    Py_ssize_t dim;
    int threads, is_sound;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nw*w*i", &vectors, &dim, &unit, &lengths, &threads))
        return NULL;
    int64_t count = count_of(&lengths, sizeof(float));
    UnitJob job = {vectors.buf, NULL, unit.buf, lengths.buf, NULL, dim};
    is_sound = dim > 0 && dim <= INT32_MAX && holds(&lengths, count, sizeof(float)) &&
               holds(&vectors, count * dim, sizeof(float)) && holds(&unit, count * dim, sizeof(float));
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        in_parallel(unit_range, &job, count, ALONE / dim + 1, threads);
        Py_END_ALLOW_THREADS
    }
    return finished(buffers, 3, is_sound);
}

PyDoc_STRVAR(unit_gradient_doc, "unit_gradient(gradient, dim, unit, lengths, result, threads)\n\n"
                                "The gradient of unit_vectors: (g - u <u, g>) / length, or g / 1e-12 below that.");

static PyObject *unit_gradient(PyObject *module, PyObject *args)
{
    Py_buffer gradient, unit, lengths, result;
    Py_buffer *const buffers[] = {&gradient, &unit, &lengths, &result};
    Py_ssize_t dim;
    int threads, is_sound;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*y*w*i", &gradient, &dim, &unit, &lengths, &result, &threads))
        return NULL;
    int64_t count = count_of(&lengths, sizeof(float));
    UnitJob job = {NULL, gradient.buf, unit.buf, lengths.buf, result.buf, dim};
    is_sound = dim > 0 && dim <= INT32_MAX && holds(&lengths, count, sizeof(float)) &&
               holds(&gradient, count * dim, sizeof(float)) && holds(&unit, count * dim, sizeof(float)) &&
               holds(&result, count * dim, sizeof(float));
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        in_parallel(unit_gradient_range, &job, count, ALONE / dim + 1, threads);
        Py_END_ALLOW_THREADS
    }
    return finished(buffers, 4, is_sound);
}

PyDoc_STRVAR(momentum_step_doc, "momentum_step(parameter, velocity, gradient, momentum, rate, threads)\n\n"
                                "velocity = momentum * velocity + gradient; parameter -= rate * velocity");

static PyObject *momentum_step(PyObject *module, PyObject *args)
{
    Py_buffer parameter, velocity, gradient;
    Py_buffer *const buffers[] = {&parameter, &velocity, &gradient};
    double momentum, rate;
    int threads, is_sound;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*w*y*ddi", &parameter, &velocity, &gradient, &momentum, &rate, &threads))
        return NULL;
    int64_t count = count_of(&parameter, sizeof(float));
    MomentumJob job = {parameter.buf, velocity.buf, gradient.buf, (float)momentum, (float)rate};
    is_sound = holds(&parameter, count, sizeof(float)) && holds(&velocity, count, sizeof(float)) &&
               holds(&gradient, count, sizeof(float));
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        in_parallel(momentum_range, &job, count, ALONE, threads);
        Py_END_ALLOW_THREADS
    }
    return finished(buffers, 3, is_sound);
}

static PyMethodDef methods[] = {
    {"momentum_step", momentum_step, METH_VARARGS, momentum_step_doc},
    {"unit_vectors", unit_vectors, METH_VARARGS, unit_vectors_doc},
    {"unit_gradient", unit_gradient, METH_VARARGS, unit_gradient_doc},
    {"dot_rows", dot_rows, METH_VARARGS, dot_rows_doc},
    {"move_rows", move_rows, METH_VARARGS, move_rows_doc},
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
    .m_name = "owlmine.dense._rows",
    .m_doc = "Rows of a table, read and moved where they lie; see compiled_rows.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }
