#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n);
int strcmp(const char *a, const char *b);
char *strstr(const char *text, const char *part);
