/* Opens the modules that its arguments name, each in its own scope, and works with each twice. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int round = 0; round < 2; round++)
        for (int i = 1; i < argc; i++) {
            void *module = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
            int (*work)(void) = module ? (int (*)(void))dlsym(module, "work") : 0;
            if (!work || work() != 2) {
                fprintf(stderr, "%s\n", dlerror());
                return 1;
            }
        }
    return 0;
}
