#include <stddef.h>
int snprintf(char *to, size_t n, const char *format, ...);
