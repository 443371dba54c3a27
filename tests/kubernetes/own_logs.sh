#!/bin/sh
# Stands before `nohup` on the PATH of the program that starts clusters, which starts everything by it. Kubelets keep logs
# under /var/log/pods, and each deletes what is not of its own pods: several on one machine lose each other's logs. Here
# containerd and kubelet of a node share a mount namespace with a directory of their own in that place.
case "$1" in
containerd) # -c DIR/node-N/containerd.toml
  node=${3%/*}
  mkdir -p "$node/log" /var/log/pods
  exec unshare --mount --propagation private sh -c 'mount --bind "$0/log" /var/log/pods && exec "$@"' "$node" "$@" ;;
*/kubelet)
  for word in "$@"; do
    case "$word" in --root-dir=*) node=${word#--root-dir=} node=${node%/*} ;; esac
  done
  exec nsenter --target "$(cat "${node%/*}/containerd-${node##*-}.pid")" --mount -- "$@" ;;
esac
exec /usr/bin/nohup "$@"
