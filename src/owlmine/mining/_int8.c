/* The highest dot products of queries with rows of a float32 table: exact, but mostly computed in 8-bit integers.
 *
 * A vector x is rounded to scale * codes, with codes from -127 to 127; the difference has the length ``lost``. By the
 * Cauchy-Schwarz inequality
 *     |<q, c> - <q', c'>|  <=  |q - q'| |c| + |q'| |c - c'|
 * for the rounded q' and c', whose product is exact in 32-bit integers. So integers rule out most rows, and the
 * few that remain are multiplied in float32.
 *
 * Bounds: sizes of all buffers are checked against the counts given, and every id before the first row is read.
 * Each row and each query is processed by one thread, so results do not depend on the number of threads.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_parallel.h"

#include <math.h>
#include <stdlib.h>

#define MEMBERS 16       /* columns of a group, represented by their largest bound */
#define ABREAST 16       /* groups whose columns take turns */
#define ROW_GRAIN 256    /* rows, and queries, that a thread takes at a time */
#define QUERY_GRAIN 8
#define MAX_DIM 65536    /* 127 * 127 * dim stays well inside 32 bits */
#define HIDDEN INT32_MIN /* no product of codes is as low */
#define LARGEST_CODE 127.0f
#define LEAST_SIZE 1e-30f /* below, the quotient of codes and scale would overflow float32 */
#define ROUNDING 6e-8f    /* the relative error of one operation in float32, 2^-24 */
/* Above, products would overflow float32. */
#define LARGEST_LENGTH 1e15f

/* Of each vector, one array each: x is nearly scale * codes; the length of x; the length of the difference. */
typedef struct {
    float *scale, *length, *lost;
} Sizes;

static Sizes sizes_of(float *sizes, int64_t count)
{
    Sizes result = {sizes, sizes + count, sizes + 2 * count};
    return result;
}

/* ---- float32 to 8 bits ---- */

typedef struct {
    const float *weight;
    const int64_t *ids;
    int8_t *codes;
    Sizes sizes;
    int64_t dim;
    int is_usable;
} CodeJob;

typedef union {
    float real;
    int32_t bits;
} Float;

INLINED const float *row_of(const float *weight, const int64_t *ids, int64_t number, int64_t dim)
{
    return weight + ids[number] * dim;
}

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

INLINED void code_entry(float x, float inverse, int8_t *code, float *square, float *lost_square)
{
    /* Adding 1.5 * 2^23 leaves the nearest whole number in the lowest bits, with no call in the loop. */
    const Float shift = {12582912.0f};
    float scaled = x * inverse;
    Float shifted = {scaled + shift.real};
    float lost = scaled - (shifted.real - shift.real);
    *code = (int8_t)(shifted.bits - shift.bits);
    *square += scaled * scaled;
    *lost_square += lost * lost;
}

/* Codes of one row; 0 if the row is too long or not finite. Lengths are computed in units of the scale, in which no
 * square is too large or too small for float32. */
INLINED int code_row(const float *row, int64_t dim, int8_t *codes, const Sizes *sizes, int64_t number)
{
    float largest = largest_size(row, dim), squares[LANES] = {0}, lost_squares[LANES] = {0};
    float scale = largest / LARGEST_CODE, inverse = LARGEST_CODE / largest;
    int64_t d = 0;
    if (!(largest <= LARGEST_LENGTH))
        return 0;
    if (largest < LEAST_SIZE) {
        for (; d < dim; d++)
            codes[d] = 0;
        sizes->scale[number] = 0;
        /* By a whole number: below 1e-38, floats are too far apart for any other factor. */
        sizes->length[number] = sizes->lost[number] = largest * ceilf(sqrtf((float)dim));
        return 1;
    }
    for (; d + LANES <= dim; d += LANES)
        for (int lane = 0; lane < LANES; lane++)
            code_entry(row[d + lane], inverse, &codes[d + lane], &squares[lane], &lost_squares[lane]);
    for (; d < dim; d++)
        code_entry(row[d], inverse, &codes[d], &squares[0], &lost_squares[0]);
    sizes->scale[number] = scale;
    sizes->length[number] = scale * sqrtf(sum_of(squares));
    sizes->lost[number] = scale * sqrtf(sum_of(lost_squares));
    return sizes->length[number] <= LARGEST_LENGTH;
}

FOR_EACH_CPU static void code_range(void *given, int64_t start, int64_t stop)
{
    CodeJob *job = given;
    int is_usable = 1;
    for (int64_t i = start; i < stop; i++) {
        if (i + 2 < stop)
            prefetch_row(row_of(job->weight, job->ids, i + 2, job->dim), job->dim);
        is_usable &= code_row(row_of(job->weight, job->ids, i, job->dim), job->dim, job->codes + i * job->dim,
                              &job->sizes, i);
    }
    if (!is_usable)
        lower_flag(&job->is_usable);
}

/* ---- the highest ---- */

typedef struct {
    const int32_t *products; /* [N, W], HIDDEN where a class must not count */
    const float *queries, *weight;
    const int64_t *ids;
    Sizes query_sizes, row_sizes;
    int64_t width, dim, kept, num_groups;
    int64_t *places;
    float *scores;
    int64_t num_dots;
    int has_memory;
} HighestJob;

/* The state of the search for one query. */
typedef struct {
    const float *query;
    const int32_t *products;
    float scale, per_length, per_lost; /* of the bounds */
    float *bounds;                     /* [num_groups] the largest upper bound in each group */
    int64_t *groups;                   /* [kept] */
    float *scores;                     /* [kept] the highest so far, highest first, and where they are */
    int64_t *places;
    int64_t found, num_dots;
} Search;

/* No score of this column exceeds this. */
INLINED float upper_bound(const Search *search, const Sizes *sizes, int64_t column)
{
    int32_t product = search->products[column];
    float error = search->per_length * sizes->length[column] + search->per_lost * sizes->lost[column];
    /* Subtracted: choosing between two results would be a branch, for one column at a time. */
    float hidden = product == HIDDEN ? INFINITY : 0;
    /* The product of two tiny scales would underflow float32; one scale times the product does not. */
    return search->scale * (sizes->scale[column] * (float)product) + error - hidden;
}

/* Blocks of MEMBERS * ABREAST columns; a group has every ABREAST-th of its block, so that the maxima of as many groups
 * are taken at once. */
INLINED int64_t column_of(int64_t group, int64_t member)
{
    return (group / ABREAST * MEMBERS + member) * ABREAST + group % ABREAST;
}

INLINED void bound_groups(const HighestJob *job, Search *search)
{
    for (int64_t first = 0; first < job->num_groups; first += ABREAST) {
        float largest[ABREAST];
        for (int64_t lane = 0; lane < ABREAST; lane++)
            largest[lane] = -INFINITY;
        for (int64_t member = 0; member < MEMBERS; member++) {
            int64_t column = column_of(first, member);
            for (int64_t lane = 0; lane < ABREAST; lane++) {
                float bound = upper_bound(search, &job->row_sizes, column + lane), other = largest[lane];
                largest[lane] = bound > other ? bound : other;
            }
        }
        for (int64_t lane = 0; lane < ABREAST; lane++)
            search->bounds[first + lane] = largest[lane];
    }
}

/* The groups with the highest bounds, highest first. */
INLINED void find_best_groups(const HighestJob *job, Search *search)
{
    int64_t found = 0, *groups = search->groups;
    for (int64_t group = 0; group < job->num_groups; group++) {
        float bound = search->bounds[group];
        int64_t place = found;
        if (found < job->kept)
            found++;
        else if (bound <= search->bounds[groups[--place]])
            continue;
        for (; place > 0 && search->bounds[groups[place - 1]] < bound; place--)
            groups[place] = groups[place - 1];
        groups[place] = group;
    }
}

INLINED int64_t best_member(const HighestJob *job, const Search *search, int64_t group)
{
    int64_t best = column_of(group, 0);
    for (int64_t member = 1; member < MEMBERS; member++) {
        int64_t column = column_of(group, member);
        if (upper_bound(search, &job->row_sizes, column) > upper_bound(search, &job->row_sizes, best))
            best = column;
    }
    return best;
}

/* Inserts the column's score if it is among the highest so far. Equal scores beyond those kept are left out. */
INLINED void multiply_out(const HighestJob *job, Search *search, int64_t column)
{
    float score = -INFINITY;
    int64_t place = search->found;
    for (int64_t i = 0; i < search->found; i++)
        if (search->places[i] == column)
            return; /* one of the first rows */
    if (search->products[column] != HIDDEN) {
        score = dot(search->query, row_of(job->weight, job->ids, column, job->dim), job->dim);
        search->num_dots++;
    }
    if (search->found < job->kept)
        search->found++;
    else if (score <= search->scores[--place])
        return;
    for (; place > 0 && search->scores[place - 1] < score; place--) {
        search->scores[place] = search->scores[place - 1];
        search->places[place] = search->places[place - 1];
    }
    search->scores[place] = score;
    search->places[place] = column;
}

/* Starts with as many rows as are kept, one from each of the most promising groups. From then on, the lowest score
 * kept rules out nearly all other rows. */
INLINED void find_highest(const HighestJob *job, Search *search)
{
    const float *least = search->scores + job->kept - 1;
    search->found = 0;
    bound_groups(job, search);
    find_best_groups(job, search);
    for (int64_t i = 0; i < job->kept; i++)
        multiply_out(job, search, best_member(job, search, search->groups[i]));
    for (int64_t group = 0; group < job->num_groups; group++)
        for (int64_t member = 0; member < MEMBERS && search->bounds[group] > *least; member++)
            if (upper_bound(search, &job->row_sizes, column_of(group, member)) > *least)
                multiply_out(job, search, column_of(group, member));
    for (int64_t column = job->num_groups * MEMBERS; column < job->width; column++)
        if (upper_bound(search, &job->row_sizes, column) > *least)
            multiply_out(job, search, column);
}

/* The rounding error of the bounds themselves, per unit of |q| |c|. It grows with the dimension: each lane adds up
 * dim / LANES squares, and the first one up to 31 more. With the square, the sum of the lanes, and the root, which
 * halves the error, a length is too short by at most (dim / LANES + 47) / 2 roundings. Two lengths are multiplied, in 6
 * more operations. Rounding relative to |q| |c| itself, not to what codes lose, is at most 26: up to MAX_DIM, codes lose
 * no more than about the length of the vector. */
INLINED float slack_for(int64_t dim) { return (float)(dim / LANES + 64) * ROUNDING; }

INLINED void begin(const HighestJob *job, Search *search, int64_t query)
{
    float length = job->query_sizes.length[query], lost = job->query_sizes.lost[query], slack = slack_for(job->dim);
    search->query = job->queries + query * job->dim;
    search->products = job->products + query * job->width;
    search->scale = job->query_sizes.scale[query];
    search->per_length = lost * (1 + slack) + length * slack;
    search->per_lost = (length + lost) * (1 + slack); /* at least |q'| */
    search->scores = job->scores + query * job->kept;
    search->places = job->places + query * job->kept;
}

FOR_EACH_CPU static void highest_range(void *given, int64_t start, int64_t stop)
{
    HighestJob *job = given;
    float *bounds = malloc((size_t)job->num_groups * sizeof(float));
    int64_t *groups = malloc((size_t)job->kept * sizeof(int64_t));
    Search search = {.bounds = bounds, .groups = groups};
    if (bounds == NULL || groups == NULL) {
        lower_flag(&job->has_memory);
    } else {
        for (int64_t query = start; query < stop; query++) {
            begin(job, &search, query);
            find_highest(job, &search);
        }
        add_to(&job->num_dots, search.num_dots);
    }
    free(bounds);
    free(groups);
}

/* ---- arguments from Python ---- */

PyDoc_STRVAR(code_rows_doc, "code_rows(weight, dim, ids, codes, sizes, threads) -> is_usable\n\n"
                            "8-bit codes [W, dim] of the rows with these ids, and [3, W] their scale, length, and the\n"
                            "length of what the codes lose. False: a row is not finite, or too long; results are void.");

static PyObject *code_rows(PyObject *module, PyObject *args)
{
    Py_buffer weight, ids, codes, sizes;
    Py_buffer *const buffers[] = {&weight, &ids, &codes, &sizes};
    Py_ssize_t dim;
    int threads, is_sound;
    CodeJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*w*w*i", &weight, &dim, &ids, &codes, &sizes, &threads))
        return NULL;
    int64_t width = count_of(&ids, sizeof(int64_t));
    is_sound = dim > 0 && dim <= MAX_DIM && holds(&ids, width, sizeof(int64_t)) &&
               holds(&codes, width * dim, sizeof(int8_t)) && holds(&sizes, 3 * width, sizeof(float));
    if (is_sound) {
        int64_t num_rows = count_of(&weight, sizeof(float)) / dim;
        is_sound = holds(&weight, num_rows * dim, sizeof(float)) && ids_are_below(ids.buf, width, num_rows);
    }
    if (is_sound) {
        job = (CodeJob){weight.buf, ids.buf, codes.buf, sizes_of(sizes.buf, width), dim, 1};
        Py_BEGIN_ALLOW_THREADS
        in_parallel(code_range, &job, width, ROW_GRAIN, threads);
        Py_END_ALLOW_THREADS
    }
    release(buffers, 4);
    return is_sound ? PyBool_FromLong(job.is_usable) : refusal();
}

PyDoc_STRVAR(highest_doc,
             "highest(products, queries, query_sizes, weight, ids, row_sizes, dim, places, scores, threads) -> dots\n\n"
             "Places [N, T] among ids [W] of the rows with the highest dot product with each query [N, dim], highest\n"
             "first, and the dot products. products: int32 [N, W], those of the codes, or -2**31 for a row that must\n"
             "not count; such a row is named only where too few are left, with the score -inf. T is at most 16 * (W // 256).\n"
             "Returns how many products were taken in float32.");

static PyObject *highest(PyObject *module, PyObject *args)
{
    Py_buffer products, queries, query_sizes, weight, ids, row_sizes, places, scores;
    Py_buffer *const buffers[] = {&products, &queries, &query_sizes, &weight, &ids, &row_sizes, &places, &scores};
    Py_ssize_t dim;
    int threads, is_sound;
    HighestJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*nw*w*i", &products, &queries, &query_sizes, &weight, &ids, &row_sizes,
                          &dim, &places, &scores, &threads))
        return NULL;
    int64_t width = count_of(&ids, sizeof(int64_t)), num_queries = 0;
    is_sound = dim > 0 && dim <= MAX_DIM && holds(&ids, width, sizeof(int64_t)) &&
               holds(&row_sizes, 3 * width, sizeof(float));
    if (is_sound) {
        int64_t num_rows = count_of(&weight, sizeof(float)) / dim, kept;
        int64_t num_groups = width / (MEMBERS * ABREAST) * ABREAST;
        num_queries = count_of(&queries, sizeof(float)) / dim;
        kept = num_queries > 0 ? count_of(&places, sizeof(int64_t)) / num_queries : 0;
        is_sound = holds(&queries, num_queries * dim, sizeof(float)) && holds(&weight, num_rows * dim, sizeof(float)) &&
                   holds(&query_sizes, 3 * num_queries, sizeof(float)) && kept >= 1 && kept <= num_groups &&
                   holds(&places, num_queries * kept, sizeof(int64_t)) &&
                   holds(&scores, num_queries * kept, sizeof(float)) &&
                   holds(&products, num_queries * width, sizeof(int32_t)) && ids_are_below(ids.buf, width, num_rows);
        job = (HighestJob){products.buf, queries.buf,
                           weight.buf,   ids.buf,
                           sizes_of(query_sizes.buf, num_queries), sizes_of(row_sizes.buf, width),
                           width,        dim,
                           kept,         num_groups,
                           places.buf,   scores.buf,
                           0,            1};
    }
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        in_parallel(highest_range, &job, num_queries, QUERY_GRAIN, threads);
        Py_END_ALLOW_THREADS
    }
    release(buffers, 8);
    if (!is_sound)
        return refusal();
    return job.has_memory ? PyLong_FromLongLong(job.num_dots) : PyErr_NoMemory();
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
    .m_doc = "The highest dot products by way of 8-bit integers; see int8.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__int8(void) { return PyModuleDef_Init(&definition); }
