#!/bin/sh
# Installs what is missing: Debian packages (with sudo where this is not root) and the virtual environment .venv.
# Says nothing and changes nothing when all is there.
set -eu
cd "$(dirname "$0")/.."

packages="g++ cmake ninja-build pkg-config ccache python3 python3-dev python3-venv
  libcaf-dev capnproto libcapnp-dev libopenblas-openmp-dev libhwy-dev libtomlplusplus-dev libcli11-dev libfmt-dev
  nlohmann-json3-dev zlib1g-dev libssl-dev libxxhash-dev libucx-dev libgtest-dev libgmock-dev
  dataset-fashion-mnist"
python_packages="numpy==2.4.6 pytest==9.2.0 nanobind==3.1.0 scikit-build-core==1.1.2 mypy==2.4.1"

missing=""
for package in $packages; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
  install="apt-get install -y --no-install-recommends$missing"
  if [ "$(id -u)" = 0 ]; then
    root=""
  elif command -v sudo >/dev/null; then
    root="sudo"
  else
    echo "setup: packages are missing and there is no sudo. Run this line as root, then again make:" >&2
    echo "  apt-get update && $install" >&2
    exit 1
  fi
  # Old lists name versions that the mirror no longer has; so they are renewed when the packages are not to be had.
  env="DEBIAN_FRONTEND=noninteractive"
  $root env $env $install || { $root apt-get update && $root env $env $install; }
fi

python="${PYTHON:-/usr/bin/python3}"
stamp=".venv/.packages"
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$python $python_packages" ]; then
  rm -rf .venv
  "$python" -m venv .venv
  # shellcheck disable=SC2086
  .venv/bin/python -m pip install --quiet --disable-pip-version-check $python_packages
  echo "$python $python_packages" >"$stamp"
fi
