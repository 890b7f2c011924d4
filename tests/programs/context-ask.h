/* Tells the watcher of context-watch.c, or a probe of syscall.getppid, where the thread is. */
#include <sys/syscall.h>
#include <unistd.h>

static inline void ask(const char *label)
{
    syscall(SYS_getppid, label);
}
