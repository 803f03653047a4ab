#!/usr/bin/env bash
# Runs the quick tests on another Python: `test_python.sh 3.13 FOLDER`. Without torch and Triton, so without the tests
# that compare with them, and with the newest NumPy.
set -euo pipefail
version=$1 folder=$2/$1
find_python() {
    for each in "$(command -v "python$version")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
        if "$each" --version > /dev/null 2>&1; then echo "$each" && return; fi
    done
    return 1
}
if ! python=$(find_python); then
    echo "python$version is not here, so nothing was tested with it" >&2
    exit 0
fi
tests=(tests/trie_cache tests/inference tests/lsp_server tests/midtoken tests/model_repository)
if [ ! -e "$folder/.ready" ] || [ pyproject.toml -nt "$folder/.ready" ]; then
    "$python" -m venv --clear "$folder"
    packages=(gguf hypothesis openai pexpect pynvim pyte pytest pytest-asyncio pytest-timeout pytest-xdist setuptools trustme)
    "$folder/bin/python" -m pip install --quiet --no-compile --editable ".[local,playground]" "${packages[@]}"
    touch "$folder/.ready"
fi
run=("$folder/bin/python" -m pytest -n 2 -p no:cacheprovider --hypothesis-profile=few)
"${run[@]}" --dist worksteal -m "not e2e" "${tests[@]}"
"${run[@]}" -n 0 -k embedded tests/e2e/test_commands.py tests/e2e/test_server_grpc.py
