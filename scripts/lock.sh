#!/usr/bin/env bash
# Write requirements.lock: every package with all extras, as pip resolves pyproject.toml in a fresh environment.
# Usage: scripts/lock.sh [python3.11]      (or: make lock)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python3.11}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch/venv"
pip=("$scratch/venv/bin/python" -m pip --disable-pip-version-check)

"${pip[@]}" install --quiet --upgrade setuptools
"${pip[@]}" install --quiet --no-build-isolation --editable '.[all]'
"${pip[@]}" check

{
    echo "# Made by scripts/lock.sh with $("$scratch/venv/bin/python" --version) on $(uname -s) $(uname -m): everything of pyproject.toml's extra 'all'."
    echo "# Do not edit: change pyproject.toml and run 'make lock'."
    "${pip[@]}" freeze --all --exclude pip --exclude rayad
} >"$scratch/lock"
if grep -nE '://|^-e|@' "$scratch/lock"; then
    echo "the lines above are tied to this machine; nothing is written" >&2
    exit 1
fi
cp "$scratch/lock" requirements.lock
echo "requirements.lock: $(grep -cv '^#' requirements.lock) packages"
