# Everything that labkit does by one command; `make` alone lists them.
#
#   PYTHON=python3.12      the interpreter that .venv is made from, 3.11 or newer
#   PIP_FLAGS=...          handed to every pip install, say for another build of torch
#   TREES="before after"   make lines: the source trees to weigh, this one by default
#   DEVICE=cuda JSON=file  make bench on a GPU, its results written to a file
#   PART=b                 make gpu: one part alone
#   NAMES="01_rls"         make run-all, stills: these notebooks alone
#   TORCH=2.13.0           make lock: the version of torch to hold to
#   DOCS=build/docs        where make docs puts the site together
#   ROOMS="rls rtrl"       the rooms that its API has pages of, all by default
#   LABKIT_DATA=/data      a folder with the real data sets; tests that need them run

SHELL := bash
# Hundreds of processes start: compiled once, labkit is not compiled anew by each.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= python3
PIP_FLAGS ?=
TORCH ?= 2.13.0
DEVICE ?= cpu
DOCS ?= build/docs

# All tools by this interpreter: their scripts name the folder that .venv was made in,
# and after a copy or a move of the clone would run the old one, or nothing.
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
LABKIT := $(BIN)/python -m labkit
LOGS := build/test
CODE := labkit reproduction tests benchmarks notebooks docs/conf.py docs/gather.py
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest --color=no \
  --junitxml=$(LOGS)/$(@:test-%=%).xml
TWO_CORES := -n 2 --dist loadfile
DATA_SETS := ptb mnist fashion-mnist cifar10 imdb usps
MISSING := $(shell for d in $(DATA_SETS); do test -d "$(LABKIT_DATA)/$$d" || printf ' %s/' $$d; done)
HAVE_DATA := $(if $(LABKIT_DATA),$(if $(MISSING),,yes))

.DEFAULT_GOAL := help
.PHONY: help setup run test lab lint bench gpu lines lock dist docs picture stills run-all clean test-unit test-device test-notebooks test-browser \
  test-long

help: ## List the commands
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 24

# An interpreter that was asked for by name must be the one that .venv has.
.PHONY: same-python
same-python:
	@if [ "$(origin PYTHON)" != file ] && [ -x $(BIN)/python ]; then \
	  asked=$$($(PYTHON) --version 2>&1); has=$$($(BIN)/python --version); \
	  if [ "$$asked" != "$$has" ]; then \
	    echo ".venv has $$has, and PYTHON=$(PYTHON) is '$$asked';" \
	      "'make clean' removes .venv, then it is made anew" >&2; exit 1; \
	  fi; \
	fi

.venv/.stamp: pyproject.toml requirements.lock | same-python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "labkit needs Python 3.11 or newer, and $(PYTHON) is" \
	    "'$$($(PYTHON) --version 2>&1)'. Name another: make PYTHON=python3.12" >&2; \
	  exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(PIP_FLAGS) -r requirements.lock
	$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps -e .
	@touch $@

setup: .venv/.stamp ## Make .venv with all that labkit needs; the other commands do so, too

run: .venv/.stamp ## Run every notebook on small settings; the report's path comes last
	@status=0; $(LABKIT) run --all --profile quick || status=$$?; \
	$(LABKIT) report || status=$$?; exit $$status

lab: .venv/.stamp ## Open JupyterLab at the tour
	@$(LABKIT) lab

lint: .venv/.stamp ## Check the style of code and notebooks
	$(BIN)/python -m ruff check $(CODE)
	$(BIN)/python -m ruff format --check $(CODE)

test: .venv/.stamp ## Lint, unit tests, strict device, notebooks, browser; a summary comes last
	@set -o pipefail; rm -rf $(LOGS); mkdir -p $(LOGS); status=0; results=; \
	for stage in lint unit device notebooks browser; do \
	  target=test-$$stage; if [ $$stage = lint ]; then target=lint; fi; \
	  echo; echo "--- $$stage"; code=0; \
	  $(MAKE) --no-print-directory $$target || code=$$?; \
	  if [ $$code != 0 ]; then status=1; fi; \
	  results="$$results $$stage=$$code"; \
	done; \
	echo; $(BIN)/python -m tests.tally $(LOGS) $$results | tee $(LOGS)/summary; \
	exit $$status

test-unit: .venv/.stamp
	@$(if $(HAVE_DATA),,echo "Tests on real data are left out: $(if $(LABKIT_DATA),LABKIT_DATA lacks$(MISSING),LABKIT_DATA names no folder).")
	$(PYTEST) $(TWO_CORES) -m "$(if $(HAVE_DATA),,not real_data and )not browser and not long" \
	  --ignore=tests/device

# In processes of their own: the pretend accelerator is registered with torch for good.
test-device: .venv/.stamp
	$(PYTEST) -n 2 --dist worksteal tests/device

test-notebooks: .venv/.stamp
	$(PYTEST) $(TWO_CORES) -o addopts=--strict-markers --nbval-lax --nbval-current-env \
	  --nbval-sanitize-with tests/notebooks/sanitize.cfg -p tests.notebooks.run_all notebooks/

test-browser: .venv/.stamp
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then \
	  $(PYTEST) $(TWO_CORES) --no-loadscope-reorder -m browser tests/browser; \
	else \
	  echo "The browser test was not run: it needs chromium and chromedriver on PATH" \
	    "(Debian: apt-get install chromium chromium-driver)."; \
	fi

test-long: .venv/.stamp ## Run what takes hours: every planted error and panel, notebooks at many values within their bounds
	$(PYTEST) -n 2 -m long --ignore=tests/device

bench: .venv/.stamp ## Run the benchmarks, ratios side by side; the summary comes last
	@OMP_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python benchmarks --device=$(DEVICE) \
	  $(if $(JSON),--json=$(JSON))

# Without .venv and without installation: a lent machine has a torch of its own.
gpu: ## Check and time everything on a GPU, from the source tree; PART=a..e, DEVICE=cpu
	@PYTHONPATH=. $(PYTHON) benchmarks/gpu.py --device=$(if $(filter file,$(origin DEVICE)),cuda,$(DEVICE)) \
	  $(if $(PART),--part=$(PART)) $(if $(JSON),--json=$(JSON))

lines: .venv/.stamp ## Weigh labkit and its tests, room by room: tokens of code, words, names, tricks
	@$(BIN)/python benchmarks/lines.py $(TREES)

run-all: .venv/.stamp ## Run All in JupyterLab: seconds to the first answer, and to the last (needs Chromium)
	OMP_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python benchmarks/run_all.py $(NAMES)

stills: .venv/.stamp ## Draw the still pictures that notebooks show before anything has run (needs Chromium)
	PYTHONPATH=. $(BIN)/python benchmarks/stills.py $(NAMES)

picture: .venv/.stamp ## Record README's moving picture from a live panel (needs Chromium)
	PYTHONPATH=. $(BIN)/python benchmarks/picture.py notebooks/figures/panel.webp

docs: .venv/.stamp ## Run every notebook and build the site in build/docs/site
	rm -rf $(addprefix $(DOCS)/,runs source doctrees site)
	@set -o pipefail; $(LABKIT) list | grep '^[a-z]' \
	| xargs -n 1 -P 2 $(LABKIT) run --out $(DOCS)/runs
	@$(MAKE) --no-print-directory site

.PHONY: site
site:
	$(BIN)/python docs/gather.py $(DOCS)/runs $(DOCS)/source $(ROOMS)
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs -d $(DOCS)/doctrees $(DOCS)/source $(DOCS)/site
	@rm -rf $(DOCS)/jupyter_execute; echo "$(DOCS)/site/index.html"

dist: .venv/.stamp ## Build the wheel and the sdist into dist/
	rm -rf dist; $(BIN)/python -m build --no-isolation

# torch without its +cpu or +cu mark; the CUDA libraries are torch's own to choose.
lock: ## Write requirements.lock anew, from a fresh environment
	@set -eo pipefail; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	$(PYTHON) -m venv $$work/venv; \
	mkdir $$work/src; cp -r pyproject.toml README.md LICENSE labkit notebooks $$work/src; \
	$$work/venv/bin/python -m pip install $(PIP_FLAGS) torch==$(TORCH); \
	$$work/venv/bin/python -m pip install $(PIP_FLAGS) "$$work/src[lab,cluster,dev,docs]"; \
	{ sed -n '/^#/p' requirements.lock; \
	  $$work/venv/bin/python -m pip freeze --exclude labkit --exclude pip --exclude setuptools \
	  | sed -E '/^(nvidia-|cuda-|triton)/d; s/^(torch==[^+]*)\+.*/\1/'; } > $$work/lock; \
	cp $$work/lock requirements.lock

clean: ## Remove .venv and what the tools left; runs/ and data/ stay
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find labkit reproduction tests benchmarks notebooks -name __pycache__ -prune -exec rm -rf {} +
