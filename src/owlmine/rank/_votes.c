/* Votes of neighbours for their labels; votes.py has the same in NumPy.
 *
 *     votes of class c for a query = sum over its neighbours with the label c of their shares
 *
 * Shares are multiples of 2^-40, at most 1, so that sums are exact, in whatever order they are added. The votes of a
 * query are collected in a small table, by class; then they are looked up, or the classes with the most are taken.
 *
 * Bounds: sizes of buffers are checked before the first query, labels as they are read. Each query is
 * answered by one thread: results do not depend on how many there are.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_parallel.h"

#include <stdlib.h>
#include <string.h>

#define QUERY_GRAIN 16
#define MOST_THREADS 1024
#define LEAST_SLOTS 64 /* a power of two */
#define FREE (-1)

typedef struct {
    int64_t id; /* FREE, or a class */
    double votes;
} Slot;

/* What a thread has to itself. */
typedef struct {
    int is_taken; /* first: see take_desk */
    Slot *slots;
    int64_t num_slots; /* a power of two, more than half of them free */
} Desk;

typedef struct {
    const int64_t *points; /* [N, n] */
    const double *shares;
    const int64_t *offsets; /* [P + 1] */
    const int32_t *labels;
    int64_t num_rows, num_nearest, num_points, num_labels;
    const int64_t *ids; /* [N, width], to be looked up; NULL where classes are suggested */
    float *out_votes;   /* [N, width] */
    int64_t *out_ids;   /* [N, width], where classes are suggested */
    int64_t width;
    Desk *desks;
    int num_desks, is_sound, has_memory;
} Job;

/* ---- the table of a query ---- */

/* Where the class is, or where it would be. */
INLINED Slot *slot_of(const Desk *desk, int64_t id)
{
    uint64_t place = ((uint64_t)id * 0x9E3779B97F4A7C15ull) >> 32;
    for (;; place++) {
        Slot *slot = desk->slots + (place & (uint64_t)(desk->num_slots - 1));
        if (slot->id == id || slot->id == FREE)
            return slot;
    }
}

/* An empty table with room for so many classes. */
static int clear_table(Desk *desk, int64_t count)
{
    int64_t num_slots = LEAST_SLOTS;
    while (num_slots <= 2 * count)
        num_slots *= 2;
    if (desk->slots == NULL || desk->num_slots < num_slots) {
        free(desk->slots);
        desk->slots = malloc((size_t)num_slots * sizeof(Slot));
        if (desk->slots == NULL)
            return 0;
    }
    desk->num_slots = num_slots;
    for (int64_t i = 0; i < num_slots; i++)
        desk->slots[i].id = FREE;
    return 1;
}

/* False where a label is none. */
static int count_labels(const Job *job, int64_t row, int64_t *count)
{
    *count = 0;
    for (int64_t i = row * job->num_nearest; i < (row + 1) * job->num_nearest; i++) {
        int64_t start = job->offsets[job->points[i]], end = job->offsets[job->points[i] + 1];
        if (start < 0 || start > end || end > job->num_labels)
            return 0;
        for (int64_t e = start; e < end; e++)
            if (job->labels[e] < 0)
                return 0;
        *count += end - start;
    }
    return 1;
}

static void add_votes(const Job *job, Desk *desk, int64_t row)
{
    for (int64_t i = row * job->num_nearest; i < (row + 1) * job->num_nearest; i++)
        for (int64_t e = job->offsets[job->points[i]]; e < job->offsets[job->points[i] + 1]; e++) {
            Slot *slot = slot_of(desk, job->labels[e]);
            slot->votes = slot->id == FREE ? job->shares[i] : slot->votes + job->shares[i];
            slot->id = job->labels[e];
        }
}

/* ---- answers ---- */

static void look_up(const Job *job, const Desk *desk, int64_t row)
{
    for (int64_t i = row * job->width; i < (row + 1) * job->width; i++) {
        const Slot *slot = job->ids[i] < 0 ? NULL : slot_of(desk, job->ids[i]);
        job->out_votes[i] = slot == NULL || slot->id == FREE ? 0 : (float)slot->votes;
    }
}

INLINED int is_before(const Slot *left, const Slot *right)
{
    return left->votes > right->votes || (left->votes == right->votes && left->id < right->id);
}

/* The classes with the most votes, the smaller id first among equals. The first slots of the table become the list of
 * those found so far: a slot is read before the list reaches it. */
static void suggest(const Job *job, Desk *desk, int64_t row)
{
    Slot *best = desk->slots;
    int64_t count = 0;
    for (int64_t i = 0; i < desk->num_slots; i++) {
        Slot given = desk->slots[i];
        if (given.id == FREE || !(given.votes > 0))
            continue;
        if (count == job->width) {
            if (count == 0 || !is_before(&given, best + count - 1))
                continue;
            count--;
        }
        int64_t place = count++;
        for (; place > 0 && is_before(&given, best + place - 1); place--)
            best[place] = best[place - 1];
        best[place] = given;
    }
    for (int64_t i = 0; i < job->width; i++)
        job->out_ids[row * job->width + i] = i < count ? best[i].id : -1;
}

static void answer_range(void *given, int64_t start, int64_t stop)
{
    Job *job = given;
    Desk *desk = take_desk(job->desks, job->num_desks, sizeof(Desk));
    for (int64_t row = start; row < stop; row++) {
        int64_t count;
        if (!count_labels(job, row, &count)) {
            lower_flag(&job->is_sound);
            continue;
        }
        if (!clear_table(desk, count)) {
            lower_flag(&job->has_memory);
            continue;
        }
        add_votes(job, desk, row);
        if (job->ids != NULL)
            look_up(job, desk, row);
        else
            suggest(job, desk, row);
    }
    leave_desk(desk);
}

/* ---- what Python gives ---- */

static int neighbours_fit(Job *job, const Py_buffer *points, const Py_buffer *shares, const Py_buffer *offsets,
                          const Py_buffer *labels)
{
    job->points = points->buf;
    job->shares = shares->buf;
    job->offsets = offsets->buf;
    job->labels = labels->buf;
    job->num_points = count_of(offsets, sizeof(int64_t)) - 1;
    job->num_labels = count_of(labels, sizeof(int32_t));
    if (job->num_rows < 0 || job->num_nearest < 0 || job->width < 0 || job->num_rows > INT32_MAX ||
        job->num_nearest > INT32_MAX || job->width > INT32_MAX)
        return 0;
    return job->num_points >= 0 && holds(points, job->num_rows * job->num_nearest, sizeof(int64_t)) &&
           holds(shares, job->num_rows * job->num_nearest, sizeof(double)) &&
           holds(offsets, job->num_points + 1, sizeof(int64_t)) && holds(labels, job->num_labels, sizeof(int32_t)) &&
           ids_are_below(job->points, job->num_rows * job->num_nearest, job->num_points);
}

static void run_job(Job *job, int threads)
{
    job->num_desks = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    job->desks = calloc((size_t)job->num_desks, sizeof(Desk));
    job->has_memory = job->desks != NULL;
    if (!job->has_memory)
        return;
    in_parallel(answer_range, job, job->num_rows, QUERY_GRAIN, job->num_desks);
    for (int i = 0; i < job->num_desks; i++)
        free(job->desks[i].slots);
    free(job->desks);
}

PyDoc_STRVAR(look_up_doc, "look_up(points, shares, offsets, labels, num_rows, num_nearest, ids, width, out_votes, threads)\n\n"
                          "The votes of each query for each of its classes; 0 where the id is below 0.");

PyDoc_STRVAR(suggest_doc, "suggest(points, shares, offsets, labels, num_rows, num_nearest, width, out_ids, threads)\n\n"
                          "The classes with the most votes, the smaller id first among equals; -1 behind them.");

static PyObject *answer(Job *job, PyObject *args, int is_suggesting)
{
    Py_buffer points = {0}, shares = {0}, offsets = {0}, labels = {0}, ids = {0}, out = {0};
    Py_buffer *const buffers[] = {&points, &shares, &offsets, &labels, &ids, &out};
    Py_ssize_t num_rows, num_nearest, width;
    int threads, is_parsed;
    if (is_suggesting)
        is_parsed = PyArg_ParseTuple(args, "y*y*y*y*nnnw*i", &points, &shares, &offsets, &labels, &num_rows,
                                     &num_nearest, &width, &out, &threads);
    else
        is_parsed = PyArg_ParseTuple(args, "y*y*y*y*nny*nw*i", &points, &shares, &offsets, &labels, &num_rows,
                                     &num_nearest, &ids, &width, &out, &threads);
    if (!is_parsed)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    job->num_rows = num_rows;
    job->num_nearest = num_nearest;
    job->width = width;
    job->is_sound = neighbours_fit(job, &points, &shares, &offsets, &labels) &&
                    holds(&out, job->num_rows * job->width, is_suggesting ? sizeof(int64_t) : sizeof(float)) &&
                    (is_suggesting || holds(&ids, job->num_rows * job->width, sizeof(int64_t)));
    job->ids = is_suggesting ? NULL : ids.buf;
    job->out_votes = out.buf;
    job->out_ids = out.buf;
    job->has_memory = 1;
    if (job->is_sound)
        run_job(job, threads);
    Py_END_ALLOW_THREADS
    release(buffers, 6);
    if (!job->is_sound)
        return refusal();
    return job->has_memory ? PyLong_FromLongLong(job->num_rows) : PyErr_NoMemory();
}

static PyObject *look_up_votes(PyObject *module, PyObject *args)
{
    Job job = {0};
    (void)module;
    return answer(&job, args, 0);
}

static PyObject *suggest_classes(PyObject *module, PyObject *args)
{
    Job job = {0};
    (void)module;
    return answer(&job, args, 1);
}

static PyMethodDef methods[] = {
    {"look_up", look_up_votes, METH_VARARGS, look_up_doc},
    {"suggest", suggest_classes, METH_VARARGS, suggest_doc},
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
    .m_name = "owlmine.rank._votes",
    .m_doc = "Votes of neighbours for their labels; see votes.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__votes(void) { return PyModuleDef_Init(&definition); }
