#!/bin/sh
# Rewrites controlplane.mod and controlplane.sum for another Kubernetes version:  ./bump.sh v1.X.Y
#
# k8s.io/kubernetes cannot be required as it is: its go.mod replaces the staging modules by folders that are not part of
# the module. So this takes its requirements over, and replaces every staging module by the version of it that was
# published together with this Kubernetes (v1.X.Y is v0.X.Y of each). The etcd server is the one whose client this
# Kubernetes is built with.
set -eu
version=${1:?usage: bump.sh v1.X.Y}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOWORK=off GOFLAGS=-mod=mod CGO_ENABLED=0
cd "$work"

modfile=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"GoMod": "\(.*\)",*$/\1/p')
etcd=$(sed -n 's#^[[:space:]]*go.etcd.io/etcd/client/v3 \(v[^ ]*\).*#\1#p' "$modfile")
{
  echo "// Made by bump.sh; the build list of the control plane's binaries. Said here only: which Kubernetes, which etcd."
  echo "module sallyport.dev/control-plane"
  sed -e '/^module /d' -e '/^\/\//d' -e "s#=> ./staging/src/\(k8s.io/[^ ]*\)#=> \1 v0.${version#v1.}#" "$modfile"
  echo "require k8s.io/kubernetes $version"
  echo "require go.etcd.io/etcd/server/v3 $etcd"
} > go.mod
cat > tools.go <<'GO'
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
GO
go mod tidy
cp go.mod "$here/controlplane.mod"
cp go.sum "$here/controlplane.sum"
echo "Kubernetes $version, etcd $etcd"
