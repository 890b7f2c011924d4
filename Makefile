# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Needs Rust (see rust-version in Cargo.toml); the rest is installed here on Debian and Ubuntu.

CARGO ?= cargo
SPILE := target/release/spile
LOAD  := target/release/examples/load
SUDO  := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# What the build needs, and what the tests and the demo run: SystemTap's example scripts, other
# kernels under qemu.
BUILD_DEPS := gcc libc6-dev make
TEST_DEPS  := pkg-config libelf-dev zlib1g-dev systemtap-doc bpftool llvm python3-prometheus-client curl gdb qemu-system-x86 xz-utils \
	python3-venv chromium-headless-shell \
	clang libomp-dev gfortran openmpi-bin libopenmpi-dev mpich libmpich-dev \
	slurmctld slurmd slurm-client
# Programs that many have from elsewhere, and the packages where there are none.
TEST_PROGRAMS := go:golang-go npm:npm

.PHONY: demo test build deps lint bench clean

demo: deps build
	@echo "--- errno.stp against a real workload, for some seconds"
	$(SUDO) $(SPILE) /usr/share/systemtap/examples/profiling/errno.stp \
		-c "sh -c 'for i in 1 2 3 4 5; do ls -R /etc /nonexistent >/dev/null 2>&1; $(LOAD) errors 1000; sleep 0.5; done'"
	@echo; echo "--- which system calls a command makes"
	$(SUDO) $(SPILE) syscount --top 8 -c "sh -c 'ls -lR /etc >/dev/null'"
	@echo; echo "--- where the time of a program of several threads goes"
	$(SUDO) $(SPILE) profile --top 5 -- xz -T2 -0 -k -c $(SPILE) >/dev/null

build:
	$(CARGO) build --release -p spile --bins --examples

test: deps lint
	$(CARGO) run -q -p xtask -- test --guests --workspace --no-fail-fast

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

bench: deps build
	$(CARGO) run --release -p xtask -- bench

deps:
	@missing=; \
	for p in $(BUILD_DEPS) $(TEST_DEPS); do \
		dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; \
	done; \
	for p in $(TEST_PROGRAMS); do \
		command -v $${p%%:*} >/dev/null || missing="$$missing $${p##*:}"; \
	done; \
	if [ -n "$$missing" ]; then \
		if command -v apt-get >/dev/null; then \
			echo "installing:$$missing"; \
			$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
		else \
			echo "not Debian: please install gcc make; for tests pkgconf elfutils-libelf-devel zlib-devel systemtap-client bpftool llvm"; \
		fi; \
	fi

clean:
	$(CARGO) clean
