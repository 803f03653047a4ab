#!/usr/bin/env bash
# Installs Chromium from the distribution's packages, for tests that look at pages. Does nothing if it is there. Another
# user than root is told what to install.
#
# Usage: get_chromium.sh        MIDTOKEN_CHROMIUM names another Chromium, and nothing is installed
set -euo pipefail

command -v "${MIDTOKEN_CHROMIUM:-chromium}" >/dev/null && exit
if [ -n "${MIDTOKEN_CHROMIUM:-}" ]; then
    echo "MIDTOKEN_CHROMIUM names $MIDTOKEN_CHROMIUM, which is not there" >&2
    exit 1
fi
bash "$(dirname "$0")/get_packages.sh" chromium
chromium --version
