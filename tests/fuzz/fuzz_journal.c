// links: convert
/* Any bytes as the journal of an interrupted conversion: a part is taken over only when its files are those that the
 * journal lists, and what is written after another part was finished can be read again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "convert/resume.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void put(const char *name, const void *data, size_t size)
{
    char *path = path_join(folder, name), *parent = path_folder(path);
    FILE *f = folder_make(parent, NULL) ? fopen(path, "wb") : NULL;
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
    free(path);
    free(parent);
}

static void remove_folder(void)
{
    path_remove_tree(folder, NULL);
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s/fuzz_journal.XXXXXX", path_is_folder("/dev/shm") ? "/dev/shm" : ".");
    if (!mkdtemp(folder))
        abort();
    atexit(remove_folder);
    put("a.mlmodelc/model.mil", "program", 7);
    put("a.mlmodelc/weights/weight.bin", "0123456789012345678901234567890123456789", 40);
    put("b.mlmodelc/model.mil", "other", 5);
}

static bool take(const struct convert_journal *j, char *name)
{
    struct convert_part p = {.name = name};
    bool taken = convert_journal_take(j, &p, CONVERT_MLMODELC);
    if (taken != p.is_done || taken != (p.report != NULL))
        abort();
    free(p.report);
    return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char a[] = "a", b[] = "b", absent[] = "../c", report[] = "{\"elements\": 3}";
    struct convert_part finished = {.name = b, .report = report};
    struct err e = {0};
    if (!folder[0])
        make_folder();
    put(CONVERT_JOURNAL_NAME, data, size);
    struct convert_journal *j = convert_journal_open(folder);
    int n = convert_journal_parts(j);
    bool took_a = take(j, a), took_b = take(j, b);
    if (n < took_a + took_b || take(j, absent) || !convert_journal_add(j, &finished, CONVERT_MLMODELC, &e))
        abort();
    convert_journal_close(j);
    j = convert_journal_open(folder);
    if (convert_journal_parts(j) > n + 1 || convert_journal_parts(j) < 1 || !take(j, b) ||
        take(j, a) != took_a)
        abort();
    convert_journal_close(j);
    return 0;
}
