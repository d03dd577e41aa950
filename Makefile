# `make help` lists the targets. Tools are pinned in internal/devtools and built below .cache/bin
# when they are missing; building, running and testing troupe need none of them.

SHELL     := /bin/bash
.SHELLFLAGS := -euo pipefail -c
GO        ?= go
TOOLS     := $(CURDIR)/.cache/bin
DEVTOOLS  := internal/devtools
LINTTOOLS := internal/devtools/lint
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
LDFLAGS   := -X main.version=$(VERSION)
PACKAGES  ?= ./...
TESTTIME  ?= 10m
GOTESTSUM := $(GO) tool -modfile=$(DEVTOOLS)/go.mod gotestsum

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: build ## build troupe and run its tour: the first thing to type
	@./bin/troupe tour

.PHONY: build
build: ## build bin/troupe
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/troupe ./cmd/troupe

# The slow suites (crash loops, property tests, attacks) shorten themselves under -short.
# Without the test runner in reach (no network, empty module cache) plain go test does the same.
.PHONY: test
test: ## run every suite, the slow ones in short form
	@if $(GOTESTSUM) --version >/dev/null 2>&1; then \
		$(GOTESTSUM) --format pkgname --format-hide-empty-pkg -- -short -timeout $(TESTTIME) $(PACKAGES); \
	else \
		echo "gotestsum cannot be built here: using go test" >&2; \
		$(GO) test -short -timeout $(TESTTIME) $(PACKAGES); \
	fi

.PHONY: check
check: fmt-check vet lint race coverage extras browser web-check readme cross generated ## all that CI asks: format, lint, vet, tests with -race, fresh generated code
	@echo "check: all good"

.PHONY: race
race: ## run every suite with the race detector, package by package, and print a table (an hour or so; RACE_SHORT=1: less)
	@GO="$(GO)" ./.ci/race $(PACKAGES)

.PHONY: chaos
chaos: ## kill what works, over 2,000 turns and 200 kills of a command, and look at what comes back (ten minutes or more)
	@TROUPE_CHAOS_KILLS=$${TROUPE_CHAOS_KILLS:-200} TROUPE_CHAOS_TURNS=$${TROUPE_CHAOS_TURNS:-1000} $(GO) test ./test/chaos -v -count=1 -timeout 120m -run 'KilledAtRandomMoments|WhateverIsKilled'

.PHONY: unprivileged
unprivileged: ## the tests that root skips, as a user who may not do everything
	@GO="$(GO)" ./.ci/unprivileged

.PHONY: long
long: ## the tests that take seconds each, which `make test` leaves out (a minute and a half)
	@GO="$(GO)" ./.ci/long

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (20s: about ten minutes); found inputs stay as test data
	@GO="$(GO)" ./.ci/fuzz

.PHONY: coverage
coverage: ## what confines and approves is covered by tests to more than 90 % (two minutes)
	@GO="$(GO)" ./.ci/coverage

.PHONY: extras
extras: ## the tests that a machine skips for want of a program: installs it, as root on Debian, and runs them
	@GO="$(GO)" ./.ci/extras

# The page is committed as it was built, so that Go alone builds troupe; a test says when it is older than its sources.
.PHONY: web
web: ## build the console's page from web/src (npm)
	@npm ci --prefix web --ignore-scripts --no-audit --no-fund --silent && npm run --prefix web --silent check && npm run --prefix web --silent build

.PHONY: web-check
web-check: ## what is committed of the console's page is what its sources come to
	@if ! command -v npm >/dev/null; then echo "skipped: there is no npm here, with which the page is built"; exit 0; fi; \
	$(MAKE) --no-print-directory web && git diff --exit-code --stat -- web/dist

.PHONY: browser
browser: ## the console in a real browser: installs Chromium, as root on Debian, and drives it
	@GO="$(GO)" ./.ci/browser

.PHONY: mcp
mcp: ## MCP servers of npm, for real; without npm it says so (installs them below .cache)
	@if ! command -v npm >/dev/null; then echo "skipped: there is no npm here, with which the servers are installed"; exit 0; fi; \
	mkdir -p .cache/mcp && npm install --prefix .cache/mcp --no-audit --no-fund --no-save --silent \
		@modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31 && \
	TROUPE_MCP_SERVERS="$(CURDIR)/.cache/mcp" $(GO) test ./tools/mcp -v -count=1 -run 'TheServer'

.PHONY: chaos-ci
chaos-ci: ## the part of chaos that every commit passes: 200 turns killed after every append, and 20 seeds
	@TROUPE_CHAOS_EVERY=$${TROUPE_CHAOS_EVERY:-200} $(GO) test ./test/chaos -v -count=1 -timeout 30m -run 'WhateverIsKilled'

.PHONY: powercut
powercut: ## take the power from the disk 50 times while it is written to (as root on Linux; about two minutes)
	@TROUPE_CHAOS_CUTS=$${TROUPE_CHAOS_CUTS:-50} $(GO) test ./test/chaos -count=1 -v -timeout 30m -run 'PowerCuts'

.PHONY: faults
faults: ## let the disk fail at each of the 200 writes and syncs of a run (FUSE; about five minutes)
	@TROUPE_CHAOS_FAULTS=$${TROUPE_CHAOS_FAULTS:-1000} $(GO) test ./test/chaos -count=1 -v -timeout 30m -run 'TestDiskThatFails'

.PHONY: soak
soak: ## use 10,000 sessions in one process, after as many others, and look at what it still holds (about five minutes)
	@TROUPE_CHAOS_SESSIONS=$${TROUPE_CHAOS_SESSIONS:-10000} $(GO) test ./test/chaos -count=1 -v -timeout 60m -run 'TestSoak'

.PHONY: scale
scale: ## a pipeline of 10,000 items that is stopped and resumed, and 100,000 sessions in one process (half an hour or so, and 4 GB of disk)
	@TROUPE_SCALE_ITEMS=$${TROUPE_SCALE_ITEMS:-10000} TROUPE_SCALE_SESSIONS=$${TROUPE_SCALE_SESSIONS:-50000} \
		$(GO) test ./test/chaos -count=1 -v -timeout 120m -run 'TestAPipelineOfManyItems|TestManySessionsUsedOnce'

.PHONY: agents
agents: ## let 1,000 agents share a provider that answers 50 requests a second, and fails and cuts off besides (a minute)
	@TROUPE_AGENTS=$${TROUPE_AGENTS:-1000} $(GO) test ./actors -count=1 -v -timeout 30m -run 'TestTwoHundredAgentsFinish'

.PHONY: streams
streams: ## have 2,000 event streams open while 200 turns run at a time (half a minute)
	@TROUPE_STREAMS=$${TROUPE_STREAMS:-2000} TROUPE_TURNS=$${TROUPE_TURNS:-200} $(GO) test ./test/e2e -count=1 -v -timeout 30m -run 'TestManyStreams'

.PHONY: vet
vet: ## go vet
	@$(GO) vet $(PACKAGES)

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## golangci-lint, as .golangci.yml says
	@$(TOOLS)/golangci-lint run $(PACKAGES)

.PHONY: fmt
fmt: $(TOOLS)/gofumpt ## format every Go file
	@$(TOOLS)/gofumpt -w .

.PHONY: fmt-check
fmt-check: $(TOOLS)/gofumpt
	@unformatted="$$($(TOOLS)/gofumpt -l .)"; if [[ -n "$$unformatted" ]]; then \
		echo "not formatted (make fmt):" >&2; echo "$$unformatted" >&2; exit 1; fi

.PHONY: readme
readme: ## every command and file that README.md and CONTRIBUTING.md name exists
	@$(GO) test ./internal/arch -count=1 -run 'Readme'

# The command line builds and vets for the systems where people attach folders. Those of this machine are built and vetted anyway.
.PHONY: cross
cross: ## build and vet cmd/troupe for the others of linux, darwin and windows
	@set -e; for os in linux darwin windows; do \
		[[ "$$os" != "$$($(GO) env GOHOSTOS)" ]] || continue; \
		echo "cross $$os/amd64"; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=amd64 $(GO) build -o /dev/null ./cmd/troupe; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=amd64 $(GO) vet ./cmd/troupe; \
	done

.PHONY: generate
generate: $(TOOLS)/buf $(TOOLS)/protoc-gen-go ## lint messages/*.proto and generate their Go
	@cd messages && export PATH="$(TOOLS):$$PATH" BUF_CACHE_DIR="$(CURDIR)/.cache/buf" && buf lint && buf generate

.PHONY: generated
generated: generate
	@git diff --exit-code -- 'messages/*.pb.go' || { echo "generated code is stale: commit what make generate wrote" >&2; exit 1; }
	@new="$$(git ls-files --others --exclude-standard -- 'messages/*.pb.go')"; [[ -z "$$new" ]] || { \
		echo "generated code is not committed: $$new" >&2; exit 1; }

.PHONY: bench
bench: ## measure troupe beside a bare loop and print tables (four to five minutes)
	@$(GO) run ./test/bench

.PHONY: microbench
microbench: ## run the benchmarks of the packages once
	@$(GO) test -run '^$$' -bench . -benchmem $(PACKAGES)

.PHONY: deps
deps: ## install what the sandbox wants from the system (as root), or say how
	@.ci/deps

.PHONY: clean
clean: ## remove what was built here
	@rm -rf bin .cache

# Each tool is rebuilt when its pin changes.
$(TOOLS)/buf: $(DEVTOOLS)/go.mod
	@echo "building buf (about two minutes, once)" >&2
	@cd $(DEVTOOLS) && $(GO) build -o $@ github.com/bufbuild/buf/cmd/buf

$(TOOLS)/protoc-gen-go: $(DEVTOOLS)/go.mod
	@cd $(DEVTOOLS) && $(GO) build -o $@ google.golang.org/protobuf/cmd/protoc-gen-go

$(TOOLS)/gofumpt: $(DEVTOOLS)/go.mod
	@cd $(DEVTOOLS) && $(GO) build -o $@ mvdan.cc/gofumpt

$(TOOLS)/golangci-lint: $(LINTTOOLS)/go.mod
	@echo "building golangci-lint (about two minutes, once)" >&2
	@cd $(LINTTOOLS) && $(GO) build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
