#!/usr/bin/env bash
# Makes the environment: a virtual environment with the project and what its tests need.
set -euo pipefail

python="${PYTHON:-python3}"
venv="${VENV:-.venv}"

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case "$version" in
    3.11 | 3.12) ;;
    *) echo "midtoken needs Python 3.11 or 3.12; $python is $version. Try: make setup PYTHON=python3.12" >&2; exit 1 ;;
esac

# Debian and Ubuntu ship venv and the shared libpython (which Triton's Python backend loads) as packages of their own.
packages=()
"$python" -c 'import ensurepip' 2>/dev/null || packages+=("python$version-venv")
"$python" - <<'PY' || packages+=("libpython$version")
import ctypes.util, pathlib, sys, sysconfig
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
echo "[1/3] pip"
"$venv/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
echo "[2/3] torch (the largest part)"
"$venv/bin/python" -m pip install 'torch==2.13.0' 'numpy>=1.26,<2'
echo "[3/3] midtoken and what its tests need"
PYTHONWARNINGS=ignore "$venv/bin/python" -m pip install --quiet --editable . --group dev
