#!/usr/bin/env bash
# Makes a virtual environment with the project and a completion server; with the argument "all" also with torch, Triton
# and the packages for the tests. All versions come from requirements.lock, so that the environment is reproducible.
set -euo pipefail

python="${PYTHON:-python3}"
venv="${VENV:-.venv}"

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$version" != 3.11 ]; then # the versions in requirements.lock are for this one
    echo "make needs Python 3.11; $python is $version. Add PYTHON=python3.11 to the command" >&2
    exit 1
fi

# Debian and Ubuntu have separate packages for venv and for the shared libpython, which Triton's Python backend loads.
packages=()
"$python" -c 'import ensurepip' 2>/dev/null || packages+=("python$version-venv")
[ "${1:-}" != all ] || "$python" - <<'PY' || packages+=("libpython$version")
import pathlib, sys, sysconfig
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
folders = [sysconfig.get_config_var("LIBDIR") or "", "/usr/lib/x86_64-linux-gnu"]
sys.exit(not any(pathlib.Path(folder, name).exists() for folder in folders))
PY
if [ "${#packages[@]}" -gt 0 ]; then
    if [ "$(id -u)" = 0 ]; then
        echo "Installing ${packages[*]}"
        apt-get update -qq && apt-get install -y -qq "${packages[@]}"
    else
        echo "Please run: sudo apt-get install ${packages[*]}" >&2
        exit 1
    fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
install=("$venv/bin/python" -m pip install --constraint requirements.lock)
if [ "${1:-}" != all ]; then
    echo "[1/2] pip and setuptools"
    "${install[@]}" --quiet --upgrade pip setuptools
    echo "[2/2] midtoken and a completion server"
    PYTHONWARNINGS=ignore "${install[@]}" --quiet --no-build-isolation --editable '.[local,playground]'
else
    install+=(--no-compile) # Python compiles what is imported, which is a small part of torch and transformers
    echo "[1/2] torch (the largest part)"
    "${install[@]}" torch numpy
    echo "[2/2] the packages for the tests"
    PYTHONWARNINGS=ignore "${install[@]}" --quiet --no-build-isolation --editable '.[local,torch,triton,playground]' --group dev
fi
