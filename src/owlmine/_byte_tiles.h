/* Products of bytes, a tile of rows at a time: rows lie TILE side by side, CHUNK bytes of each in turn.
 *
 * Rows have 0 to 255, queries -127 to 127. With c = code + 128,
 *     sum of query * c = sum of query * code + 128 * sum of query,
 * so the last term is subtracted first. Sums of products are exact in 32 bits.
 */
#ifndef OWLMINE_BYTE_TILES_H
#define OWLMINE_BYTE_TILES_H

#include "_row_buffers.h"

#include <math.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define CAN_MULTIPLY_BYTES 1
#define WITH_BYTES __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#else
#define CAN_MULTIPLY_BYTES 0
#endif

#define TILE 64      /* rows that are multiplied at a time: four registers of 16 */
#define QUERIES 4    /* queries that are multiplied at a time */
#define CHUNK 4      /* bytes that one instruction sums */
#define LARGEST_CODE 127.0f
#define LEAST_SIZE 1e-30f  /* below, the quotient of codes and scale would overflow float32 */
#define LARGEST_SIZE 1e25f /* above, products times scales would */

static int multiplies_bytes(void)
{
#if CAN_MULTIPLY_BYTES
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
#else
    return 0;
#endif
}

/* The scale of a row; a negative one if a number is not finite or too large. Codes are -127 to 127. */
INLINED float code_row(const float *row, int64_t dim, int8_t *codes)
{
    float largest = 0, inverse;
    int all = 1;
    for (int64_t d = 0; d < dim; d++) {
        float size = fabsf(row[d]);
        all &= size <= LARGEST_SIZE;
        largest = size > largest ? size : largest;
    }
    inverse = largest < LEAST_SIZE ? 0 : LARGEST_CODE / largest;
    if (!all)
        return -1;
    for (int64_t d = 0; d < dim; d++)
        codes[d] = (int8_t)(int32_t)(row[d] * inverse + (row[d] < 0 ? -0.5f : 0.5f));
    return largest / LARGEST_CODE;
}

/* Codes of row i, at its place in its tile. Overwrites them. */
INLINED void put_into_tile(uint8_t *tiles, int64_t i, int8_t *codes, int64_t dim)
{
    uint8_t *tile = tiles + i / TILE * TILE * dim + i % TILE * CHUNK;
    for (int64_t d = 0; d < dim; d++)
        codes[d] = (int8_t)(codes[d] ^ -128); /* + 128 */
    for (int64_t chunk = 0; chunk < dim / CHUNK; chunk++)
        memcpy(tile + chunk * TILE * CHUNK, codes + chunk * CHUNK, CHUNK);
}

/* Bytes of some queries, and minus 128 times their sums; whether all numbers are finite and small enough. */
INLINED int code_queries(const float *queries, int64_t count, int64_t dim, int8_t *codes, int32_t *starts)
{
    int is_usable = 1;
    for (int64_t i = 0; i < count; i++) {
        int32_t sum = 0;
        is_usable &= code_row(queries + i * dim, dim, codes + i * dim) >= 0;
        for (int64_t d = 0; d < dim; d++)
            sum += codes[i * dim + d];
        starts[i] = -128 * sum;
    }
    return is_usable;
}

#if CAN_MULTIPLY_BYTES
/* Products of QUERIES queries with a tile. */
WITH_BYTES static inline void multiply_tile(const uint8_t *tile, const int8_t *queries, const int32_t *starts,
                                            int64_t dim, __m512i products[QUERIES][TILE / 16])
{
    for (int q = 0; q < QUERIES; q++)
        for (int group = 0; group < TILE / 16; group++)
            products[q][group] = _mm512_set1_epi32(starts[q]);
    for (int64_t chunk = 0; chunk < dim / CHUNK; chunk++) {
        const uint8_t *part = tile + chunk * TILE * CHUNK;
        for (int q = 0; q < QUERIES; q++) {
            int32_t four;
            memcpy(&four, queries + q * dim + chunk * CHUNK, CHUNK);
            for (int group = 0; group < TILE / 16; group++)
                products[q][group] = _mm512_dpbusd_epi32(products[q][group], _mm512_loadu_si512(part + 64 * group),
                                                         _mm512_set1_epi32(four));
        }
    }
}
#endif

#endif
