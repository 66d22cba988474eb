/* Ports by name. */
#include "mil/port.h"
#include <string.h>

int mil_port_find(const struct mil_port *ports, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(ports[i].name, name) == 0)
            return i;
    return -1;
}
