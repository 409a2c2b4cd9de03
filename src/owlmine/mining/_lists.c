/* The best of all classes for many queries, by products of bytes: what is found is not written down first.
 *
 * Scores of a tile of classes are compared with the lowest score that can still count, and few pass. What passes is
 * collected; when the room is full, the best stay and the bar rises.
 *
 * Bounds: sizes of all buffers are checked against the counts given. A query is processed by one thread, so results do
 * not depend on the number of threads.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_byte_tiles.h"
#include "../_parallel.h"

#include <stdlib.h>

#define BLOCK 64       /* queries that a thread takes at a time */
#define MOST_DIM 4096
#define MOST_KEPT 1024
#define SPARE 128      /* room for what passes, besides the best: two tiles at least */
#define ROW_GRAIN 1024

typedef struct {
    const float *queries;
    const int8_t *rows;
    const float *scales;
    int64_t num_queries, num_rows, dim, kept;
    uint8_t *tiles;
    float *tile_scales;
    int64_t *ids; /* [N, kept] */
    int is_usable, has_memory;
} ListJob;

static void pack_range(void *given, int64_t start, int64_t stop)
{
    ListJob *job = given;
    int8_t codes[MOST_DIM];
    for (int64_t i = start; i < stop; i++) {
        memcpy(codes, job->rows + i * job->dim, (size_t)job->dim);
        put_into_tile(job->tiles, i, codes, job->dim);
        job->tile_scales[i] = job->scales[i];
    }
}

#if CAN_MULTIPLY_BYTES
/* What has passed so far, in no order. */
typedef struct {
    float *scores;
    int32_t *ids;
    int64_t count;
    float bar; /* to be passed */
} Passed;

WITH_BYTES static inline int64_t count_above(const float *scores, int64_t count, float bar)
{
    int64_t above = 0;
    for (int64_t i = 0; i < count; i += 16) {
        __mmask16 real = (__mmask16)(count - i >= 16 ? 0xFFFF : (1u << (count - i)) - 1);
        above += __builtin_popcount(_mm512_mask_cmp_ps_mask(real, _mm512_loadu_ps(scores + i), _mm512_set1_ps(bar), _CMP_GT_OQ));
    }
    return above;
}

/* Removes what does not pass the bar, but for ``most`` that are equal to it. */
WITH_BYTES static inline void remove_below(Passed *passed, float bar, int64_t most)
{
    int64_t count = 0;
    for (int64_t i = 0; i < passed->count; i++) {
        int equal = passed->scores[i] == bar && most > 0;
        most -= equal;
        if (passed->scores[i] > bar || equal) {
            passed->scores[count] = passed->scores[i];
            passed->ids[count++] = passed->ids[i];
        }
    }
    passed->count = count;
}

/* Leaves the ``kept`` best, or up to ``slack`` more, and raises the bar to what they have passed. */
WITH_BYTES static inline void keep_best(Passed *passed, int64_t kept, int64_t slack)
{
    float low = INFINITY, high = -INFINITY;
    int64_t above;
    if (passed->count <= kept + slack)
        return;
    for (int64_t i = 0; i < passed->count; i++) {
        low = passed->scores[i] < low ? passed->scores[i] : low;
        high = passed->scores[i] > high ? passed->scores[i] : high;
    }
    /* At least ``kept`` pass ``low``, or nothing is below it; fewer pass ``high``. */
    for (;;) {
        float middle = low + (high - low) / 2;
        if (!(middle > low && middle < high))
            break;
        above = count_above(passed->scores, passed->count, middle);
        if (above >= kept)
            low = middle;
        else
            high = middle;
        if (above >= kept && above <= kept + slack)
            break;
    }
    above = count_above(passed->scores, passed->count, low);
    if (above > kept + slack) { /* more are equal to the next number than may stay */
        low = high;
        above = count_above(passed->scores, passed->count, low);
    }
    remove_below(passed, low, kept - above);
    passed->bar = low;
}

WITH_BYTES static inline void take_tile(const ListJob *job, Passed *passed, int64_t first, const __m512i products[TILE / 16])
{
    int64_t left = job->num_rows - first;
    uint64_t real = left >= TILE ? ~(uint64_t)0 : ((uint64_t)1 << left) - 1;
    for (int group = 0; group < TILE / 16; group++) {
        __m512 scores = _mm512_mul_ps(_mm512_cvtepi32_ps(products[group]), _mm512_loadu_ps(job->tile_scales + first + 16 * group));
        __mmask16 passes = _mm512_mask_cmp_ps_mask((__mmask16)(real >> (16 * group)), scores, _mm512_set1_ps(passed->bar), _CMP_GT_OQ);
        if (passes == 0)
            continue;
        __m512i ids = _mm512_add_epi32(_mm512_set1_epi32((int)first + 16 * group),
                                       _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        _mm512_storeu_ps(passed->scores + passed->count, _mm512_maskz_compress_ps(passes, scores));
        _mm512_storeu_si512(passed->ids + passed->count, _mm512_maskz_compress_epi32(passes, ids));
        passed->count += __builtin_popcount(passes);
    }
    if (passed->count > job->kept + SPARE - TILE)
        keep_best(passed, job->kept, SPARE / 8);
}

WITH_BYTES static void list_block(ListJob *job, int64_t start, int64_t count, int8_t *codes, float *scores, int32_t *ids)
{
    int32_t starts[BLOCK] = {0};
    Passed passed[BLOCK];
    int64_t room = job->kept + SPARE + 16;
    if (!code_queries(job->queries + start * job->dim, count, job->dim, codes, starts)) {
        lower_flag(&job->is_usable);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        passed[i] = (Passed){scores + i * room, ids + i * room, 0, -INFINITY};
    for (int64_t first = 0; first < job->num_rows; first += TILE)
        for (int64_t i = 0; i < count; i += QUERIES) {
            __m512i products[QUERIES][TILE / 16];
            multiply_tile(job->tiles + first * job->dim, codes + i * job->dim, starts + i, job->dim, products);
            for (int64_t q = 0; q < QUERIES && i + q < count; q++)
                take_tile(job, passed + i + q, first, products[q]);
        }
    for (int64_t i = 0; i < count; i++) {
        keep_best(passed + i, job->kept, 0);
        for (int64_t t = 0; t < job->kept; t++)
            job->ids[(start + i) * job->kept + t] = t < passed[i].count ? passed[i].ids[t] : -1;
    }
}

static void list_range(void *given, int64_t start, int64_t stop)
{
    ListJob *job = given;
    size_t room = (size_t)(job->kept + SPARE + 16) * BLOCK;
    int8_t *codes = calloc(BLOCK, (size_t)job->dim);
    float *scores = malloc(room * sizeof(float));
    int32_t *ids = malloc(room * sizeof(int32_t));
    if (codes == NULL || scores == NULL || ids == NULL)
        lower_flag(&job->has_memory);
    else
        for (int64_t n = start; n < stop; n += BLOCK)
            list_block(job, n, stop - n < BLOCK ? stop - n : BLOCK, codes, scores, ids);
    free(codes);
    free(scores);
    free(ids);
}
#endif

PyDoc_STRVAR(multiplies_bytes_doc, "multiplies_bytes() -> bool\n\nWhether this CPU has the instructions for it.");

static PyObject *multiplies(PyObject *module, PyObject *args)
{
    (void)module;
    (void)args;
    return PyBool_FromLong(multiplies_bytes());
}

PyDoc_STRVAR(pack_doc, "pack(codes, scales, num_rows, dim, tiles, tile_scales, threads)\n\n"
                       "Rows of bytes [K, dim] and their scales, in whole tiles of 64 rows.");

static PyObject *pack(PyObject *module, PyObject *args)
{
    Py_buffer codes, scales, tiles, tile_scales;
    Py_buffer *const buffers[] = {&codes, &scales, &tiles, &tile_scales};
    Py_ssize_t num_rows, dim;
    int threads, is_sound;
    ListJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*nnw*w*i", &codes, &scales, &num_rows, &dim, &tiles, &tile_scales, &threads))
        return NULL;
    int64_t whole = (num_rows + TILE - 1) / TILE * TILE;
    is_sound = dim > 0 && dim % CHUNK == 0 && dim <= MOST_DIM && num_rows >= 0 && holds(&codes, num_rows * dim, 1) &&
               holds(&scales, num_rows, sizeof(float)) && holds(&tiles, whole * dim, 1) &&
               holds(&tile_scales, whole, sizeof(float));
    if (is_sound) {
        job.rows = codes.buf;
        job.scales = scales.buf;
        job.dim = dim;
        job.tiles = tiles.buf;
        job.tile_scales = tile_scales.buf;
        Py_BEGIN_ALLOW_THREADS
        in_parallel(pack_range, &job, num_rows, ROW_GRAIN, threads);
        Py_END_ALLOW_THREADS
    }
    release(buffers, 4);
    if (!is_sound)
        return refusal();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(best_doc, "best(queries, tiles, tile_scales, num_rows, dim, ids, threads) -> is_usable\n\n"
                       "Ids [N, T] of the rows with the highest products of bytes, in no order. False: a number is not\n"
                       "finite, or too large; results are void.");

static PyObject *best(PyObject *module, PyObject *args)
{
    Py_buffer queries, tiles, tile_scales, ids;
    Py_buffer *const buffers[] = {&queries, &tiles, &tile_scales, &ids};
    Py_ssize_t num_rows, dim;
    int threads, is_sound;
    ListJob job = {.is_usable = 1, .has_memory = 1};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*nnw*i", &queries, &tiles, &tile_scales, &num_rows, &dim, &ids, &threads))
        return NULL;
    int64_t whole = (num_rows + TILE - 1) / TILE * TILE;
    job.num_queries = dim > 0 ? count_of(&queries, sizeof(float)) / dim : 0;
    job.kept = job.num_queries > 0 ? count_of(&ids, sizeof(int64_t)) / job.num_queries : 0;
    is_sound = multiplies_bytes() && dim > 0 && dim % CHUNK == 0 && dim <= MOST_DIM && job.kept <= num_rows &&
               job.kept <= MOST_KEPT && num_rows < INT32_MAX && holds(&queries, job.num_queries * dim, sizeof(float)) &&
               holds(&tiles, whole * dim, 1) && holds(&tile_scales, whole, sizeof(float)) &&
               holds(&ids, job.num_queries * job.kept, sizeof(int64_t));
#if CAN_MULTIPLY_BYTES
    if (is_sound && job.kept > 0) {
        job.queries = queries.buf;
        job.num_rows = num_rows;
        job.dim = dim;
        job.tiles = tiles.buf;
        job.tile_scales = tile_scales.buf;
        job.ids = ids.buf;
        Py_BEGIN_ALLOW_THREADS
        in_parallel(list_range, &job, job.num_queries, BLOCK, threads);
        Py_END_ALLOW_THREADS
    }
#endif
    release(buffers, 4);
    if (!is_sound)
        return refusal();
    return job.has_memory ? PyBool_FromLong(job.is_usable) : PyErr_NoMemory();
}

static PyMethodDef methods[] = {
    {"multiplies_bytes", multiplies, METH_NOARGS, multiplies_bytes_doc},
    {"pack", pack, METH_VARARGS, pack_doc},
    {"best", best, METH_VARARGS, best_doc},
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
    .m_name = "owlmine.mining._lists",
    .m_doc = "The best of all classes by products of bytes; see lists.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__lists(void) { return PyModuleDef_Init(&definition); }
