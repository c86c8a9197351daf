# Commands of the project. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup rivals build demo check test bench bench-quick compat chaos package docs
# One step at a time, in the order written, even with -j.
.NOTPARALLEL:

TARGET := $(or $(CARGO_TARGET_DIR),target)
STAY ?=
export STAY

# $(call step,title,command): prints the title and runs the command; if it fails, prints the command
# to run it again.
define step
@printf '\n== %s\n' '$(1)'; \
$(2) || { printf '\nFAILED: %s. Again alone: %s\n' '$(1)' '$(2)' >&2; exit 1; }
endef

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

setup: ## install the servers and load generators that are missing (asks apt; needs root for it)
	@command -v cargo >/dev/null || { \
	  echo 'cargo not found: install Rust first, see https://rustup.rs' >&2; exit 1; }
	@scripts/install-packages

rivals: setup ## build a root file system with the servers that Debian stable lacks (once, two minutes; needs root)
	$(call step,rivals,cargo xtask rivals)

build: ## compile everything, for development
	$(call step,build,cargo build --workspace)

demo: setup ## run real databases behind the balancer and kill one under load (STAY=1 keeps it running)
	$(call step,release build,cargo build --release -p evenkeel -p evenkeel-lab)
	@$(TARGET)/release/evenkeel-lab demo

check: ## run the fast checks: style, documentation, unit tests, laws, simulations, dependencies
	$(call step,lint tools,scripts/install-lints)
	$(call step,formatting,cargo fmt --all --check)
	$(call step,tidy,cargo xtask tidy)
	$(call step,clippy,cargo clippy --quiet --workspace --all-targets -- -D warnings)
	$(call step,rustdoc,RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --document-private-items)
	$(call step,tests without servers,scripts/run-fast-tests)
	$(call step,dependencies,cargo deny --log-level error check bans licenses sources)

test: setup ## run all checks and tests
	@printf '\n== rivals\n'; cargo xtask rivals || \
	  echo 'going on without: tests of what runs in it say "skipped"' >&2
	$(call step,lint tools,scripts/install-lints)
	$(call step,tidy,cargo xtask tidy)
	$(call step,formatting,cargo fmt --all --check)
	$(call step,clippy,cargo clippy --quiet --workspace --all-targets -- -D warnings)
	$(call step,shipped programs,cargo check --quiet -p evenkeel -p evenkeel-lab)
	$(call step,tests,scripts/run-tests)

bench: setup ## benchmark against nginx, HAProxy and PgBouncer, started as systemd does and as a shell does
	$(call step,release build,cargo build --release -p evenkeel -p evenkeel-lab)
	@$(TARGET)/release/evenkeel-lab measure --only speed,web,transfer,idle,mysql,postgres
	@$(TARGET)/release/evenkeel-lab measure --only http --seconds 2
	@$(TARGET)/release/evenkeel-lab measure --only speed,mysql,postgres --groups shared

compat: rivals ## run third-party database and client test suites, directly and through Evenkeel
	$(call step,release build,cargo build --release -p evenkeel -p evenkeel-lab)
	@$(TARGET)/release/evenkeel-lab compat

chaos: setup ## kill clients and servers for ten minutes and check the results (CLUSTER=galera for other clusters)
	$(call step,release build,cargo build --release -p evenkeel -p evenkeel-lab)
	@$(TARGET)/release/evenkeel-lab chaos $(if $(CLUSTER),--cluster $(CLUSTER))

bench-quick: setup ## repeat the five published experiments in about 45 minutes, with a report (root: complete)
	@cargo xtask rivals || echo 'going on without: balancers and servers of it are missing in the report' >&2
	$(call step,release build,cargo build --release -p evenkeel -p evenkeel-lab)
	@$(TARGET)/release/evenkeel-lab bench all --quick $(if $(OUT),--out $(OUT))

package: setup ## build the Debian package, of a release build
	$(call step,package,cargo xtask package)

docs: ## the documentation as a book, in target/book
	$(call step,mdbook,scripts/install-mdbook)
	$(call step,book,mdbook build --dest-dir $(abspath $(TARGET))/book)
