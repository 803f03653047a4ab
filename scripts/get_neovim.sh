#!/usr/bin/env bash
# Downloads Neovim 0.12 into a folder, from the newest suite of the distribution's own package mirror.
# It needs no root rights and installs nothing. The packages are unpacked into FOLDER/unpacked and started
# with their own loader, so that they also run on a system with an older C library. A second run does nothing.
#
# Usage: get_neovim.sh [FOLDER]        FOLDER defaults to build/editors; the command is FOLDER/nvim
set -euo pipefail

folder="$(mkdir -p "${1:-build/editors}" && cd "${1:-build/editors}" && pwd)"
packages=(neovim libc6)
minimum="0.12"

fail() {
    echo "get_neovim.sh: $*. Or install Neovim $minimum yourself and set MIDTOKEN_NVIM to its path." >&2
    exit 1
}

# The starter is written last. If it works, the folder is complete.
if [ -x "$folder/nvim" ] && "$folder/nvim" --version >/dev/null 2>&1; then
    touch "$folder/nvim" # newer than this script, for make
    exit 0
fi

# Use an installed Neovim if it is new enough.
if nvim="$(command -v "${MIDTOKEN_NVIM:-nvim}")"; then
    version="$("$nvim" --version | sed -n 's/^NVIM v\([0-9.]*\).*/\1/p')"
    if [ "$(printf '%s\n' "$minimum" "$version" | sort -V | head -1)" = "$minimum" ]; then
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$nvim" >"$folder/nvim"
        chmod +x "$folder/nvim"
        exit 0
    fi
fi

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "this needs apt-get and dpkg-deb"
distribution="$(. /etc/os-release && echo "$ID")"
case "$distribution" in
    debian) suite="forky" components="main" ;;
    ubuntu) suite="devel" components="main universe" ;;
    *) fail "no package source is known for $distribution" ;;
esac

# Use the mirror that the machine installs its own packages from.
mirror="$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 2>/dev/null | awk '$2 == "main" { print $1; exit }')"
if [ -z "$mirror" ]; then # the package lists were never downloaded: read the source files
    mirror="$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        sed -nE 's/^(URIs:|deb( +\[[^]]*\])?) +([^ ]+).*/\3/p' | grep -E "/$distribution/?\$" | head -1)"
fi
[ -n "$mirror" ] || fail "no package mirror found in /etc/apt"
keyring="/usr/share/keyrings/$distribution-archive-keyring.gpg"
[ -r "$keyring" ] || fail "$keyring is missing (package $distribution-archive-keyring)"

echo "Fetching Neovim (suite $suite) into $folder"
apt="$folder/apt"
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/log" "$folder/unpacked"
: >"$apt/state/status" # an empty list of installed packages, so that every library is downloaded too
echo "deb [signed-by=$keyring] $mirror $suite $components" >"$apt/sources.list"
cat >"$apt/apt.conf" <<CONF
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt/cache";
Dir::Log "$apt/log";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "";
APT::Get::AllowUnauthenticated "false";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Debug::NoLocking "true";
CONF
export APT_CONFIG="$apt/apt.conf"
apt-get update -qq || fail "the mirror has no suite $suite that can be verified"
apt-get install -qq --yes --download-only --no-install-recommends "${packages[@]}" >/dev/null ||
    fail "the packages could not be fetched"
for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder/unpacked"
done

write_starter() { # NAME BINARY VARIABLE=VALUE
    local loader
    loader="$(find "$folder/unpacked/usr/lib" -maxdepth 2 -name 'ld-linux-*.so.*' | sort | tail -1)"
    [ -n "$loader" ] || fail "the unpacked C library has no loader"
    cat >"$folder/$1.partial" <<STARTER
#!/bin/sh
$3 exec "$loader" --library-path "$(dirname "$loader")" --argv0 "$1" "$folder/unpacked/$2" "\$@"
STARTER
    chmod +x "$folder/$1.partial"
    mv "$folder/$1.partial" "$folder/$1"
}
write_starter nvim usr/bin/nvim "VIMRUNTIME='$folder/unpacked/usr/share/nvim/runtime'"
rm -rf "$apt"
"$folder/nvim" --version | head -1
