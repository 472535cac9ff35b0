# Everything a developer types. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Outside the clone, so that a new clone finds its dependencies built; the path of the wrapper keeps clones apart.
cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vitrina
export CARGO_TARGET_DIR ?= $(cache)/target
export RUSTC_WORKSPACE_WRAPPER := $(CURDIR)/scripts/rustc
ifeq ($(CI),true)
export RUSTC_WORKSPACE_WRAPPER := $(CURDIR)/scripts/lint
# For clippy; cargo builds anew what was built under another value.
export CLIPPY_ARGS := --deny=warnings__CLIPPY_HACKERY__
# What is built once needs no memory of how.
export CARGO_INCREMENTAL ?= 0
endif
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

vitrina := $(CARGO_TARGET_DIR)/debug/vitrina
with_postgres := $(CARGO_TARGET_DIR)/debug/with_postgres
# Passed on to the command a target runs: make demo ARGS=--once
ARGS ?=

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r name about; do printf '  make %-11s %s\n' "$$name" "$$about"; done

.PHONY: demo
demo: build ## a private Postgres, the sample cinema, its marts and the proof; OPENSEARCH_URL= adds indexes (ARGS=--once, ARGS=--clean, DEMO_DIR=)
	@exec $(vitrina) demo $(if $(DEMO_DIR),--dir '$(DEMO_DIR)') $(ARGS)

.PHONY: test
test: export TESTS := 1
# Tests wait for servers more than they compute: the cores are busy only with more tests than cores.
test: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test: build ## all tests, against servers that live as long as they do (ONLY=part_of_a_name)
	cargo test --workspace --no-run
	@if command -v cargo-nextest >/dev/null; then \
	  $(with_postgres) cargo nextest run --workspace $(ONLY) $(ARGS) && cargo test --workspace --doc $(ONLY); \
	else \
	  $(with_postgres) cargo test --workspace --no-fail-fast $(ONLY) $(ARGS); \
	fi

.PHONY: test-image
test-image: export TESTS := 1
test-image: bootstrap ## compiles the binary from exactly what the image's build is given
	cargo test --package vitrina-tests --test image -- --ignored

.PHONY: check
check: export CHECKS := 1
check: bootstrap ## formatting, lints, licences, Dockerfile, compose file, shell scripts
	@scripts/check

.PHONY: bench
bench: export BENCH := 1
bench: export TESTS := 1
bench: bootstrap ## workloads of the release binary beside their limits (ONLY=full-empty, SCALE=0.1)
	@cargo build --release --package vitrina-cli --package vitrina-bench
	@BENCH_BINARY=$(CARGO_TARGET_DIR)/release/vitrina ONLY='$(ONLY)' SCALE='$(or $(SCALE),1)' $(CARGO_TARGET_DIR)/release/vitrina-bench

.PHONY: chaos
chaos: export TESTS := 1
chaos: build ## real processes under kills, stops and crashes, seeded bugs, then the long tests (SECONDS=60, BUGS=fence, TRIALS=, SEED=)
	@cargo build --workspace --bin vitrina-chaos --test database
	@CHAOS_BINARY=$(vitrina) CHAOS_SECONDS='$(SECONDS)' CHAOS_KILLS='$(KILLS)' CHAOS_ZOMBIES='$(ZOMBIES)' CHAOS_RESTARTS='$(RESTARTS)' \
	  CHAOS_BUGS='$(BUGS)' CHAOS_TRIALS='$(TRIALS)' CHAOS_SEED='$(SEED)' $(CARGO_TARGET_DIR)/debug/vitrina-chaos
	$(if $(SECONDS)$(KILLS)$(BUGS)$(TRIALS),,@$(with_postgres) cargo test --workspace --test pipelines -- --ignored)

.PHONY: build
# A test target beside the binary makes cargo choose the features that `make test` needs: dependencies are built once.
build: bootstrap ## the vitrina binary, in the dev profile that the tests use too
	@cargo build --workspace --bin vitrina --test database

.PHONY: up
up: ## the whole stand: by docker compose where Docker answers, else as local processes
	@scripts/stand up

.PHONY: down
down: ## stops the stand and removes its data
	@scripts/stand down

.PHONY: migrate-db
migrate-db: ## applies the migrations of the product and of the sample cinema
	@scripts/stand migrate

.PHONY: logs
logs: ## logs of API and runner, followed on a terminal
	@scripts/stand logs

.PHONY: smoke
smoke: bootstrap ## plays the demo's steps against the running stand
	@scripts/smoke

.PHONY: clean
clean: ## removes what make has built
	rm -rf "$(CARGO_TARGET_DIR)"

.PHONY: bootstrap
bootstrap:
	@scripts/bootstrap
