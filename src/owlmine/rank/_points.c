/* The training points nearest to sparse queries, by an inverted index: for each feature the points that have it.
 *
 *     cosine(q, x) = sum over the features f of q: q_f x_f      q and x scaled to length 1 by the caller
 *                                                               x_f = scale_f code_xf, a byte
 *
 * A query walks the lists of its features and adds to a float for each point; then the largest are picked, and the
 * floats are zero again. Lists ascend, so this is done for a block of points at a time, whose floats stay in the cache.
 * sparse_points.py has the same in NumPy, without blocks: a point's sum is added up in the same order.
 *
 * Bounds: sizes of all buffers and the queries are checked before the first is answered; a list is checked when it is
 * walked, because of very many lists a call walks few.
 * Each query is answered by one thread: results do not depend on how many there are.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_parallel.h"

#include <stdlib.h>
#include <string.h>

#define QUERY_GRAIN 1  /* queries that a thread takes at a time: one is work enough */
#define BLOCK 32768    /* points: 128 KiB of floats */
#define TOGETHER 4     /* entries of a list that one question of bounds is asked for */
#define SWEEP_SHARE 16 /* looking at all points of a block in order costs as much as coming back to one in so many */
#define MOST_THREADS 1024

typedef struct {
    const int64_t *offsets;
    const int32_t *ids;
    const float *values;
    int64_t num_rows, num_entries;
} Rows;

/* A list for each feature: the points that have it, with the scale of the list times a code. */
typedef struct {
    const int64_t *offsets;
    const int32_t *ids;
    const int8_t *codes;
    const float *scales;
    int64_t num_rows, num_entries;
} Lists;

typedef struct {
    float cosine;
    int32_t point;
} Found;

/* What a thread has to itself. */
typedef struct {
    int is_taken; /* first: see take_desk */
    float *cosines;  /* [BLOCK], zero between blocks */
    int64_t *places; /* [2 * most entries of a query]: how far each list was walked, and how far before this block */
    Found *heap;     /* [n], the least at the top */
    int64_t count;
} Desk;

typedef struct {
    Rows queries;
    Lists lists;
    int64_t num_points, num_nearest;
    float *out_cosines; /* [N, n] */
    int64_t *out_points;
    Desk *desks;
    int num_desks, is_sound;
} Job;

/* ---- work space ---- */

static void close_desks(Job *job)
{
    for (int i = 0; job->desks != NULL && i < job->num_desks; i++) {
        free(job->desks[i].cosines);
        free(job->desks[i].places);
        free(job->desks[i].heap);
    }
    free(job->desks);
}

static int64_t most_entries(const Rows *rows)
{
    int64_t most = 0;
    for (int64_t i = 0; i < rows->num_rows; i++) {
        int64_t count = rows->offsets[i + 1] - rows->offsets[i];
        most = count > most ? count : most;
    }
    return most;
}

static int open_desks(Job *job, int threads)
{
    int64_t most = most_entries(&job->queries);
    job->num_desks = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    job->desks = calloc((size_t)job->num_desks, sizeof(Desk));
    for (int i = 0; job->desks != NULL && i < job->num_desks; i++) {
        Desk *desk = job->desks + i;
        desk->cosines = calloc(BLOCK, sizeof(float));
        desk->places = malloc((2 * (size_t)most + 1) * sizeof(int64_t));
        desk->heap = malloc(((size_t)job->num_nearest + 1) * sizeof(Found));
        if (desk->cosines == NULL || desk->places == NULL || desk->heap == NULL)
            return 0;
    }
    return job->desks != NULL;
}

/* ---- the largest ---- */

/* Whether ``left`` is named after ``right``: among equals the smaller point comes first. */
INLINED int is_behind(Found left, Found right)
{
    return left.cosine < right.cosine || (left.cosine == right.cosine && left.point > right.point);
}

INLINED void sink(Found *heap, int64_t count, Found given)
{
    int64_t place = 0;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && is_behind(heap[child + 1], heap[child]))
            child++;
        if (!is_behind(heap[child], given))
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = given;
}

INLINED void offer(Desk *desk, int64_t most, Found given)
{
    Found *heap = desk->heap;
    if (desk->count == most) {
        if (is_behind(heap[0], given))
            sink(heap, most, given);
        return;
    }
    int64_t place = desk->count++;
    for (; place > 0 && is_behind(given, heap[(place - 1) / 2]); place = (place - 1) / 2)
        heap[place] = heap[(place - 1) / 2];
    heap[place] = given;
}

/* What a cosine must be above, or as large as, to be named. */
INLINED float least(const Desk *desk, int64_t most) { return desk->count == most ? desk->heap[0].cosine : 0; }

/* ---- one query ---- */

/* The points of a block in order; leaves zeros behind. */
FOR_EACH_CPU
static void sweep(Desk *desk, int64_t first_point, int64_t width, int64_t most)
{
    for (int64_t start = 0; start < width; start += LANES) {
        float *cosines = desk->cosines + start, bound = least(desk, most);
        int above = 0;
        for (int lane = 0; lane < LANES; lane++)
            above |= cosines[lane] > bound;
        for (int lane = 0; above && lane < LANES; lane++)
            if (cosines[lane] > bound) {
                Found given = {cosines[lane], (int32_t)(first_point + start + lane)};
                offer(desk, most, given);
                bound = least(desk, most);
            }
        memset(cosines, 0, LANES * sizeof(float));
    }
}

/* The points of a block that a list has; leaves zeros behind, so that a point is not met twice. */
static void revisit(Desk *desk, const int32_t *points, int64_t count, int64_t first_point, int64_t most)
{
    float *cosines = desk->cosines;
    for (int64_t e = 0; e < count; e++) {
        float cosine = cosines[points[e] - first_point];
        cosines[points[e] - first_point] = 0;
        if (cosine > 0 && cosine >= least(desk, most)) {
            Found given = {cosine, points[e]};
            offer(desk, most, given);
        }
    }
}

/* Adds the part of a list whose points are of the block, from ``place`` on; returns where that ends. */
static int64_t add_part(float *cosines, const Lists *lists, int64_t place, int64_t end, float weight,
                        uint32_t first_point, uint32_t width)
{
    for (; place + TOGETHER <= end; place += TOGETHER) {
        uint32_t points[TOGETHER];
        int are_here = 1;
        for (int i = 0; i < TOGETHER; i++) {
            points[i] = (uint32_t)lists->ids[place + i] - first_point;
            are_here &= points[i] < width;
        }
        if (!are_here)
            break;
        for (int i = 0; i < TOGETHER; i++)
            cosines[points[i]] += weight * (float)lists->codes[place + i];
    }
    for (; place < end; place++) {
        uint32_t point = (uint32_t)lists->ids[place] - first_point;
        if (point >= width)
            break;
        cosines[point] += weight * (float)lists->codes[place];
    }
    return place;
}

static int list_is_sound(const Lists *lists, int64_t feature)
{
    int64_t start = lists->offsets[feature], end = lists->offsets[feature + 1];
    return start >= 0 && start <= end && end <= lists->num_entries;
}

typedef struct {
    const int32_t *features;
    const float *values;
    int64_t count;
} Query;

static void walk_block(const Job *job, Desk *desk, const Query *query, int64_t *starts, int64_t first_point)
{
    const Lists *lists = &job->lists;
    int64_t left = job->num_points - first_point, width = left < BLOCK ? left : BLOCK, walked = 0;
    for (int64_t i = 0; i < query->count; i++) {
        int64_t end = lists->offsets[query->features[i] + 1];
        starts[i] = desk->places[i];
        desk->places[i] = add_part(desk->cosines, lists, starts[i], end,
                                   query->values[i] * lists->scales[query->features[i]], (uint32_t)first_point,
                                   (uint32_t)width);
        walked += desk->places[i] - starts[i];
    }
    if (walked > width / SWEEP_SHARE) {
        sweep(desk, first_point, width, job->num_nearest);
        return;
    }
    for (int64_t i = 0; i < query->count; i++)
        revisit(desk, lists->ids + starts[i], desk->places[i] - starts[i], first_point, job->num_nearest);
}

/* False where a list is not one of ascending points. */
static int walk(const Job *job, Desk *desk, int64_t row)
{
    const Lists *lists = &job->lists;
    int64_t first = job->queries.offsets[row];
    Query query = {job->queries.ids + first, job->queries.values + first, job->queries.offsets[row + 1] - first};
    int64_t *starts = desk->places + query.count;
    desk->count = 0;
    for (int64_t i = 0; i < query.count; i++) {
        if (!list_is_sound(lists, query.features[i]))
            return 0;
        desk->places[i] = lists->offsets[query.features[i]];
    }
    for (int64_t point = 0; point < job->num_points; point += BLOCK)
        walk_block(job, desk, &query, starts, point);
    for (int64_t i = 0; i < query.count; i++)
        if (desk->places[i] != lists->offsets[query.features[i] + 1])
            return 0;
    return 1;
}

/* Highest first; places without a point of positive cosine have zeros. */
static void write_out(const Job *job, Desk *desk, int64_t query)
{
    float *cosines = job->out_cosines + query * job->num_nearest;
    int64_t *points = job->out_points + query * job->num_nearest;
    for (int64_t place = desk->count; place < job->num_nearest; place++) {
        cosines[place] = 0;
        points[place] = 0;
    }
    while (desk->count > 0) {
        int64_t place = --desk->count;
        cosines[place] = desk->heap[0].cosine;
        points[place] = desk->heap[0].point;
        sink(desk->heap, place, desk->heap[place]);
    }
}

static void answer_range(void *given, int64_t start, int64_t stop)
{
    Job *job = given;
    Desk *desk = take_desk(job->desks, job->num_desks, sizeof(Desk));
    for (int64_t query = start; query < stop; query++)
        if (walk(job, desk, query))
            write_out(job, desk, query);
        else
            lower_flag(&job->is_sound);
    leave_desk(desk);
}

/* ---- what Python gives ---- */

/* Fills ``rows``, and tells whether the sizes of its buffers fit each other. */
static int rows_fit(Rows *rows, const Py_buffer *offsets, const Py_buffer *ids, const Py_buffer *values)
{
    Rows given = {offsets->buf, ids->buf, values->buf, count_of(offsets, sizeof(int64_t)) - 1,
                  count_of(ids, sizeof(int32_t))};
    *rows = given;
    return given.num_rows >= 0 && holds(offsets, given.num_rows + 1, sizeof(int64_t)) &&
           holds(ids, given.num_entries, sizeof(int32_t)) && holds(values, given.num_entries, sizeof(float));
}

static int lists_fit(Lists *lists, const Py_buffer *offsets, const Py_buffer *ids, const Py_buffer *codes,
                     const Py_buffer *scales)
{
    Lists given = {offsets->buf, ids->buf, codes->buf, scales->buf, count_of(offsets, sizeof(int64_t)) - 1,
                   count_of(ids, sizeof(int32_t))};
    *lists = given;
    return given.num_rows >= 0 && holds(offsets, given.num_rows + 1, sizeof(int64_t)) &&
           holds(ids, given.num_entries, sizeof(int32_t)) && holds(codes, given.num_entries, 1) &&
           holds(scales, given.num_rows, sizeof(float));
}

static int queries_are_sound(const Rows *queries, int64_t num_features)
{
    int all = 1;
    for (int64_t i = 0; i < queries->num_rows; i++)
        all &= queries->offsets[i] <= queries->offsets[i + 1];
    for (int64_t e = 0; e < queries->num_entries; e++)
        all &= queries->ids[e] >= 0 && queries->ids[e] < num_features;
    return all && ids_are_below(queries->offsets, queries->num_rows + 1, queries->num_entries + 1);
}

PyDoc_STRVAR(nearest_doc,
             "nearest(query_offsets, query_features, query_values, offsets, points, codes, scales, num_points,\n"
             "        num_nearest, out_cosines, out_points, threads)\n\n"
             "For each query the num_nearest points with the highest positive sums of products, highest first and\n"
             "among equals the smaller point first; zeros behind them. Lists of points ascend. Returns the number of\n"
             "queries.");

static PyObject *nearest(PyObject *module, PyObject *args)
{
    Py_buffer query_offsets, query_features, query_values, offsets, points, codes, scales, out_cosines, out_points;
    Py_buffer *const buffers[] = {&query_offsets, &query_features, &query_values, &offsets,   &points,
                                  &codes,         &scales,         &out_cosines,  &out_points};
    Py_ssize_t num_points, num_nearest;
    int threads, is_sound, has_memory = 1;
    int64_t num_out;
    Job job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*nnw*w*i", &query_offsets, &query_features, &query_values, &offsets,
                          &points, &codes, &scales, &num_points, &num_nearest, &out_cosines, &out_points, &threads))
        return NULL;
    job.num_points = num_points;
    job.num_nearest = num_nearest;
    job.out_cosines = out_cosines.buf;
    job.out_points = out_points.buf;
    Py_BEGIN_ALLOW_THREADS
    is_sound = rows_fit(&job.queries, &query_offsets, &query_features, &query_values) &&
               lists_fit(&job.lists, &offsets, &points, &codes, &scales) &&
               queries_are_sound(&job.queries, job.lists.num_rows) && num_points >= 0 && num_points <= INT32_MAX &&
               num_nearest >= 0 && num_nearest <= num_points && job.queries.num_rows <= INT32_MAX;
    num_out = is_sound ? job.queries.num_rows * num_nearest : 0; /* below 2^62 */
    is_sound = is_sound && num_out <= out_points.len && holds(&out_cosines, num_out, sizeof(float)) &&
               holds(&out_points, num_out, sizeof(int64_t));
    if (is_sound && num_nearest > 0) {
        job.is_sound = 1;
        has_memory = open_desks(&job, threads);
        if (has_memory)
            in_parallel(answer_range, &job, job.queries.num_rows, QUERY_GRAIN, job.num_desks);
        close_desks(&job);
        is_sound = job.is_sound;
    }
    Py_END_ALLOW_THREADS
    release(buffers, 9);
    if (!is_sound)
        return refusal();
    return has_memory ? PyLong_FromLongLong(job.queries.num_rows) : PyErr_NoMemory();
}

static PyMethodDef methods[] = {
    {"nearest", nearest, METH_VARARGS, nearest_doc},
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
    .m_name = "owlmine.rank._points",
    .m_doc = "The training points nearest to sparse queries; see sparse_points.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__points(void) { return PyModuleDef_Init(&definition); }
