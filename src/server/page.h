/* The web page: one file that calls no other, which the build makes of src/server/page. */
#ifndef MILKIT_SERVER_PAGE_H
#define MILKIT_SERVER_PAGE_H

#include <stddef.h>

extern const size_t page_size;
extern const unsigned char page_text[]; /* [page_size + 1], with a zero at its end */

/* What a browser is told of it. */
struct page_headers {
    char etag[40];
    char policy[512]; /* Content-Security-Policy */
};
void page_headers_init(struct page_headers *h);

#endif
