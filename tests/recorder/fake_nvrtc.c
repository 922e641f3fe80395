// A libnvrtc.so that compiles nothing: a program's machine code is what an environment variable holds.
#include <stdlib.h>
#include <string.h>

typedef struct {
    int compiled;
} Program;

int nvrtcCreateProgram(Program **program, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names) {
    (void)name, (void)count, (void)headers, (void)names;
    return *program = calloc(1, sizeof **program), source ? 0 : 3;
}
int nvrtcAddNameExpression(Program *program, const char *expression) { return program && expression ? 0 : 3; }
int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    return program->compiled = count > 0 && options[0][0] == '-', program->compiled ? 0 : 6;
}
int nvrtcGetPTXSize(Program *program, size_t *nbytes) {
    return *nbytes = strlen(getenv("FAKE_PTX")) + 1, program->compiled ? 0 : 4;
}
int nvrtcGetPTX(Program *program, char *into) { return strcpy(into, getenv("FAKE_PTX")), program->compiled ? 0 : 4; }
