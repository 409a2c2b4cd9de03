# Two commands matter to a newcomer: `make demo` and `make test`. Both build .venv on the first call and reuse it after.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED_FROM := pyproject.toml constraints.txt $(wildcard src/owlmine/*.h src/owlmine/*/*.c)

.PHONY: demo test quick numeric packages reproduce check format clean

demo: .venv/.core
	$(BIN)/owlmine demo --out out/demo

# The inner loop: losses, mining, metrics, ranking and the layers, without what trains models or starts processes.
QUICK := tests/losses tests/mining tests/metrics tests/rank tests/recipe/test_plan.py tests/recipe/test_options.py \
	tests/contracts tests/test_layers.py
quick: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q $(QUICK)

# Kernels in a process of their own: Triton's interpreter must be asked for before Triton is imported.
test: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --ignore=tests/kernels
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 tests/kernels

# The numeric tests once more, as another CPU's libraries would round: PyTorch without vector code, MKL and OpenBLAS
# with that of older processors, and two threads.
NUMERIC := tests/losses tests/mining tests/theory tests/metrics tests/dense tests/index tests/rank tests/recipe \
	tests/add_classes tests/evaluate tests/run tests/contracts tests/estimator tests/test_model.py
numeric: .venv/.dev
	ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 OPENBLAS_CORETYPE=Haswell \
		OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE \
		$(BIN)/python -m pytest -n 2 $(NUMERIC)

# The package as it installs elsewhere: from the plain index, with a C compiler and without.
packages: .venv/.dev
	.ci/packages

# The study's part for two CPU cores, beside the stored figures. DATA: a folder that holds a folder bibtex.
reproduce: .venv/.core
	$(BIN)/python benchmarks/paper/reproduce.py --out out/reproduce $(if $(DATA),--data-root $(DATA))

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist src/owlmine.egg-info src/owlmine/*/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv .venv

# A stamp per set of dependencies: an interrupted install leaves no stamp and is done again.
.venv/.core: $(INSTALLED_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

.venv/.dev: $(INSTALLED_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch .venv/.core $@
