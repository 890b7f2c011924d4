# `make demo` and `make test` work on a fresh machine with Rust (rust-version in Cargo.toml). On Debian
# and Ubuntu they install the packages that they need.

CARGO ?= cargo
SPILE ?= target/release/spile
# The oldest Rust that can build it.
RUST  := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
SUDO  := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
STRIP ?= strip
# Programs of the tests that cargo builds.
TOOLS := target/tools
DENY  := $(TOOLS)/bin/cargo-deny
# The folders of `make install`. DESTDIR is a prefix of all of them, for packages.
PREFIX  ?= /usr/local
UNITDIR ?= $(PREFIX)/lib/systemd/system
ZSHDIR  ?= $(PREFIX)/share/zsh/site-functions

# Packages of Debian and Ubuntu. The build needs a C compiler. The demo needs SystemTap's example scripts
# and a program with several threads.
BUILD_DEPS := gcc libc6-dev make
DEMO_DEPS  := systemtap-doc xz-utils
# The tests need libbpf, with which they compare the loader (pkg-config libelf-dev zlib1g-dev); readers
# of objects, metrics and debugging information, and that of the C library; qemu for other kernels; the shells of the completions;
# readers of units, packages and profiles (python3-venv, the browser); perf, to compare with; compilers and libraries of
# parallel programs; a batch system; interpreters.
TEST_DEPS := pkg-config libelf-dev zlib1g-dev libc6-dev-arm64-cross \
	bpftool llvm python3-prometheus-client curl gdb libc6-dbg \
	qemu-system-x86 \
	zsh fish systemd rpm \
	python3-venv chromium-headless-shell linux-perf \
	musl-tools \
	clang libomp-dev gfortran openmpi-bin libopenmpi-dev mpich libmpich-dev \
	slurmctld slurmd slurm-client \
	ruby php-cli
# Programs that many machines have from other sources, each with the package to install if it is missing.
TEST_PROGRAMS := go:golang-go npm:npm gnatmake:gnat

.PHONY: rust demo test test-all build install demo-deps test-deps lint deny bench clean

demo: demo-deps build
	@echo "--- errno.stp against a real workload, for some seconds"
	$(SUDO) $(SPILE) /usr/share/systemtap/examples/profiling/errno.stp \
		-c "sh -c 'for i in 1 2 3 4 5; do ls -R /etc /nonexistent >/dev/null 2>&1; cat /etc /nonexistent/* 2>/dev/null; sleep 0.5; done'"
	@echo; echo "--- which system calls a command makes"
	$(SUDO) $(SPILE) syscount --top 8 -c "sh -c 'ls -lR /etc >/dev/null'"
	@echo; echo "--- where the time of a program of several threads goes"
	$(SUDO) $(SPILE) profile --top 5 -- xz -T2 -0 -k -c $(SPILE) >/dev/null

build: rust
	$(CARGO) build --release -p spile --bins

# The same random inputs in each run: what fails is in the commit. `make test-all` has others each time.
test: test-deps lint deny
	PROPTEST_RNG_SEED=1 SPILE_FUZZ_SECONDS=10 $(CARGO) run -q -p xtask -- test --guests --workspace --no-fail-fast

# Takes some hours: the long cases, all cases on the other kernels, mutants of the run-time library,
# random scripts and sessions, and the packages.
test-all: test
	SPILE_CASES=5 $(CARGO) test --workspace --exclude spile
	$(CARGO) run -q -p xtask -- programs
	$(CARGO) test -p spile --test e2e -- examples
	$(CARGO) run -p xtask -- vm --all
	MUTANTS=1000 $(CARGO) test -p spile-lir --test library mutants -- --nocapture
	$(CARGO) run -p xtask -- soak --cases 2000 --timers 100 --mutants 500
	$(CARGO) run -p xtask -- dist --vm
	@echo "all long tests passed"

# Says how to get Rust, before anything is installed.
rust:
	@have=$$($(CARGO) --version 2>/dev/null | sed 's/^cargo \([0-9.]*\).*/\1/'); \
	oldest=$$(printf '%s\n' $(RUST) $${have:-0} | sort -V | head -n 1); \
	[ "$$oldest" = $(RUST) ] || { \
		echo "spile needs Rust $(RUST) or newer, and $${have:+only }$${have:-no Rust} is here. Two usual ways to get it:"; \
		echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh    # the newest, for this user"; \
		echo "  $(strip $(SUDO) apt-get) install rustup && rustup default stable          # Debian 13, Ubuntu 24.04 and newer"; \
		exit 1; }

# Checks the dependencies by deny.toml. The tool needs a registry, and advisories a database, from the network.
deny:
	@test -x $(DENY) || $(CARGO) install cargo-deny --version 0.20.2 --locked --debug --no-default-features \
		--root $(TOOLS) || echo "deny: dependencies are not checked, because cargo-deny cannot be installed"
	@! test -x $(DENY) || $(DENY) check --hide-inclusion-graph licenses bans sources
	@! test -x $(DENY) || if $(DENY) fetch db >/dev/null 2>&1; then $(DENY) check --disable-fetch advisories; \
	else echo "deny: advisories are not checked, because their database cannot be fetched"; fi

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

bench: test-deps
	$(CARGO) build --release -p spile -p spile-workloads -p spile-bpf -p spile-kernel --bins --examples
	$(CARGO) run --release -p xtask -- bench

# $(call install_missing,PACKAGES,PROGRAM:PACKAGE...,purpose,names elsewhere)
define install_missing
	@missing=; \
	for p in $(1); do \
		dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; \
	done; \
	for p in $(2); do \
		command -v $${p%%:*} >/dev/null || missing="$$missing $${p##*:}"; \
	done; \
	if [ -n "$$missing" ]; then \
		if command -v apt-get >/dev/null; then \
			echo "installing for $(3):$$missing"; \
			$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
		else \
			echo "this is not Debian or Ubuntu: for $(3), install $(4)"; \
		fi; \
	fi
endef

demo-deps: rust
	$(call install_missing,$(BUILD_DEPS) $(DEMO_DEPS),,build and demo,gcc make systemtap-client xz)

test-deps: demo-deps
	$(call install_missing,$(TEST_DEPS),$(TEST_PROGRAMS),the tests,pkgconf elfutils-libelf-devel zlib-devel bpftool llvm curl)

# Installs the files that the packages of `cargo xtask dist` have. SPILE is the program; without its symbols
# it has a tenth of the size.
install:
	@test -x $(SPILE) || { echo "$(SPILE) is not there: make build"; exit 1; }
	install -D -m 755 $(SPILE) $(DESTDIR)$(PREFIX)/bin/spile
	$(STRIP) $(DESTDIR)$(PREFIX)/bin/spile
	install -D -m 644 docs/spile.1 $(DESTDIR)$(PREFIX)/share/man/man1/spile.1
	install -d $(DESTDIR)$(PREFIX)/share/spile/examples $(DESTDIR)$(PREFIX)/share/doc/spile/library
	install -m 644 examples/*.stp $(DESTDIR)$(PREFIX)/share/spile/examples
	install -m 644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT docs/*.md $(DESTDIR)$(PREFIX)/share/doc/spile
	install -m 644 docs/library/*.md $(DESTDIR)$(PREFIX)/share/doc/spile/library
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(ZSHDIR) \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	sed 's|@BINDIR@|$(PREFIX)/bin|' packaging/spile@.service >$(DESTDIR)$(UNITDIR)/spile@.service
	$(SPILE) --completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/spile
	$(SPILE) --completions zsh >$(DESTDIR)$(ZSHDIR)/_spile
	$(SPILE) --completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/spile.fish

clean:
	$(CARGO) clean
