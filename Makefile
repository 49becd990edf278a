# The README uses `make demo` and `make test`; both first install what is missing.

# Native libraries take minutes to build, so all checkouts of one user share one target directory.
CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/orrery/target
export CARGO_TARGET_DIR

# rustup installs cargo here; a shell that was opened before does not have this directory in PATH.
export PATH := $(HOME)/.cargo/bin:$(PATH)

ORRERY := $(CARGO_TARGET_DIR)/debug/orrery
# A C++ compiler for RocksDB, libclang for its Rust bindings, curl for rustup and the first command of the demo.
PACKAGES := build-essential libclang-dev ca-certificates curl
# A server of PostgreSQL and a pooler, which the tests of sinks start by themselves. Debian starts both packages, too: who
# only builds does not get them.
TEST_PACKAGES := postgresql pgbouncer
# A Python with the engines that read exports. Tests ask it if it is there, or the one that ORRERY_TEST_PYTHON names.
ENGINES := $(CARGO_TARGET_DIR)/engines
ORRERY_TEST_PYTHON ?= $(wildcard $(ENGINES)/bin/python)
ifneq ($(ORRERY_TEST_PYTHON),)
export ORRERY_TEST_PYTHON
endif

.DEFAULT_GOAL := help
.PHONY: help deps build-deps engines build deb dist demo test test-full fuzz fuzz-coverage lint bench

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 15

# Installs those of some packages that are missing.
define install
	@missing=""; \
	for package in $(1); do \
		dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
		echo "installing$$missing"; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
	fi
endef

deps: build-deps ## Install missing system packages, those of tests too, and the Rust toolchain (Debian, Ubuntu)
	$(call install,$(TEST_PACKAGES))

build-deps: ## Install what building alone needs of them
	$(call install,$(PACKAGES))
	@command -v cargo >/dev/null || { \
		echo "installing Rust"; \
		curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile default --no-modify-path; \
	}

engines: ## Install the engines that read exports in tests: pyiceberg, polars, DuckDB, ClickHouse (Python packages, 1.3 GB)
	@python3 -c 'import ensurepip, venv' || { echo "install Python first: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(ENGINES)/bin/pip || python3 -m venv $(ENGINES)
	@$(ENGINES)/bin/pip install --quiet --disable-pip-version-check --requirement tests/kit/engines.txt

build: build-deps ## Build the binary
	cargo build --locked
	@echo "built $(ORRERY)"

# Set BINARY to package an existing binary.
deb: build-deps ## Build a Debian package (release build; takes a while), into the target directory
	@for package in debhelper fakeroot python3; do dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed \
		|| { echo "install $$package first: apt-get install debhelper fakeroot python3" >&2; exit 1; }; done
	$(if $(BINARY),,cargo build --locked --release)
	@packaging/build $(or $(BINARY),$(CARGO_TARGET_DIR)/release/orrery) $(CARGO_TARGET_DIR)/debian

# Set BINARY to package an existing binary, and SIGNING_KEY to a file with a secret OpenPGP key to sign the sums.
dist: build-deps ## Build all released files: tarball, .deb, wheel, npm package, sums (release build; takes a while)
	@for package in binutils debhelper fakeroot git python3; do dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed \
		|| { echo "install $$package first: apt-get install binutils debhelper fakeroot git python3" >&2; exit 1; }; done
	$(if $(BINARY),,cargo build --locked --release)
	@rm -rf $(CARGO_TARGET_DIR)/dist
	@packaging/dist $(or $(BINARY),$(CARGO_TARGET_DIR)/release/orrery) $(CARGO_TARGET_DIR)/dist

demo: build ## Build, then run a small simulated network with the API on it
	@$(ORRERY) demo

test: deps ## Run all tests, long suites at their small size
	cargo test --locked --workspace

test-full: deps ## Run all tests, long suites at their full size (takes hours)
	ORRERY_TEST_SIZE=full cargo test --locked --workspace

fuzz: build-deps ## Fuzz each parser of untrusted input for a minute (SECONDS=36000 for longer)
	ORRERY_TEST_FUZZ_SECONDS=$(or $(SECONDS),60) cargo test --locked --test fuzz

# Compiles everything anew, with instrumentation, in the versions of Cargo.lock. Without a sanitizer: the code is safe
# Rust but for three files, and what is looked for are panics, hangs and false answers. New inputs are kept in the
# target directory, findings in tests/fuzz/coverage/artifacts.
FUZZ_TARGET := $(or $(TARGET),ledger)
FUZZ_INPUTS := $(CARGO_TARGET_DIR)/fuzz/$(FUZZ_TARGET)

fuzz-coverage: build-deps ## Fuzz one parser, guided by coverage (TARGET=ledger SECONDS=60; nightly Rust and cargo-fuzz)
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { \
		echo "install them first: rustup toolchain install nightly; cargo install --locked cargo-fuzz" >&2; exit 1; }
	@mkdir -p $(FUZZ_INPUTS)
	@cp Cargo.lock tests/fuzz/coverage/Cargo.lock
	ORRERY_FUZZ_SEEDS=$(FUZZ_INPUTS) cargo +nightly fuzz run --fuzz-dir tests/fuzz/coverage --sanitizer none \
		$(FUZZ_TARGET) $(FUZZ_INPUTS) tests/fuzz/corpus/$(FUZZ_TARGET) -- \
		-max_total_time=$(or $(SECONDS),60) -max_len=1048576 -timeout=60 -rss_limit_mb=4096

# Takes minutes to install, so cargo-deny is only used where it is installed.
lint: build-deps ## Check formatting and lints, and with cargo-deny (if it is installed) the crates that are used
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@command -v cargo-deny >/dev/null || { echo "crates were not checked: cargo install --locked cargo-deny" >&2; exit 0; }; \
	cargo deny --locked --workspace check bans licenses sources || exit 1; \
	if cargo deny fetch db; then cargo deny --locked --workspace check advisories; \
	else echo "advisories on crates were not checked: their database cannot be fetched" >&2; fi

bench: deps ## Run benchmarks and compare with the baselines in benches/ (release build; takes a while)
	cargo bench --locked --bench ratios
