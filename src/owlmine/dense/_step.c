/* The parts of a training step that go through its data: sums of feature rows, the hardest classes of the pool, the
 * softmax over them with its gradient, and the moves of class rows and feature rows.
 *
 * Bounds: sizes of all buffers are checked against the counts given, and every id before the first row is read.
 * A query is processed by one thread, and a row of a table is moved by one thread, entry by entry in their order:
 * results do not depend on the number of threads.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_byte_tiles.h"
#include "../_parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LINES 8 /* cache lines of a row that are summed at a time, in registers */
#define AHEAD 4      /* entries whose rows are fetched in advance */
#define MOST_KEPT 16 /* classes that a register holds in order */
#define BLOCK 64     /* queries that a thread takes at a time */
#define POINTS 16    /* points that a thread takes at a time */
#define MOST_DIM 1024

/* The floats of a cache line, anywhere in memory. */
typedef float Line __attribute__((vector_size(LINE * sizeof(float)), aligned(sizeof(float)), may_alias));

/* ``dim`` is a multiple of LINE. */
typedef struct {
    float *weight;
    int64_t num_rows, dim;
} Table;

/* Row n has the entries from offsets[n] to offsets[n + 1]. */
typedef struct {
    const int64_t *offsets;
    const int32_t *ids;
    const float *values;
    int64_t num_rows, num_entries;
} Bags;

INLINED int smaller(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

/* row[0 .. dim] += factor * vector */
INLINED void add_scaled(float *restrict row, const float *restrict vector, float factor, int64_t dim)
{
    for (int64_t d = 0; d < dim; d++)
        row[d] += factor * vector[d];
}

/* ---- points of a table ---- */

typedef struct {
    Bags table;
    const int64_t *rows;
    int64_t num_rows, room, *offsets;
    int32_t *ids;
    float *values;
} GatherJob;

/* Fills the offsets, and returns their last: -1 if a row is not in the table. */
static int64_t gather_offsets(const GatherJob *job)
{
    const Bags *table = &job->table;
    job->offsets[0] = 0;
    for (int64_t n = 0; n < job->num_rows; n++) {
        int64_t row = job->rows[n];
        if ((uint64_t)row >= (uint64_t)table->num_rows || table->offsets[row] < 0 ||
            table->offsets[row + 1] < table->offsets[row] || table->offsets[row + 1] > table->num_entries)
            return -1;
        job->offsets[n + 1] = job->offsets[n] + table->offsets[row + 1] - table->offsets[row];
    }
    return job->offsets[job->num_rows];
}

/* Returns whether all values are finite. */
static int gather_entries(const GatherJob *job)
{
    const Bags *table = &job->table;
    float sum = 0;
    for (int64_t n = 0; n < job->num_rows; n++) {
        int64_t start = table->offsets[job->rows[n]], count = job->offsets[n + 1] - job->offsets[n];
        float *values = job->values + job->offsets[n];
        if (n + 2 < job->num_rows) {
            PREFETCH(table->ids + table->offsets[job->rows[n + 2]]);
            if (table->values != NULL)
                PREFETCH(table->values + table->offsets[job->rows[n + 2]]);
        }
        memcpy(job->ids + job->offsets[n], table->ids + start, (size_t)count * sizeof(int32_t));
        for (int64_t e = 0; e < count; e++) {
            values[e] = table->values == NULL ? 1 : table->values[start + e];
            sum += values[e] * 0;
        }
    }
    return sum == 0;
}

/* ---- sums of feature rows ---- */

typedef struct {
    Table table;
    Bags bags;
    float *sums;
} SumJob;

/* The sum of columns first .. first + LINE of a bag's rows. */
INLINED void sum_lines(const SumJob *job, int64_t n, int64_t first, int num_lines)
{
    const Bags *bags = &job->bags;
    int64_t dim = job->table.dim, end = bags->offsets[n + 1];
    const float *weight = job->table.weight + first;
    Line sums[MOST_LINES] = {{0}};
    for (int64_t e = bags->offsets[n]; e < end; e++) {
        const Line *row = (const Line *)(const void *)(weight + bags->ids[e] * dim);
        if (e + AHEAD < bags->num_entries)
            prefetch_row(weight + bags->ids[e + AHEAD] * dim, num_lines * LINE);
        for (int line = 0; line < num_lines; line++)
            sums[line] += bags->values[e] * row[line];
    }
    for (int line = 0; line < num_lines; line++)
        ((Line *)(void *)(job->sums + n * dim + first))[line] = sums[line];
}

INLINED void sum_bag(const SumJob *job, int64_t n)
{
    int64_t dim = job->table.dim, first = 0;
    float *sums = job->sums + n * dim;
    for (; first + MOST_LINES * LINE <= dim; first += MOST_LINES * LINE)
        sum_lines(job, n, first, MOST_LINES);
    for (; first < dim; first += LINE)
        sum_lines(job, n, first, 1);
    for (int64_t d = 0; d < dim; d++)
        sums[d] = sums[d] > 0 || sums[d] != sums[d] ? sums[d] : 0; /* NaN stays NaN */
}

FOR_EACH_CPU static void sum_range(void *given, int64_t start, int64_t stop)
{
    for (int64_t n = start; n < stop; n++)
        sum_bag(given, n);
}

/* ---- moves of feature rows ---- */

typedef struct {
    Table table;
    Bags bags;
    const float *sums;
    float *steps; /* [N, dim] factor * gradient, where the sum was not cut */
    float factor;
    int parts;
} MoveJob;

FOR_EACH_CPU static void mask_range(void *given, int64_t start, int64_t stop)
{
    const MoveJob *job = given;
    const float *restrict sums = job->sums + start * job->table.dim;
    float *restrict steps = job->steps + start * job->table.dim;
    float factor = job->factor;
    int64_t count = (stop - start) * job->table.dim;
    for (int64_t i = 0; i < count; i++)
        steps[i] = sums[i] > 0 ? factor * steps[i] : 0;
}

/* Part p of the table: the rows p, p + parts, p + 2 parts and so on; ``parts`` is a power of two. */
FOR_EACH_CPU static void move_part(void *given, int64_t start, int64_t stop)
{
    const MoveJob *job = given;
    const Bags *bags = &job->bags;
    int64_t dim = job->table.dim;
    for (int64_t part = start; part < stop; part++)
        for (int64_t n = 0; n < bags->num_rows; n++)
            for (int64_t e = bags->offsets[n]; e < bags->offsets[n + 1]; e++) {
                if (e + AHEAD < bags->num_entries && (bags->ids[e + AHEAD] & (job->parts - 1)) == part)
                    prefetch_row(job->table.weight + bags->ids[e + AHEAD] * dim, dim);
                if ((bags->ids[e] & (job->parts - 1)) == part)
                    add_scaled(job->table.weight + bags->ids[e] * dim, job->steps + n * dim, bags->values[e], dim);
            }
}

/* ---- bytes of the pool ---- */

typedef struct {
    Table table;
    const int64_t *ids;
    int64_t width;
    uint8_t *codes;
    float *scales;
    int is_usable;
} PackJob;

FOR_EACH_CPU static void pack_range(void *given, int64_t start, int64_t stop)
{
    PackJob *job = given;
    int64_t dim = job->table.dim;
    int8_t codes[MOST_DIM];
    int is_usable = 1;
    for (int64_t i = start; i < stop; i++) {
        if (i + AHEAD < job->width)
            prefetch_row(job->table.weight + job->ids[i + AHEAD] * dim, dim);
        job->scales[i] = code_row(job->table.weight + job->ids[i] * dim, dim, codes);
        is_usable &= job->scales[i] >= 0;
        put_into_tile(job->codes, i, codes, dim);
    }
    if (!is_usable)
        lower_flag(&job->is_usable);
}

/* ---- the hardest classes of the pool ---- */

typedef struct {
    const float *queries; /* [N, dim] */
    int64_t num_queries, dim;
    const uint8_t *codes; /* of the pool, with room for whole tiles */
    const float *scales;
    const int64_t *pool_ids, *dropped; /* dropped: the place in the pool that a query leaves out */
    const int64_t *label_offsets, *labels;
    int64_t width, kept, *places; /* [N, kept] in the pool, -1 where too few are left */
    int is_usable;
} MineJob;

#if CAN_MULTIPLY_BYTES
/* The highest scores of a query so far, highest first, and their places in the pool. */
typedef struct {
    __m512 scores;
    __m512i places;
} Best;

INLINED int counts(const MineJob *job, int64_t query, int64_t place)
{
    if (place >= job->width || place == job->dropped[query])
        return 0;
    for (int64_t l = job->label_offsets[query]; l < job->label_offsets[query + 1]; l++)
        if (job->labels[l] == job->pool_ids[place])
            return 0;
    return 1;
}

WITH_BYTES static inline void insert(Best *best, float score, int place)
{
    /* Of equal scores, the first one found comes first. */
    __mmask16 higher = _mm512_cmp_ps_mask(best->scores, _mm512_set1_ps(score), _CMP_GE_OQ);
    __mmask16 others = (__mmask16) ~(higher + 1u);
    if (higher == 0xFFFF)
        return;
    best->scores = _mm512_mask_expand_ps(_mm512_set1_ps(score), others, best->scores);
    best->places = _mm512_mask_expand_epi32(_mm512_set1_epi32(place), others, best->places);
}

/* Rows ``place`` and on of the pool with the products of one query. */
WITH_BYTES static inline void take_tile(const MineJob *job, int64_t query, Best *best, int64_t place,
                                        const __m512i products[TILE / 16])
{
    __m512 scores[TILE / 16], least = _mm512_permutexvar_ps(_mm512_set1_epi32(15), best->scores);
    uint64_t higher = 0;
    for (int group = 0; group < TILE / 16; group++) {
        scores[group] = _mm512_mul_ps(_mm512_cvtepi32_ps(products[group]), _mm512_loadu_ps(job->scales + place + 16 * group));
        higher |= (uint64_t)_mm512_cmp_ps_mask(scores[group], least, _CMP_GT_OQ) << (16 * group);
    }
    if (higher == 0)
        return;
    float written[TILE];
    for (int group = 0; group < TILE / 16; group++)
        _mm512_storeu_ps(written + 16 * group, scores[group]);
    for (; higher != 0; higher &= higher - 1) {
        int row = __builtin_ctzll(higher);
        if (written[row] > _mm512_cvtss_f32(_mm512_permutexvar_ps(_mm512_set1_epi32(15), best->scores)) &&
            counts(job, query, place + row))
            insert(best, written[row], (int)place + row);
    }
}

WITH_BYTES static void mine_block(MineJob *job, int64_t start, int64_t count)
{
    int8_t codes[BLOCK * MOST_DIM];
    Best best[BLOCK];
    int32_t starts[BLOCK] = {0};
    if (!code_queries(job->queries + start * job->dim, count, job->dim, codes, starts)) {
        lower_flag(&job->is_usable);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        best[i] = (Best){_mm512_set1_ps(-INFINITY), _mm512_set1_epi32(-1)};
    for (int64_t place = 0; place < job->width; place += TILE)
        for (int64_t i = 0; i < count; i += QUERIES) {
            __m512i products[QUERIES][TILE / 16];
            multiply_tile(job->codes + place * job->dim, codes + i * job->dim, starts + i, job->dim, products);
            for (int64_t q = 0; q < QUERIES && i + q < count; q++)
                take_tile(job, start + i + q, best + i + q, place, products[q]);
        }
    for (int64_t i = 0; i < count; i++) {
        int32_t places[MOST_KEPT];
        _mm512_storeu_si512(places, best[i].places);
        for (int64_t t = 0; t < job->kept; t++)
            job->places[(start + i) * job->kept + t] = places[t];
    }
}

static void mine_range(void *given, int64_t start, int64_t stop)
{
    MineJob *job = given;
    for (int64_t n = start; n < stop; n += BLOCK)
        mine_block(job, n, smaller(BLOCK, stop - n));
}
#endif

/* ---- softmax over the positive and the hardest ---- */

typedef struct {
    Table table;
    const float *queries;
    const int64_t *positives, *pool_ids, *dropped, *places;
    int64_t num_queries, width, kept;
    float scale, *losses, *slopes, *gradient; /* slopes: of the loss in each score [N, 1 + kept] */
} SoftmaxJob;

/* The class at place t of a query, -1 where there is none; its positive comes first. */
INLINED int64_t id_of(const SoftmaxJob *job, int64_t n, int64_t t)
{
    int64_t place = t == 0 ? -1 : job->places[n * job->kept + t - 1];
    return t == 0 ? job->positives[n] : place < 0 ? -1 : job->pool_ids[place];
}

/* loss = log(sum of e^score) - score of the positive, with scale * product as a score. */
INLINED void softmax_of(const SoftmaxJob *job, int64_t n)
{
    float scores[1 + MOST_KEPT] = {0}, highest = -INFINITY, sum = 0, *slopes = job->slopes + n * (1 + job->kept);
    int64_t dim = job->table.dim;
    const float *query = job->queries + n * dim;
    for (int64_t t = 0; t <= job->kept; t++) {
        int64_t id = id_of(job, n, t);
        scores[t] = id < 0 ? -INFINITY : job->scale * dot(query, job->table.weight + id * dim, dim);
        highest = scores[t] > highest ? scores[t] : highest;
    }
    for (int64_t t = 0; t <= job->kept; t++)
        sum += slopes[t] = expf(scores[t] - highest);
    job->losses[n] = logf(sum) + highest - scores[0];
    for (int64_t t = 0; t <= job->kept; t++)
        slopes[t] *= job->scale / sum;
    slopes[0] -= job->scale;
}

FOR_EACH_CPU static void softmax_range(void *given, int64_t start, int64_t stop)
{
    const SoftmaxJob *job = given;
    int64_t dim = job->table.dim;
    for (int64_t n = start; n < stop; n++) {
        float *gradient = job->gradient + n * dim;
        for (int64_t t = 0; t <= job->kept && n + 1 < stop; t++)
            if (id_of(job, n + 1, t) >= 0)
                prefetch_row(job->table.weight + id_of(job, n + 1, t) * dim, dim);
        softmax_of(job, n);
        memset(gradient, 0, (size_t)dim * sizeof(float));
        for (int64_t t = 0; t <= job->kept; t++)
            if (id_of(job, n, t) >= 0)
                add_scaled(gradient, job->table.weight + id_of(job, n, t) * dim, job->slopes[n * (1 + job->kept) + t],
                           dim);
    }
}

/* ---- moves of class rows ---- */

typedef struct {
    SoftmaxJob softmax;
    float rate;
    int parts;
    int has_memory;
} ClassMoveJob;

INLINED void scale_to_unit(float *row, int64_t dim)
{
    float length = sqrtf(dot(row, row, dim));
    length = length < 1e-12f ? 1e-12f : length;
    for (int64_t d = 0; d < dim; d++)
        row[d] /= length;
}

/* All steps of the rows p, p + parts, p + 2 parts and so on; ``moved``: places of the pool that took one. */
INLINED void step_classes(const ClassMoveJob *job, int64_t part, char *moved)
{
    const SoftmaxJob *softmax = &job->softmax;
    int64_t dim = softmax->table.dim, per_query = 1 + softmax->kept;
    for (int64_t n = 0; n < softmax->num_queries; n++)
        for (int64_t t = 0; t < per_query; t++) {
            int64_t id = id_of(softmax, n, t);
            if (id < 0 || (id & (job->parts - 1)) != part)
                continue;
            if (t > 0)
                moved[softmax->places[n * softmax->kept + t - 1]] = 1;
            add_scaled(softmax->table.weight + id * dim, softmax->queries + n * dim,
                       -job->rate * softmax->slopes[n * per_query + t], dim);
        }
}

/* The rows that took a step, to length 1. A positive outside the pool is scaled once for each of its points. */
INLINED void scale_classes(const ClassMoveJob *job, int64_t part, char *moved)
{
    const SoftmaxJob *softmax = &job->softmax;
    int64_t dim = softmax->table.dim;
    for (int64_t n = 0; n < softmax->num_queries; n++) {
        int64_t id = softmax->positives[n];
        if ((id & (job->parts - 1)) != part)
            continue;
        if (softmax->pool_ids[softmax->dropped[n]] == id)
            moved[softmax->dropped[n]] = 1;
        else
            scale_to_unit(softmax->table.weight + id * dim, dim);
    }
    for (int64_t place = 0; place < softmax->width; place++)
        if (moved[place])
            scale_to_unit(softmax->table.weight + softmax->pool_ids[place] * dim, dim);
}

FOR_EACH_CPU static void move_classes_part(void *given, int64_t start, int64_t stop)
{
    ClassMoveJob *job = given;
    for (int64_t part = start; part < stop; part++) {
        char *moved = calloc((size_t)job->softmax.width + 1, 1);
        if (moved == NULL) {
            lower_flag(&job->has_memory);
            return;
        }
        step_classes(job, part, moved);
        scale_classes(job, part, moved);
        free(moved);
    }
}

/* ---- arguments from Python ---- */

static int table_of(Table *table, const Py_buffer *weight, Py_ssize_t dim)
{
    *table = (Table){weight->buf, dim > 0 ? count_of(weight, sizeof(float)) / dim : 0, dim};
    return dim > 0 && dim <= MOST_DIM && dim % LINE == 0 && holds(weight, table->num_rows * dim, sizeof(float));
}

/* From 0 to ``end``. */
static int offsets_are_sound(const int64_t *offsets, int64_t count, int64_t end)
{
    int sound = count > 0 && offsets[0] == 0 && offsets[count - 1] == end;
    for (int64_t i = 1; i < count; i++)
        sound &= offsets[i - 1] <= offsets[i];
    return sound;
}

static int narrow_ids_are_below(const int32_t *ids, int64_t count, int64_t bound)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = (uint32_t)ids[i] > largest ? (uint32_t)ids[i] : largest;
    return count == 0 || largest < bound;
}

static int bags_of(Bags *bags, const Py_buffer *offsets, const Py_buffer *ids, const Py_buffer *values, int64_t num_rows)
{
    *bags = (Bags){offsets->buf, ids->buf, values->buf, count_of(offsets, sizeof(int64_t)) - 1,
                   count_of(ids, sizeof(int32_t))};
    return holds(offsets, bags->num_rows + 1, sizeof(int64_t)) && holds(ids, bags->num_entries, sizeof(int32_t)) &&
           holds(values, bags->num_entries, sizeof(float)) &&
           offsets_are_sound(bags->offsets, bags->num_rows + 1, bags->num_entries) &&
           narrow_ids_are_below(bags->ids, bags->num_entries, num_rows);
}

/* As many parts of a table as threads can move, a power of two. */
static int parts_for(int threads)
{
    int parts = 1;
    while (2 * parts <= threads && parts < 64)
        parts *= 2;
    return parts;
}

static PyObject *finished(Py_buffer *const *buffers, int count, int is_sound, int has_memory)
{
    release(buffers, count);
    if (!is_sound)
        return refusal();
    if (!has_memory)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(gather_doc,
             "gather(offsets, ids, values, rows, num_columns, new_offsets, new_ids, new_values) -> entries\n\n"
             "The rows of a table with these numbers; values may be None, for 1. If there is too little room, only the\n"
             "offsets are written. -1: a row, an id or a value is not sound.");

static PyObject *gather(PyObject *module, PyObject *args)
{
    Py_buffer offsets, ids, values, rows, new_offsets, new_ids, new_values;
    Py_buffer *const buffers[] = {&offsets, &ids, &values, &rows, &new_offsets, &new_ids, &new_values};
    Py_ssize_t num_columns;
    GatherJob job = {0};
    int is_sound;
    int64_t entries = -1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*z*y*nw*w*w*", &offsets, &ids, &values, &rows, &num_columns, &new_offsets, &new_ids,
                          &new_values))
        return NULL;
    job.table = (Bags){offsets.buf, ids.buf, values.buf, count_of(&offsets, sizeof(int64_t)) - 1,
                       count_of(&ids, sizeof(int32_t))};
    job.rows = rows.buf;
    job.num_rows = count_of(&rows, sizeof(int64_t));
    job.room = count_of(&new_ids, sizeof(int32_t));
    job.offsets = new_offsets.buf;
    job.ids = new_ids.buf;
    job.values = new_values.buf;
    is_sound = holds(&offsets, job.table.num_rows + 1, sizeof(int64_t)) && holds(&rows, job.num_rows, sizeof(int64_t)) &&
               holds(&ids, job.table.num_entries, sizeof(int32_t)) && holds(&new_ids, job.room, sizeof(int32_t)) &&
               (values.buf == NULL || holds(&values, job.table.num_entries, sizeof(float))) &&
               holds(&new_values, job.room, sizeof(float)) && holds(&new_offsets, job.num_rows + 1, sizeof(int64_t));
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        entries = gather_offsets(&job);
        if (entries >= 0 && entries <= job.room &&
            !(gather_entries(&job) && narrow_ids_are_below(job.ids, entries, num_columns)))
            entries = -1;
        Py_END_ALLOW_THREADS
    }
    release(buffers, 7);
    return is_sound ? PyLong_FromLongLong(entries) : refusal();
}

PyDoc_STRVAR(sum_bags_doc, "sum_bags(weight, dim, offsets, ids, values, sums, threads)\n\n"
                           "sums[n] = max(0, sum of values[e] * weight[ids[e]] over the entries e of n)");

static PyObject *sum_bags(PyObject *module, PyObject *args)
{
    Py_buffer weight, offsets, ids, values, sums;
    Py_buffer *const buffers[] = {&weight, &offsets, &ids, &values, &sums};
    Py_ssize_t dim;
    int threads, is_sound;
    SumJob job;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*y*y*w*i", &weight, &dim, &offsets, &ids, &values, &sums, &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_sound = table_of(&job.table, &weight, dim) && bags_of(&job.bags, &offsets, &ids, &values, job.table.num_rows) &&
               holds(&sums, job.bags.num_rows * dim, sizeof(float));
    if (is_sound) {
        job.sums = sums.buf;
        in_parallel(sum_range, &job, job.bags.num_rows, POINTS, threads);
    }
    Py_END_ALLOW_THREADS
    return finished(buffers, 5, is_sound, 1);
}

PyDoc_STRVAR(move_bags_doc, "move_bags(weight, dim, offsets, ids, values, sums, gradient, factor, threads)\n\n"
                            "weight[ids[e]] += factor * values[e] * gradient[n] for the entries e of n, where sums[n] > 0.\n"
                            "The gradient is overwritten.");

static PyObject *move_bags(PyObject *module, PyObject *args)
{
    Py_buffer weight, offsets, ids, values, sums, gradient;
    Py_buffer *const buffers[] = {&weight, &offsets, &ids, &values, &sums, &gradient};
    Py_ssize_t dim;
    double factor;
    int threads, is_sound;
    MoveJob job;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*ny*y*y*y*w*di", &weight, &dim, &offsets, &ids, &values, &sums, &gradient, &factor,
                          &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_sound = table_of(&job.table, &weight, dim) && bags_of(&job.bags, &offsets, &ids, &values, job.table.num_rows) &&
               holds(&sums, job.bags.num_rows * dim, sizeof(float)) &&
               holds(&gradient, job.bags.num_rows * dim, sizeof(float));
    if (is_sound) {
        job.sums = sums.buf;
        job.steps = gradient.buf;
        job.factor = (float)factor;
        job.parts = parts_for(threads);
        mask_range(&job, 0, job.bags.num_rows);
        in_parallel(move_part, &job, job.parts, 1, job.parts);
    }
    Py_END_ALLOW_THREADS
    return finished(buffers, 6, is_sound, 1);
}

PyDoc_STRVAR(mine_doc,
             "mine(weight, dim, queries, pool_ids, dropped, label_offsets, labels, codes, scales, places, threads)\n"
             "-> is_usable\n\n"
             "Places [N, T] in the pool of each query's highest products of bytes, highest first, without its labels and\n"
             "the place that it leaves out; -1 where too few are left. False: a number is not finite, or too large;\n"
             "results are void. Codes and scales are memory for the pool, in whole tiles of 64 classes.");

static PyObject *mine(PyObject *module, PyObject *args)
{
    Py_buffer weight, queries, pool_ids, dropped, label_offsets, labels, codes, scales, places;
    Py_buffer *const buffers[] = {&weight, &queries, &pool_ids, &dropped, &label_offsets, &labels, &codes, &scales, &places};
    Py_ssize_t dim;
    int threads, is_sound, is_usable = 0;
    PackJob pack = {0};
    MineJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*y*y*y*y*w*w*w*i", &weight, &dim, &queries, &pool_ids, &dropped, &label_offsets,
                          &labels, &codes, &scales, &places, &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pack.ids = job.pool_ids = pool_ids.buf;
    pack.width = job.width = count_of(&pool_ids, sizeof(int64_t));
    job.queries = queries.buf;
    job.dim = dim;
    job.dropped = dropped.buf;
    job.num_queries = count_of(&dropped, sizeof(int64_t));
    job.label_offsets = label_offsets.buf;
    job.labels = labels.buf;
    job.kept = job.num_queries > 0 ? count_of(&places, sizeof(int64_t)) / job.num_queries : 0;
    job.places = places.buf;
    is_sound = multiplies_bytes() && table_of(&pack.table, &weight, dim) && job.width > 0 && job.width < INT32_MAX - TILE &&
               holds(&pool_ids, job.width, sizeof(int64_t)) && holds(&dropped, job.num_queries, sizeof(int64_t)) &&
               job.num_queries > 0 && holds(&queries, job.num_queries * dim, sizeof(float)) && job.kept >= 1 &&
               job.kept <= MOST_KEPT && holds(&places, job.num_queries * job.kept, sizeof(int64_t)) &&
               ids_are_below(job.pool_ids, job.width, pack.table.num_rows) &&
               ids_are_below(job.dropped, job.num_queries, job.width) &&
               holds(&label_offsets, job.num_queries + 1, sizeof(int64_t)) &&
               holds(&labels, count_of(&labels, sizeof(int64_t)), sizeof(int64_t)) &&
               offsets_are_sound(job.label_offsets, job.num_queries + 1, count_of(&labels, sizeof(int64_t)));
    if (is_sound) {
        int64_t whole = (job.width + TILE - 1) / TILE * TILE;
        is_sound = holds(&codes, whole * dim, 1) && holds(&scales, whole, sizeof(float));
        job.codes = pack.codes = codes.buf;
        job.scales = pack.scales = scales.buf;
    }
#if CAN_MULTIPLY_BYTES
    if (is_sound) {
        pack.is_usable = job.is_usable = 1;
        in_parallel(pack_range, &pack, job.width, TILE, threads);
        if (pack.is_usable)
            in_parallel(mine_range, &job, job.num_queries, BLOCK, threads);
        is_usable = pack.is_usable && job.is_usable;
    }
#endif
    Py_END_ALLOW_THREADS
    release(buffers, 9);
    return is_sound ? PyBool_FromLong(is_usable) : refusal();
}

PyDoc_STRVAR(learn_doc,
             "learn(weight, dim, queries, positives, pool_ids, dropped, places, scale, rate, losses, gradient, threads)\n\n"
             "Softmax of scale * product over the positive of each query and its places in the pool: losses [N] and their\n"
             "gradient [N, dim] in the queries. Then class rows move by -rate * gradient and get the length 1.");

static PyObject *learn(PyObject *module, PyObject *args)
{
    Py_buffer weight, queries, positives, pool_ids, dropped, places, losses, gradient;
    Py_buffer *const buffers[] = {&weight, &queries, &positives, &pool_ids, &dropped, &places, &losses, &gradient};
    Py_ssize_t dim;
    double scale, rate;
    int threads, is_sound;
    ClassMoveJob job = {.has_memory = 1};
    SoftmaxJob *softmax = &job.softmax;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*ny*y*y*y*y*ddw*w*i", &weight, &dim, &queries, &positives, &pool_ids, &dropped, &places,
                          &scale, &rate, &losses, &gradient, &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    softmax->queries = queries.buf;
    softmax->positives = positives.buf;
    softmax->pool_ids = pool_ids.buf;
    softmax->dropped = dropped.buf;
    softmax->places = places.buf;
    softmax->num_queries = count_of(&positives, sizeof(int64_t));
    softmax->width = count_of(&pool_ids, sizeof(int64_t));
    softmax->kept = softmax->num_queries > 0 ? count_of(&places, sizeof(int64_t)) / softmax->num_queries : 0;
    softmax->scale = (float)scale;
    softmax->losses = losses.buf;
    softmax->gradient = gradient.buf;
    job.rate = (float)rate;
    job.parts = parts_for(threads);
    is_sound = table_of(&softmax->table, &weight, dim) && holds(&positives, softmax->num_queries, sizeof(int64_t)) &&
               softmax->num_queries > 0 && softmax->kept <= MOST_KEPT &&
               holds(&queries, softmax->num_queries * dim, sizeof(float)) &&
               holds(&gradient, softmax->num_queries * dim, sizeof(float)) &&
               holds(&losses, softmax->num_queries, sizeof(float)) &&
               holds(&pool_ids, softmax->width, sizeof(int64_t)) &&
               holds(&dropped, softmax->num_queries, sizeof(int64_t)) &&
               holds(&places, softmax->num_queries * softmax->kept, sizeof(int64_t)) &&
               ids_are_below(softmax->positives, softmax->num_queries, softmax->table.num_rows) &&
               ids_are_below(softmax->pool_ids, softmax->width, softmax->table.num_rows) &&
               ids_are_below(softmax->dropped, softmax->num_queries, softmax->width);
    for (int64_t i = 0; is_sound && i < softmax->num_queries * softmax->kept; i++)
        is_sound = softmax->places[i] >= -1 && softmax->places[i] < softmax->width;
    if (is_sound) {
        softmax->slopes = malloc((size_t)(softmax->num_queries * (1 + softmax->kept)) * sizeof(float));
        job.has_memory = softmax->slopes != NULL;
        if (job.has_memory) {
            in_parallel(softmax_range, softmax, softmax->num_queries, POINTS, threads);
            in_parallel(move_classes_part, &job, job.parts, 1, job.parts);
        }
        free(softmax->slopes);
    }
    Py_END_ALLOW_THREADS
    return finished(buffers, 8, is_sound, job.has_memory);
}

PyDoc_STRVAR(multiplies_bytes_doc, "multiplies_bytes() -> bool\n\nWhether this CPU has the instructions that mine needs.");

static PyObject *multiplies(PyObject *module, PyObject *args)
{
    (void)module;
    (void)args;
    return PyBool_FromLong(multiplies_bytes());
}

static PyMethodDef methods[] = {
    {"multiplies_bytes", multiplies, METH_NOARGS, multiplies_bytes_doc},
    {"gather", gather, METH_VARARGS, gather_doc},
    {"sum_bags", sum_bags, METH_VARARGS, sum_bags_doc},
    {"mine", mine, METH_VARARGS, mine_doc},
    {"learn", learn, METH_VARARGS, learn_doc},
    {"move_bags", move_bags, METH_VARARGS, move_bags_doc},
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
    .m_name = "owlmine.dense._step",
    .m_doc = "Parts of a training step; see compiled_step.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__step(void) { return PyModuleDef_Init(&definition); }
