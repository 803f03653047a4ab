#!/usr/bin/env bash
# Installs packages of the distribution that are missing. Run by root it installs them; run by another user it names
# them.
#
# Usage: get_packages.sh PACKAGE...
set -euo pipefail

packages=()
for package in "$@"; do
    [ "$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
        packages+=("$package")
done
[ "${#packages[@]}" -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "Please run: sudo apt-get install ${packages[*]}" >&2
    exit 1
fi
echo "installing ${packages[*]}"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
