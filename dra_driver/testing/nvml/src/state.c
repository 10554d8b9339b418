/* SPDX-License-Identifier: Apache-2.0
 * A folder that several processes share. Values are files of their own, replaced by a rename; journal and calls are appended to. */
#include "mock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *folder(void) { return setting("MOCK_NVML_STATE", mock_state); }

static int path_of(char *path, size_t size, const char *name) {
    const char *place = folder();
    if (!*place) return 0;
    return snprintf(path, size, "%s/%s", place, name) < (int)size;
}

long state_read(const char *what, const char *uuid, long otherwise) {
    char name[256], path[4096], text[32] = "";
    snprintf(name, sizeof name, "%s-%s", what, uuid);
    if (!path_of(path, sizeof path, name)) return otherwise;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return otherwise;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? strtol(text, NULL, 10) : otherwise;
}

int state_write(const char *what, const char *uuid, long value) {
    char name[256], path[4096], fresh[4200], text[512];
    snprintf(name, sizeof name, "%s-%s", what, uuid);
    snprintf(text, sizeof text, "%s %s %ld", what, uuid, value);
    if (!path_of(path, sizeof path, name)) return SUCCESS;
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    int file = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return UNKNOWN;
    dprintf(file, "%ld\n", value);
    close(file);
    if (rename(fresh, path) < 0) return UNKNOWN;
    state_journal(text);
    return SUCCESS;
}

static void append(const char *name, const char *text) {
    char path[4096], line[640];
    if (!path_of(path, sizeof path, name)) return;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return;
    int length = snprintf(line, sizeof line, "%ld %s\n", (long)getpid(), text);
    if (length > 0 && write(file, line, (size_t)length) < 0) { /* a full disk: the call itself goes on */
    }
    close(file);
}

void state_journal(const char *text) { append("journal", text); }

void state_count(const char *function, int gpu) {
    char text[160];
    snprintf(text, sizeof text, "%s %d", function, gpu);
    append("calls", text);
}
