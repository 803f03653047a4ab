#!/usr/bin/env bash
# Downloads a program that tests and benchmarks need into a folder, from the distribution's own package mirror: the
# newest suite of it, except for the older Neovim and for HAProxy, which is the one that a server has.
# It needs no root rights and installs nothing. The packages are unpacked into FOLDER/unpacked/NAME and started
# with their own loader, so that they also run on a system with an older C library. A second run does nothing.
#
# Usage: get_program.sh NAME FOLDER        NAME is nvim, nvim-older, hx, llama-server or haproxy; the command is FOLDER/NAME
set -euo pipefail

name="${1:-}"
folder="$(mkdir -p "${2:-.}" && cd "${2:-.}" && pwd)"
unpacked="$folder/unpacked/$name"
ask="--version"
case "$name" in
    nvim)
        title="Neovim" minimum="0.12" package="neovim" program="usr/bin/nvim"
        variable="VIMRUNTIME='$unpacked/usr/share/nvim/runtime'" override="MIDTOKEN_NVIM"
        ;;
    nvim-older)
        title="An older Neovim" minimum="0.10" package="neovim" program="usr/bin/nvim"
        variable="VIMRUNTIME='$unpacked/usr/share/nvim/runtime'" override="MIDTOKEN_NVIM_OLDER"
        debian="trixie" ubuntu="resolute"
        ;;
    hx)
        title="Helix" minimum="25.01" package="hx" program="usr/lib/hx/hx"
        variable="HELIX_RUNTIME='$unpacked/usr/lib/hx/runtime'" override="MIDTOKEN_HX"
        ;;
    llama-server)
        title="llama.cpp's server" minimum="0.7" package="llama.cpp-tools" program="usr/bin/llama-server"
        kind="$(grep -qw avx2 /proc/cpuinfo && echo haswell || echo x64)" override="MIDTOKEN_LLAMA_SERVER"
        variable="GGML_BACKEND_PATH=\$(echo '$unpacked'/usr/lib/*/ggml/backends*/libggml-cpu-$kind.so)"
        ;;
    haproxy)
        title="HAProxy" minimum="2.6" package="haproxy" program="usr/sbin/haproxy" ask="-v"
        variable="" override="MIDTOKEN_HAPROXY" debian="bookworm" ubuntu="noble"
        ;;
    *)
        echo "usage: get_program.sh nvim|nvim-older|hx|llama-server|haproxy FOLDER" >&2
        exit 2
        ;;
esac

fail() {
    echo "get_program.sh: $*. Or install $title $minimum yourself and set $override to its path." >&2
    exit 1
}

# The starter is written last. If it works, the folder is complete.
if [ -x "$folder/$name" ] && "$folder/$name" "$ask" >/dev/null 2>&1; then
    touch "$folder/$name" # newer than this script, for make
    exit 0
fi

# Use an installed one if it is new enough.
if installed="$(command -v "${!override:-$name}")"; then
    version="$("$installed" "$ask" 2>&1 | sed -nE '1s/^[^0-9]*([0-9.]+).*/\1/p')"
    if [ "$(printf '%s\n' "$minimum" "$version" | sort -V | head -1)" = "$minimum" ]; then
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$installed" >"$folder/$name"
        chmod +x "$folder/$name"
        exit 0
    fi
fi

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "this needs apt-get and dpkg-deb"
distribution="$(. /etc/os-release && echo "$ID")"
case "$distribution" in
    debian) suite="${debian:-forky}" components="main" ;;
    ubuntu) suite="${ubuntu:-devel}" components="main universe" ;;
    *) fail "no package source is known for $distribution" ;;
esac

# Use the mirror that the machine installs its own packages from.
mirror="$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 2>/dev/null | awk '$2 == "main" && !found++ { print $1 }')"
if [ -z "$mirror" ]; then # the package lists were never downloaded: read the source files
    mirror="$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        sed -nE 's/^(URIs:|deb( +\[[^]]*\])?) +([^ ]+).*/\3/p' | grep -E "/$distribution/?\$" | head -1)"
fi
[ -n "$mirror" ] || fail "no package mirror found in /etc/apt"
keyring="/usr/share/keyrings/$distribution-archive-keyring.gpg"
[ -r "$keyring" ] || fail "$keyring is missing (package $distribution-archive-keyring)"

echo "Fetching $title (suite $suite) into $folder"
apt="$folder/apt-$name"
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/log" "$unpacked"
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
apt-get install -qq --yes --download-only --no-install-recommends "$package" libc6 >/dev/null ||
    fail "the packages could not be fetched"
for deb in "$apt"/cache/archives/*.deb; do
    dpkg-deb --extract "$deb" "$unpacked"
done

loader="$(find "$unpacked" -maxdepth 4 -path '*/lib/*/ld-linux-*.so.*' | sort | tail -1)"
[ -n "$loader" ] || fail "the unpacked C library has no loader"
kind="$(basename "$(dirname "$loader")")" # such as x86_64-linux-gnu; older suites have libraries in /lib, too
libraries="$unpacked/usr/lib/$kind:$unpacked/lib/$kind:$unpacked/usr/lib/$kind/llama"
cat >"$folder/$name.partial" <<STARTER
#!/bin/sh
$variable exec "$loader" --library-path "$libraries" --argv0 "$name" "$unpacked/$program" "\$@"
STARTER
chmod +x "$folder/$name.partial"
mv "$folder/$name.partial" "$folder/$name"
rm -rf "$apt"
"$folder/$name" "$ask" | sed -n 1p # reads all, so that no program is ended by a closed pipe
