/* Packing of small codes as weight.bin holds them: one stream of bits, least significant first. */
#include <string.h>
#include "quant/quant.h"

void quant_pack(const uint8_t *codes, int64_t n, int bits, uint8_t *dst)
{
    int64_t i = 0;
    if (bits == 8) {
        memcpy(dst, codes, (size_t)n);
        return;
    }
    /* Eight codes are `bits` whole bytes. */
    for (; n - i >= 8; i += 8, dst += bits) {
        uint64_t word = 0;
        for (int k = 0; k < 8; k++)
            word |= (uint64_t)codes[i + k] << (bits * k);
        for (int k = 0; k < bits; k++)
            dst[k] = (uint8_t)(word >> (8 * k));
    }
    uint64_t word = 0;
    int rest = (int)(n - i);
    for (int k = 0; k < rest; k++)
        word |= (uint64_t)codes[i + k] << (bits * k);
    for (int k = 0; k < (rest * bits + 7) / 8; k++)
        dst[k] = (uint8_t)(word >> (8 * k));
}

void quant_unpack(const uint8_t *src, int64_t begin, int64_t n, int bits, uint8_t *codes)
{
    unsigned mask = (1u << bits) - 1;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(begin + i) * (unsigned)bits;
        unsigned shift = (unsigned)(at & 7), v = src[at >> 3];
        if (shift + (unsigned)bits > 8)
            v |= (unsigned)src[(at >> 3) + 1] << 8;
        codes[i] = (uint8_t)(v >> shift & mask);
    }
}
