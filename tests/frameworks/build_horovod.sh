#!/usr/bin/env bash
# Builds Horovod's wheel against the installed PyTorch, once: about four CPU minutes. Usage: build_horovod.sh PYTHON OUT_DIR
# Horovod 0.28.1 asks for C++14; PyTorch's headers need C++17, hence the wrapper around the compiler.
set -euo pipefail
python=$(realpath -s "$1") out=$(realpath -m "$2")
if compgen -G "$out/horovod-0.28.1-*.whl" > /dev/null; then
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#!/bin/sh\nexec g++ "$@" -std=c++17 -g0 -O1\n' > "$work/cxx"
chmod +x "$work/cxx"
mkdir -p "$out"
cd "$work"
env CXX="$work/cxx" MAKEFLAGS=-j2 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 PATH="$(dirname "$python"):$PATH" \
    "$python" -m pip wheel --no-build-isolation --no-deps horovod==0.28.1 -w "$out"
