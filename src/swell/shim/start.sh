#!/bin/sh
# Starts a worker in its container. With python3 in the image, shim/pod.py holds it; without, it runs as it is, and only
# the pod's own status tells how it ended.
for python in python3 python; do
  if command -v "$python" >/dev/null 2>&1; then
    exec "$python" -ISs /swell/lib/shim/swell/shim/pod.py "$@"
  fi
done
if [ -n "$SWELL_POD_FILES$SWELL_POD_ADDRESSES" ]; then
  echo "swell: this image has no python3, which it needs to receive submitted files and to run on several nodes;" >&2
  echo "swell: add python3 to the image, or submit without files and with at most the GPUs of one node" >&2
  exit 127
fi
cd "$SWELL_POD_CWD" 2>/dev/null || cd /
: >"$SWELL_POD_UP"
exec "$@"
