# make run    run the default study, packed onto every core; ends with results/default/report.html
# make plan   estimate how long the default study will take, and its size
# make test   run all tests except the long ones of make soak; includes make lint;
#             with PROCESSOR=avx2 or PROCESSOR=default as on a processor without AVX-512 or without AVX
# make test-slurm   run the tests that need a real SLURM, set up on this machine as root
# make cores, scratch_vs_builtin, data_size, kfold, hogwild
#             run a published study in miniature, or in full with SIZE=full; ends with results/SIZE/STUDY/report.html
# make miniatures   run all five
# make test-processors   test that results are bitwise equal where promised, as on other processors
# make soak   run the long tests, then an hour of kills, damage, full disks and changes: the results must stay the same
# make bench  measure the speed on this machine
# make docs   build the documentation as a site: results/docs/index.html
# make lock   write requirements.lock: the packages to install, with their digests
# make release   check everything and build the wheel of a version
# make manual rewrite config/config.yaml, docs/ and README.md from settings.py, programs and docs/measured/

PYTHON ?= python3
CORES ?= all
READY := .venv/ready
BIN := .venv/bin

STUDIES := cores scratch_vs_builtin data_size kfold hogwild
SIZE ?= miniature


.PHONY: run plan test lint bench test-slurm test-processors soak manual docs lock release miniatures $(STUDIES)

run: $(READY)
	$(BIN)/snakemake --cores $(CORES) --report results/default/report.html --report-after-run
	@echo "Open" results/default/studies/*/report.html "or, all in one, results/default/report.html"

plan: $(READY)
	$(BIN)/python scripts/plan.py $(if $(filter-out all,$(CORES)),--cores $(CORES))

miniatures: $(STUDIES)

$(STUDIES): $(READY)
	$(BIN)/snakemake --cores $(CORES) --configfile config/$(SIZE)/$@.yaml \
	    --report results/$(SIZE)/$@/report.html --report-after-run
	@echo "Open" results/$(SIZE)/$@/studies/*/report.html "or, all in one, results/$(SIZE)/$@/report.html"

test: lint # pytest gets PROCESSOR from the environment
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	$(BIN)/python docs/words.py
	$(BIN)/snakemake --lint

# As on every processor that this one can imitate.
test-processors: $(READY)
	PROCESSORS=all $(BIN)/python -m pytest -m long tests/project/test_processors.py

# The long tests, then MINUTES=60 of disturbances, plus the two or three minutes that the undisturbed
# campaigns take. SEED=1 repeats the disturbances of another soak with that seed.
MINUTES ?= 60
soak: $(READY)
	@$(BIN)/python scripts/install.py run test frameworks export notebook
	$(BIN)/python -m pytest -m "long and not slurm"
	$(BIN)/python tests/drills/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) \
	    --markdown results/soak.md

bench: $(READY)
	@$(BIN)/python scripts/install.py run test rivals
	$(BIN)/python tests/benchmarks/run_all.py

test-slurm: $(READY)
	$(BIN)/python -m pytest -m slurm --numprocesses=2 --timeout=3600

manual: $(READY)
	$(BIN)/python docs/manual.py
	$(BIN)/python docs/measured.py

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open results/docs/index.html"

# torch's packages that come from PyTorch's index of CPU builds, or are for GPUs.
UNLOCKED := torch torchvision triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-, \
    cublas cuda-cupti cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 \
    nccl-cu13 nvjitlink nvshmem-cu13 nvtx)
lock: # with the uv of .venv, which installed the present lock
	$(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-header --group run --group test $(UNLOCKED:%=--no-emit-package %) --output-file requirements.lock
	@sed -i '1i # Every package that `make` installs, with the digests of its files; `make lock` writes it from pyproject.toml.\n# Without torch, whose builds for CPUs come from an index of their own, and what it brings for GPUs.' requirements.lock

# Checks everything, builds the wheel and the notes, and prints what is left to do by hand.
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' scripts/allcores/version.py)
TAG ?= v$(VERSION)
release: $(READY)
	@test -z "$$(git status --porcelain)" || { echo "commit or remove what git status shows"; exit 1; }
	@grep -q '^## $(VERSION), 20' CHANGELOG.md || { echo "CHANGELOG.md: expected '## $(VERSION), <date>'"; exit 1; }
	@test "$(TAG)" = "v$(VERSION)" || { echo "found the tag $(TAG); expected v$(VERSION)"; exit 1; }
	@grep -q '^version: $(VERSION)$$' CITATION.cff || { echo "CITATION.cff: expected version: $(VERSION)"; exit 1; }
	$(MAKE) test docs
	$(MAKE) test PROCESSOR=default
	@$(BIN)/python scripts/install.py run test compiler
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --quiet --wheel-dir results/release .
	@sed '1,/^## $(VERSION), /d; /^## /,$$d' CHANGELOG.md > results/release/notes.md
	@echo "results/release has the wheel. Left to do: git tag v$(VERSION) && git push origin main v$(VERSION), and publish the draft"

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("allcores needs Python 3.11 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "making .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python scripts/install.py run test
	@touch $@
