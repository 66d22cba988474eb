/* Runs a fuzz target over files: every argument is a file or a folder of files. So fuzz targets are unit
 * tests wherever libFuzzer is not. Fails when no file was found: an empty corpus tests nothing. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    size_t n = data ? fread(data, 1, (size_t)size, f) : 0;
    fclose(f);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int n_files = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        DIR *d = stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode) ? opendir(argv[i]) : NULL;
        if (!d) {
            n_files += replay_file(argv[i]);
            continue;
        }
        for (struct dirent *entry; (entry = readdir(d));) {
            char path[4096];
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            n_files += replay_file(path);
        }
        closedir(d);
    }
    printf("%d inputs replayed\n", n_files);
    return n_files > 0 ? 0 : 1;
}
