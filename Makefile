# Every target creates what it needs and is quick when there is nothing to do.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
DEV := .venv/.dev
RIVALS := .venv/.rivals

.PHONY: help venv demo test lint javascript bench attack mutation docs results dist clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(BIN)/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing neuralcollapse into .venv"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing neuralcollapse and its development tools into .venv (a few minutes the first time)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(CORE)

$(RIVALS): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing neuralcollapse, its development tools and what benchmarks compare it with into .venv"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,bench]'
	@touch $@ $(DEV) $(CORE)

venv: $(DEV)  ## .venv with everything that tests, linters and docs need

demo: $(CORE)  ## the main job on embedded data, in about two minutes: demo/report.html
	$(BIN)/neuralcollapse demo

test: $(DEV)  ## all tests, on all cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

lint: $(DEV) javascript  ## ruff, pyright, import-linter, and the scripts' own checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

javascript:  ## prettier, eslint and tsc over the pages' scripts; skipped, saying so, where npm has no packages
	@if [ node_modules/.package-lock.json -nt package-lock.json ] || \
	npm ci --no-audit --no-fund --fetch-retries 1 --fetch-timeout 20000 >/dev/null 2>&1; \
	then npm run --silent check && echo "scripts are formatted, linted and of the right types"; \
	else echo "scripts are not checked: the packages of package.json cannot be installed here"; fi

bench: $(RIVALS)  ## ratios against named rivals, measured interleaved in one run, to evidence/bench/
	@for name in metrics solvers training browser; do echo "== $$name"; \
	$(BIN)/python benchmarks/$$name.py $$([ $$name = metrics ] && echo --cpu) --json evidence/bench/$$name.json || exit 1; done

ATTACK ?= --minutes 3
attack: $(DEV)  ## kills, damaged files, random commands and calls; ATTACK="--trials 10000 --seed 1" for a long one
	PYTHONPATH=tests:tests/helpers OMP_NUM_THREADS=1 $(BIN)/python -m attack --out evidence/attack.json $(ATTACK)

mutation: $(DEV)  ## break one line after the other and see that a test notices; MUTATION="--only losses" for a part
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m mutation $(or $(MUTATION),--out evidence/mutation.json)

docs: $(DEV)  ## the documentation, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

results: $(CORE)  ## evidence of the runs in results/, and the pages that are made from it
	@if [ -d results ]; then $(BIN)/neuralcollapse study evidence results --out evidence/desk --pictures docs/evidence; fi
	$(BIN)/python evidence/make_pages.py

dist:  ## wheel and sdist; the wheel is installed into a new environment elsewhere, which checks itself
	rm -rf dist
	place=$$(mktemp -d) && $(PYTHON) -m venv $$place/tools && $(PYTHON) -m venv $$place/venv && \
	$$place/tools/bin/python -m pip install --quiet build && $$place/tools/bin/python -m build --outdir dist . && \
	$$place/venv/bin/python -m pip install --quiet --constraint constraints.txt dist/neuralcollapse-*.whl && \
	cd $$place && venv/bin/neuralcollapse doctor && venv/bin/neuralcollapse demo --profile smoke --out demo && \
	rm -rf $$place

clean:  ## remove what the other targets made
	rm -rf .venv node_modules site build dist .pytest_cache .ruff_cache .hypothesis
