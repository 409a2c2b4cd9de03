/* Rows of a float32 table in 8 bits, and the highest dot products of queries with them, as training needs them.
 *
 * A row is rounded to scale * codes, with codes from -127 to 127. Products of codes are exact in 32-bit integers; times
 * the scale of its row, a product is in the same unit as the others of its query.
 *
 * Bounds: sizes of all buffers are checked against the counts given, and every id before the first row is read.
 * Each row and each query is processed by one thread, so results do not depend on the number of threads.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS 16         /* columns of a group, represented by the highest of them */
#define ROW_GRAIN 256    /* rows, and queries, that a thread takes at a time */
#define QUERY_GRAIN 8
#define MAX_DIM 65536    /* 127 * 127 * dim stays well inside 32 bits */
#define HIDDEN INT32_MIN /* no product of codes is as low */
#define LARGEST_CODE 127.0f
#define LEAST_SIZE 1e-30f /* below, the quotient of codes and scale would overflow float32 */
#define LARGEST_SIZE 1e25f /* above, products times scales would */

/* ---- float32 to 8 bits ---- */

typedef struct {
    const float *weight;
    const int64_t *ids;
    int8_t *codes;
    float *scales;
    int64_t dim;
    int is_usable;
} CodeJob;

typedef union {
    float real;
    int32_t bits;
} Float;

/* Non-negative floats are ordered like the integers with their bits; infinities and NaN come last. */
INLINED float largest_size(const float *row, int64_t dim)
{
    Float largest = {0};
    for (int64_t d = 0; d < dim; d++) {
        Float x = {row[d]};
        int32_t size = x.bits & INT32_MAX;
        largest.bits = size > largest.bits ? size : largest.bits;
    }
    return largest.real;
}

/* Returns the scale; a negative one if a number is not finite or too large. */
INLINED float code_row(const float *row, int64_t dim, int8_t *codes)
{
    /* Adding 1.5 * 2^23 leaves the nearest whole number in the lowest bits, with no call in the loop. */
    const Float shift = {12582912.0f};
    float largest = largest_size(row, dim);
    float inverse = largest < LEAST_SIZE ? 0 : LARGEST_CODE / largest;
    if (!(largest <= LARGEST_SIZE))
        return -1;
    for (int64_t d = 0; d < dim; d++) {
        Float shifted = {row[d] * inverse + shift.real};
        codes[d] = (int8_t)(shifted.bits - shift.bits);
    }
    return largest / LARGEST_CODE;
}

FOR_EACH_CPU static void code_range(void *given, int64_t start, int64_t stop)
{
    CodeJob *job = given;
    int is_usable = 1;
    for (int64_t i = start; i < stop; i++) {
        if (i + 2 < stop)
            prefetch_row(job->weight + job->ids[i + 2] * job->dim, job->dim);
        job->scales[i] = code_row(job->weight + job->ids[i] * job->dim, job->dim, job->codes + i * job->dim);
        is_usable &= job->scales[i] >= 0;
    }
    if (!is_usable)
        lower_flag(&job->is_usable);
}

/* ---- the highest ---- */

typedef struct {
    const int32_t *products; /* [N, W], HIDDEN where a class must not count */
    const float *scales;     /* [W] */
    int64_t width, kept, num_groups;
    int64_t *places; /* [N, kept] */
    int64_t num_hidden;
    int has_memory;
} HighestJob;

/* The search for one query. Columns are in groups: group g has the columns g, g + num_groups, g + 2 num_groups and so on,
 * MEMBERS of them, so that loops run over contiguous memory. Fewer than MEMBERS columns are left over at the end. */
typedef struct {
    float *scores;  /* [width] */
    float *highest; /* [num_groups] of each group */
    float *slots;   /* [kept] */
    float *best;    /* [kept] found so far, highest first, and where they are */
    int64_t *places;
    int32_t *columns; /* [width + 1], [num_groups + 1]: places that may count, with room for one more */
    int32_t *groups;
    int64_t found;
} Search;

INLINED void score_columns(const int32_t *restrict products, const float *restrict scales, int64_t width,
                           float *restrict scores)
{
    for (int64_t c = 0; c < width; c++)
        scores[c] = products[c] == HIDDEN ? -INFINITY : (float)products[c] * scales[c];
}

INLINED void take_larger(float *restrict into, const float *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        into[i] = from[i] > into[i] ? from[i] : into[i];
}

/* The highest score of each group. */
INLINED void find_highest_of_groups(const HighestJob *job, const Search *search)
{
    memcpy(search->highest, search->scores, (size_t)job->num_groups * sizeof(float));
    for (int64_t member = 1; member < MEMBERS; member++)
        take_larger(search->highest, search->scores + member * job->num_groups, job->num_groups);
}

/* A score that at least ``kept`` columns reach: groups are dealt out to as many slots, and each slot has one. */
INLINED float reached_by_enough(const HighestJob *job, const Search *search)
{
    float least = INFINITY;
    memcpy(search->slots, search->highest, (size_t)job->kept * sizeof(float));
    for (int64_t first = job->kept; first < job->num_groups; first += job->kept) {
        int64_t left = job->num_groups - first;
        take_larger(search->slots, search->highest + first, left < job->kept ? left : job->kept);
    }
    for (int64_t i = 0; i < job->kept; i++)
        least = search->slots[i] < least ? search->slots[i] : least;
    return least;
}

/* Inserts the column if it is among the highest so far. Equal scores beyond those kept are left out. */
INLINED void insert(const HighestJob *job, Search *search, int64_t column)
{
    float score = search->scores[column];
    int64_t place = search->found;
    if (search->found < job->kept)
        search->found++;
    else if (score <= search->best[--place])
        return;
    for (; place > 0 && search->best[place - 1] < score; place--) {
        search->best[place] = search->best[place - 1];
        search->places[place] = search->places[place - 1];
    }
    search->best[place] = score;
    search->places[place] = column;
}

/* The places of what reaches ``enough``, among every ``step``-th number from ``first`` on; without a branch, which would
 * often be predicted wrongly. */
INLINED int64_t places_above(const float *scores, int64_t first, int64_t stop, int64_t step, float enough,
                             int32_t *places)
{
    int64_t found = 0;
    for (int64_t i = first; i < stop; i += step) {
        places[found] = (int32_t)i;
        found += scores[i] >= enough;
    }
    return found;
}

INLINED void find_highest(const HighestJob *job, Search *search)
{
    int64_t num_groups = job->num_groups, in_groups = MEMBERS * num_groups, num_found, num_columns = 0;
    float enough;
    find_highest_of_groups(job, search);
    enough = reached_by_enough(job, search);
    num_found = places_above(search->highest, 0, num_groups, 1, enough, search->groups);
    for (int64_t i = 0; i < num_found; i++)
        num_columns += places_above(search->scores, search->groups[i], in_groups, num_groups, enough,
                                    search->columns + num_columns);
    num_columns += places_above(search->scores, in_groups, job->width, 1, enough, search->columns + num_columns);
    search->found = 0;
    for (int64_t i = 0; i < num_columns; i++)
        insert(job, search, search->columns[i]);
}

FOR_EACH_CPU static void highest_range(void *given, int64_t start, int64_t stop)
{
    HighestJob *job = given;
    int64_t size = job->width + job->num_groups;
    float *memory = malloc((size_t)(2 * size + 2 * job->kept + 2) * sizeof(float));
    int64_t num_hidden = 0;
    if (memory == NULL) {
        lower_flag(&job->has_memory);
        return;
    }
    for (int64_t query = start; query < stop; query++) {
        float *highest = memory + job->width, *slots = memory + size, *best = slots + job->kept;
        int32_t *columns = (int32_t *)(void *)(best + job->kept), *groups = columns + job->width + 1;
        Search search = {memory, highest, slots, best, job->places + query * job->kept, columns, groups, 0};
        score_columns(job->products + query * job->width, job->scales, job->width, memory);
        find_highest(job, &search);
        for (int64_t i = 0; i < job->kept; i++)
            num_hidden += search.best[i] == -INFINITY;
    }
    add_to(&job->num_hidden, num_hidden);
    free(memory);
}

/* ---- arguments from Python ---- */

PyDoc_STRVAR(code_rows_doc, "code_rows(weight, dim, ids, codes, scales, threads) -> is_usable\n\n"
                            "8-bit codes [W, dim] of the rows with these ids, and [W] their scales. False: a row has\n"
                            "a number that is not finite, or too large; results are void.");

static PyObject *code_rows(PyObject *module, PyObject *args)
{
    Py_buffer weight, ids, codes, scales;
    Py_buffer *const buffers[] = {&weight, &ids, &codes, &scales};
    Py_ssize_t dim;
    int threads, is_sound;
    CodeJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*w*w*i", &weight, &dim, &ids, &codes, &scales, &threads))
        return NULL;
    int64_t width = count_of(&ids, sizeof(int64_t));
    is_sound = dim > 0 && dim <= MAX_DIM && holds(&ids, width, sizeof(int64_t)) &&
               holds(&codes, width * dim, sizeof(int8_t)) && holds(&scales, width, sizeof(float));
    if (is_sound) {
        int64_t num_rows = count_of(&weight, sizeof(float)) / dim;
        is_sound = holds(&weight, num_rows * dim, sizeof(float)) && ids_are_below(ids.buf, width, num_rows);
    }
    if (is_sound) {
        job = (CodeJob){weight.buf, ids.buf, codes.buf, scales.buf, dim, 1};
        Py_BEGIN_ALLOW_THREADS
        in_parallel(code_range, &job, width, ROW_GRAIN, threads);
        Py_END_ALLOW_THREADS
    }
    release(buffers, 4);
    return is_sound ? PyBool_FromLong(job.is_usable) : refusal();
}

PyDoc_STRVAR(highest_doc, "highest(products, scales, places, num_queries, threads) -> hidden\n\n"
                          "Places [N, T] of the columns with the highest product * scale of each query, highest first.\n"
                          "products: int32 [N, W], or -2**31 for a column that must not count; such a one is named only\n"
                          "where too few are left. T is at most W // 16. Returns how many such are named.");

static PyObject *highest(PyObject *module, PyObject *args)
{
    Py_buffer products, scales, places;
    Py_buffer *const buffers[] = {&products, &scales, &places};
    Py_ssize_t num_queries;
    int threads, is_sound;
    HighestJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*ni", &products, &scales, &places, &num_queries, &threads))
        return NULL;
    int64_t width = count_of(&scales, sizeof(float));
    int64_t num_groups = width / MEMBERS;
    int64_t kept = num_queries > 0 ? count_of(&places, sizeof(int64_t)) / num_queries : 0;
    is_sound = num_queries > 0 && width > 0 && num_queries <= INT64_MAX / 8 / width && width < INT32_MAX &&
               holds(&scales, width, sizeof(float)) && kept >= 1 && kept <= num_groups &&
               holds(&places, num_queries * kept, sizeof(int64_t)) &&
               holds(&products, num_queries * width, sizeof(int32_t));
    if (is_sound) {
        job = (HighestJob){products.buf, scales.buf, width, kept, num_groups, places.buf, 0, 1};
        Py_BEGIN_ALLOW_THREADS
        in_parallel(highest_range, &job, num_queries, QUERY_GRAIN, threads);
        Py_END_ALLOW_THREADS
    }
    release(buffers, 3);
    if (!is_sound)
        return refusal();
    return job.has_memory ? PyLong_FromLongLong(job.num_hidden) : PyErr_NoMemory();
}

static PyMethodDef methods[] = {
    {"code_rows", code_rows, METH_VARARGS, code_rows_doc},
    {"highest", highest, METH_VARARGS, highest_doc},
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
    .m_name = "owlmine.mining._int8",
    .m_doc = "Rows in 8 bits, and the highest products with them; see int8.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__int8(void) { return PyModuleDef_Init(&definition); }
