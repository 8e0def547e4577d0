# make run    the default study, packed onto every core; ends with results/default/report.html
# make plan   how long the default study will take, and how large it is
# make test   everything that must hold
# make cores, scratch_vs_builtin, data_size, kfold, hogwild
#             a published study in miniature, or whole with SIZE=full; ends with results/SIZE/STUDY/report.html
# make miniatures   all five
# make test-processors   the promises of bits, as on other processors
# make soak   an hour of kills, damage, full disks and changes: what comes out is what it was to be
# make bench  how fast it is, here and now
# make docs   the documentation as a site: results/docs/index.html
# make manual what the schema of a config and docs/measured/ say, in config/config.yaml, docs/ and README.md

PYTHON ?= python3
CORES ?= all
READY := .venv/ready
BIN := .venv/bin

STUDIES := cores scratch_vs_builtin data_size kfold hogwild
SIZE ?= miniature


.PHONY: run plan test lint bench test-slurm test-processors soak manual docs miniatures $(STUDIES)

run: $(READY)
	$(BIN)/snakemake --cores $(CORES) --report results/default/report.html --report-after-run
	@echo "Open results/default/report.html"

plan: $(READY)
	$(BIN)/python scripts/plan.py $(if $(filter-out all,$(CORES)),--cores $(CORES))

miniatures: $(STUDIES)

$(STUDIES): $(READY)
	$(BIN)/snakemake --cores $(CORES) --configfile config/$(SIZE)/$@.yaml \
	    --report results/$(SIZE)/$@/report.html --report-after-run
	@echo "Open results/$(SIZE)/$@/report.html"

test: lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check workflow
	$(BIN)/snakemake --lint

# As on every processor that this one can be told to be like.
test-processors: $(READY)
	PROCESSORS=all $(BIN)/python -m pytest -m long tests/test_processors.py

# The tests that only repeat at length what others hold, then MINUTES=60 of disturbances, beside the
# two or three that the undisturbed campaigns take; SEED=1 does what another call with that seed has
# done.
MINUTES ?= 60
soak: $(READY)
	$(BIN)/python -m pytest -m "long and not slurm"
	$(BIN)/python tests/drills/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) \
	    --markdown results/soak.md

bench: $(READY)
	@$(BIN)/python scripts/install.py run test rivals
	$(BIN)/python tests/benchmarks/run_all.py

test-slurm: $(READY)
	$(BIN)/python -m pytest -m slurm --numprocesses=2 --timeout=480

manual: $(READY)
	$(BIN)/python docs/manual.py
	$(BIN)/python docs/measured.py

docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet
	@echo "Open results/docs/index.html"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("allcores needs Python 3.11 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "making .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python scripts/install.py run test
	@touch $@
