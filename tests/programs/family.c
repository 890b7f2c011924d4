/* A family of processes that call a function of libc: `tree` for 1 + 2 + 4 processes with three calls each,
   of which the last four call it in a program that they execute; `byte` to tell whether the function begins
   with a breakpoint in this process; `wait` to tell it after a line of standard input. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static void *call(void *unused)
{
	getppid();
	return unused;
}

static void calls(void)
{
	pthread_t thread;
	getppid();
	getppid();
	pthread_create(&thread, NULL, call, NULL);
	pthread_join(thread, NULL);
}

static void tree(int depth)
{
	if (depth == 2) {
		execl(self, self, "calls", NULL);
		exit(1);
	}
	calls();
	for (int i = 0; i < 2; i++) {
		int child = depth ? vfork() : fork();
		if (child == 0 && depth) {
			execl(self, self, "calls", NULL);
			_exit(1);
		}
		if (child == 0) {
			tree(depth + 1);
			exit(0);
		}
		waitpid(child, NULL, 0);
	}
}

static void byte(void)
{
	const unsigned char *code = dlsym(RTLD_DEFAULT, "getppid");
	puts(*code == 0xcc ? "breakpoint" : "clean");
}

int main(int argc, char **argv)
{
	char line[9];
	self = argv[0];
	if (argc < 2)
		return 1;
	if (!strcmp(argv[1], "tree"))
		tree(0);
	if (!strcmp(argv[1], "calls"))
		calls();
	if (!strcmp(argv[1], "byte"))
		byte();
	if (!strcmp(argv[1], "wait")) {
		puts("waits");
		fflush(stdout);
		fgets(line, sizeof line, stdin);
		byte();
	}
	return 0;
}
