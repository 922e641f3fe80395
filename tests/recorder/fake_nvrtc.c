// A libnvrtc.so that compiles nothing: a program's machine code is what an environment variable holds, and how it was
// compiled.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int compiled;
    char name[64], option[64];  // the last of them
} Program;

int nvrtcCreateProgram(Program **program, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names) {
    (void)name, (void)count, (void)headers, (void)names;
    return *program = calloc(1, sizeof **program), source ? 0 : 3;
}
int nvrtcAddNameExpression(Program *program, const char *expression) {
    return snprintf(program->name, sizeof program->name, "%s", expression) > 0 ? 0 : 3;
}
int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    if (!count || options[0][0] != '-') return 6;
    return program->compiled = snprintf(program->option, sizeof program->option, "%s", options[count - 1]) > 0, 0;
}
static int text(const Program *program, char *into, size_t most) {
    return snprintf(into, most, "%s// %s %s\n", getenv("FAKE_PTX"), program->name, program->option);
}
int nvrtcGetPTXSize(Program *program, size_t *nbytes) {
    return *nbytes = (size_t)text(program, NULL, 0) + 1, program->compiled ? 0 : 4;
}
int nvrtcGetPTX(Program *program, char *into) { return text(program, into, 4096), program->compiled ? 0 : 4; }
int nvrtcDestroyProgram(Program **program) { return free(*program), *program = NULL, 0; }
