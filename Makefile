# The verbs of this repository. `make demo` and `make test` need Python 3.11+ and make, and do their own set-up.
PYTHON ?= $(shell for candidate in python3.13 python3.12 python3.11 python3; do \
	$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$candidate; break; }; done)
BIN = .venv/bin

.PHONY: setup check test demo conformance e2e e2e-matrix walk bench image kind-demo generate lock build clean

setup: .venv/ready

.venv/ready: requirements/dev.txt pyproject.toml hack/setup
	@hack/setup "$(PYTHON)"

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/api.py
	$(BIN)/lint-imports
	$(BIN)/python hack/generate-protos --check
	$(BIN)/python hack/generate-docs --check
	$(BIN)/codespell dra_driver protos deviceclasses docs hack tests *.md
	$(BIN)/yamllint -s deviceclasses hack
	$(BIN)/hadolint Dockerfile
	$(BIN)/python hack/budget

test: setup
	$(BIN)/python hack/test

demo: setup
	@$(BIN)/dra-driver demo

conformance: setup
	$(BIN)/python hack/conformance/run.py $(if $(SEED),--seed $(SEED)) $(if $(SHORT),--quick)

e2e: setup
	$(BIN)/python hack/testbed/e2e.py

e2e-matrix: setup
	$(BIN)/python hack/testbed/matrix.py

walk: setup
	$(BIN)/python hack/random-walk --steps $(or $(STEPS),1000)

bench: setup
	$(BIN)/python hack/bench/run.py

image: setup
	$(BIN)/python hack/image/build.py --output dist/dra-driver.tar

kind-demo: setup
	@$(BIN)/python hack/kind-demo

generate: setup
	$(BIN)/python hack/generate-protos
	$(BIN)/python hack/generate-cel-tables
	$(BIN)/python hack/generate-docs
	$(BIN)/python hack/testbed/matrix.py --page

lock: setup
	$(BIN)/python hack/lock

build: setup
	$(BIN)/python -m hatchling build

clean:
	rm -rf .venv dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
