# `make` alone says what there is.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help run test check lints surface features bench docs clean tools deny nextest

CARGO ?= cargo
# Address, port and storage of `make run` come from the settings; see `config show`.
ARGS ?=

# The first build is what somebody waits for who wants to see the server: crates are optimised where that is felt and
# nowhere else. Tests use the profile as Cargo.toml has it.
QUICK_RUN := --config 'profile.dev.package."*".opt-level=0' \
	$(foreach crate,libsqlite3-sys serde_json tokio,--config 'profile.dev.package.$(crate).opt-level=1')

# A tool that runs for seconds need not be optimised for minutes.
QUICK_BUILD := env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

tools:
	@command -v $(CARGO) >/dev/null || { echo "missing: cargo (Rust 1.95 or newer). Install Rust with rustup, or with your system's packages."; exit 1; } >&2
	@command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || { echo "missing: a C compiler, which builds SQLite. Install one (Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install)."; exit 1; } >&2

run: tools ## start the server with demo graphs on SQLite (ARGS="--port 3000" adds flags)
	@[[ -x "$${CARGO_TARGET_DIR:-target}/debug/backstitch" ]] || echo "The first build compiles about 280 crates and takes some minutes; later ones take seconds." >&2
	@exec $(CARGO) run $(QUICK_RUN) --bin backstitch -- serve $(ARGS)

# Most tests wait for servers and databases most of the time, so that more of them than there are
# processors run at once, within what one Postgres has connections for.
TEST_THREADS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? 4 * n : n < 16 ? 16 : n)))

# With the servers optimised a little the tests take a third less time, and their build half as much again. A variable,
# since some tests call cargo, which is to find what was built.
SERVERS := RUSTC_WORKSPACE_WRAPPER="$(CURDIR)/tests/support/rustc.sh"

# The tests find or start their Postgres themselves; here its programs are looked for first, so that
# what is missing is said before the long build. No test is left out for want of a database. What the build wrote is on the
# disk before the first test, so that none of those that begin early waits seconds for a commit.
test: tools ## run every test, on SQLite and on a real Postgres (started if TEST_DATABASE_URL is unset)
	@[[ -n "$${TEST_DATABASE_URL:-}" ]] || bash tests/support/postgres.sh tools
	@trap 'bash tests/support/postgres.sh stop' EXIT; \
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(SERVERS) $(CARGO) nextest run --workspace --all-features --no-run; \
		sync; \
		$(SERVERS) $(CARGO) nextest run --workspace --all-features --test-threads $(TEST_THREADS); \
	else \
		echo "cargo-nextest is not installed; using cargo test"; \
		$(SERVERS) $(CARGO) test --workspace --all-features --lib --bins --tests --examples; \
	fi; \
	$(CARGO) test --workspace --features $(PUBLIC) --doc

# Every feature but `internals`: the examples in the documentation see the library as its users do. With fewer features
# the crates that the tests are built on would be compiled once more.
PUBLIC := allocator,failpoints,mcp,models,openai,otel,postgres,server,sqlite

nextest:
	@$(CARGO) nextest --version >/dev/null 2>&1 || $(QUICK_BUILD) $(CARGO) install --locked cargo-nextest

# The last two parts keep one processor busy each most of the time, so that they run beside one another, in build folders
# of their own.
check: tools deny ## check format, lints, documentation, public surface and dependencies
	$(CARGO) fmt --all -- --check
	@$(MAKE) --no-print-directory --jobs=2 $(filter --output-sync=target,$(.FEATURES:output-sync=--output-sync=target)) lints features

lints:
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	@$(MAKE) --no-print-directory surface

# Without the feature `internals` the compiler sees the library as its users do, and reports what nothing uses. Tests
# are the same with either.
surface:
	$(CARGO) clippy --workspace --lib --bins --examples -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	RUSTDOCFLAGS="-D warnings" CARGO="$(CARGO)" python3 tests/public_surface.py

# The lints of clippy see what is left out without features; that each feature builds alone, the compiler says sooner. The
# library has no other package beside it here, so that it asks its crates for all that it needs of them itself.
features: export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/features
features:
	$(CARGO) clippy --quiet --lib --no-default-features -- -D warnings
	@for feature in sqlite postgres openai models mcp otel; do \
		echo "the library with the feature $$feature alone"; \
		$(CARGO) rustc --quiet --lib --profile check --no-default-features --features "$$feature" -- -D warnings; \
	done

# The advisories come from a repository of their own, which not every network reaches.
deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || { $(QUICK_BUILD) $(CARGO) install --locked cargo-deny; }
	$(CARGO) deny --log-level error check bans licenses sources
	@if $(CARGO) deny fetch db >/dev/null 2>&1; then \
		$(CARGO) deny --log-level error check --disable-fetch advisories; \
	else \
		echo "NOT CHECKED: advisories, because their database cannot be fetched from here" >&2; \
	fi

# QUICK=1 takes five minutes and leaves the page in docs/ as it is. BEFORE="path path" compares this build with
# older builds of the example bench_server, all in turn, and leaves the page too.
QUICK ?=
BEFORE ?=
bench: tools ## measure every figure beside the databases alone, and write docs/figures.md (QUICK=1: a look; BEFORE=path: beside older builds)
	$(CARGO) build --release --features allocator --example bench --example bench_server
	@dir=$${TMPDIR:-/tmp}/backstitch-bench-$$(id -u); \
	trap 'bash tests/support/postgres.sh stop "$$dir"' EXIT; \
	url=$${TEST_DATABASE_URL:-$$(POSTGRES_DURABLE=1 bash tests/support/postgres.sh start "$$dir")}; \
	mkdir -p "$$dir"; touch "$$dir/users"; \
	page=; [[ -n "$(QUICK)" ]] || page=docs; \
	TEST_DATABASE_URL=$$url QUICK=$(QUICK) BENCH_BEFORE="$(BEFORE)" BENCH_PAGE=$${BENCH_PAGE:-$$page} \
		flock -s "$$dir/users" "$${CARGO_TARGET_DIR:-target}/release/examples/bench"

docs: tools ## build the guide and the manual of the library, and say where they are
	@mdbook --version >/dev/null 2>&1 || { $(QUICK_BUILD) $(CARGO) install --locked --no-default-features mdbook; }
	mdbook build docs --dest-dir "$${CARGO_TARGET_DIR:-$(CURDIR)/target}/book"
	$(CARGO) doc --workspace --no-deps
	@echo "the guide: $${CARGO_TARGET_DIR:-target}/book/index.html"
	@echo "the manual: $${CARGO_TARGET_DIR:-target}/doc/backstitch/index.html"

clean: ## remove what was built, and the demo server's data
	$(CARGO) clean
	rm -rf .backstitch
