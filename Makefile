# The verbs of this repository. `make demo` and `make test` need Python 3.11+ and make, and do their own set-up.
PYTHON ?= $(shell for candidate in python3.13 python3.12 python3.11 python3; do \
	$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$candidate; break; }; done)
BIN = .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup check test quick coverage demo conformance e2e e2e-matrix walk breakages bench image kind-demo docs site generate lock build release release-check clean

help: ## this list
	@sed -nE 's/^([a-z0-9-]+):.* ## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r verb what; do \
		printf 'make %-12s %s\n' "$$verb" "$$what"; done

setup: .venv/ready ## the virtual environment .venv from locked, hash-checked packages

.venv/ready: requirements/dev.txt pyproject.toml hack/setup
	@hack/setup "$(PYTHON)"

check: setup ## format, lint, types, import layers, generated files, spelling, budgets, the site
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/api.py
	$(BIN)/lint-imports
	$(BIN)/python hack/generate-protos --check
	$(BIN)/python hack/generate-recordings --check
	$(BIN)/python hack/generate-docs --check
	$(BIN)/python hack/generate-dashboards --check
	$(BIN)/python hack/generate-rooms-picture --check
	$(BIN)/codespell dra_driver protos deviceclasses docs hack conformance tests *.md *.yml
	$(BIN)/yamllint -s deviceclasses hack conformance
	$(BIN)/hadolint Dockerfile
	$(BIN)/mkdocs build
	$(BIN)/python hack/budget

test: setup ## all tests that need no cluster; branch coverage of the rooms that decide
	$(BIN)/python hack/test

quick: setup ## format, lint, types and the tests of what was changed, in seconds
	@$(BIN)/python hack/quick

coverage: setup ## all tests with branch coverage of everything
	$(BIN)/python hack/test --coverage

demo: setup ## the story that docs/try-it.md shows
	@$(BIN)/dra-driver demo

conformance: setup ## CEL and allocation against the real modules; Go. SHORT=1, SEED=7
	$(BIN)/python -m conformance.run $(if $(SEED),--seed $(SEED)) $(if $(SHORT),--quick)

e2e: setup ## the tests on a real Kubernetes; root and Go
	$(BIN)/python hack/testbed/e2e.py

e2e-matrix: setup ## the same on every release of docs/tested.md, by hand
	$(BIN)/python hack/testbed/matrix.py

walk: setup ## a random walk through faults; STEPS=1000, SEED=7, MACHINE=nvidia
	$(BIN)/python hack/random-walk --steps $(or $(STEPS),1000) $(if $(SEED),--seed $(SEED)) $(if $(MACHINE),--machine $(MACHINE))

breakages: setup ## replay deliberate breakages and see who notices, by hand
	$(BIN)/python -m hack.breakages.replay

bench: setup ## the figures of docs/performance.md, by hand
	$(BIN)/python hack/bench/run.py

image: setup ## the image, without a registry
	$(BIN)/python hack/image/build.py --output dist/dra-driver.tar

kind-demo: setup ## a kind cluster with the driver
	@$(BIN)/python hack/kind-demo $(KIND_DEMO)

generate: setup ## protobuf modules, tables of the CEL functions (Go), and what `make docs` makes
	$(BIN)/python hack/generate-protos
	$(BIN)/python hack/generate-cel-tables
	$(MAKE) docs

docs: setup ## docs/reference, recordings of machines, the table of the verdicts and the picture of the rooms, from the code
	$(BIN)/python hack/generate-recordings
	$(BIN)/python hack/generate-docs
	$(BIN)/python hack/generate-dashboards
	$(BIN)/python hack/generate-rooms-picture
	$(BIN)/python hack/testbed/matrix.py --page

site: setup ## the pages as a site in dist/site, which needs no server
	$(BIN)/mkdocs build

lock: setup ## requirements/*.txt anew, every wheel by hash
	$(BIN)/python hack/lock

build: setup ## wheel and source distribution
	$(BIN)/python -m hack.release build

release: setup ## everything that a release consists of, into dist/; IMAGE=REGISTRY/NAME
	$(BIN)/python -m hack.release make $(if $(IMAGE),--image '$(IMAGE)')

release-check: setup ## the same twice, compared byte for byte
	$(BIN)/python -m hack.release check $(if $(IMAGE),--image '$(IMAGE)')

clean: ## remove what the verbs made
	rm -rf .venv dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
