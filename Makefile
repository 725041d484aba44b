# `make test` and `make demo` each do everything that is missing on a fresh Debian 12.
.PHONY: test demo soak setup build clean

test: setup
	.venv/bin/python tools/check.py

soak: setup
	SLUICE_SOAK=1 .venv/bin/python tools/check.py

demo: build
	.venv/bin/sluice run -n 4 examples/fashion_mnist.py --config examples/parallel/dp2_tp2.toml

# The wheel (module and command) built and installed into .venv.
build: setup
	.venv/bin/python tools/check.py --build-only

setup:
	tools/setup.sh

clean:
	rm -rf build .venv
