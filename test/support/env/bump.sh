#!/bin/sh
# Rewrites the module graphs that the programs are built from:
#
#   ./bump.sh v1.X.Y v4.X.Y   programs.mod: the control plane and Helm; run it too after a change of the repository's go.mod
#   ./bump.sh v1.X.Y          old.mod: the API server of an older Kubernetes, with the dependencies that it was released with
#   ./bump.sh cert-manager    certmanager.mod: cert-manager's controllers, of the version of the repository's go.mod
#
# programs.mod and certmanager.mod have each library at the version that the repository's go.mod has, so that it is compiled once for all. What
# programs.mod needs newer is raised there.
#
# k8s.io/kubernetes replaces the staging modules by folders that are not part of the module. Here each is required at the version that
# was published together with this Kubernetes (v1.X.Y is v0.X.Y of each).
set -eu
usage='usage: bump.sh KUBERNETES-VERSION [HELM-VERSION], or bump.sh cert-manager'
kubernetes=${1:?$usage} helm=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
ours=$(cd "$here/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOWORK=off GOFLAGS=-mod=mod CGO_ENABLED=0
cd "$work"

if [ "$kubernetes" = cert-manager ]; then
	sed 1,2d "$here/certmanager/main.go" > main.go
	printf 'package main\nimport _ "sallyport.dev/sallyport/cmd/sallyport"\n' > ours.go
	go mod init sallyport.dev/certmanager
	go mod edit -go "$(cd "$ours" && go list -m -f '{{.GoVersion}}')" -require sallyport.dev/sallyport@v0.0.0 -replace "sallyport.dev/sallyport=$ours"
	go mod tidy
	rm ours.go
	go mod edit -droprequire sallyport.dev/sallyport -dropreplace sallyport.dev/sallyport
	go mod tidy
	{ echo "// Made by bump.sh; said here only: which versions."; cat go.mod; } > "$here/certmanager.mod"
	cp go.sum "$here/certmanager.sum"
	exit
fi

upstream=$(go mod download -json "k8s.io/kubernetes@$kubernetes" | sed -n 's/^\t"GoMod": "\(.*\)",*$/\1/p')
etcd=$(sed -n 's#^[[:space:]]*go.etcd.io/etcd/client/v3 \(v[^ ]*\).*#\1#p' "$upstream")
published=v0.${kubernetes#v1.}
packages=k8s.io/kubernetes/cmd/kube-apiserver
target=old
if [ -n "$helm" ]; then
	packages="$packages k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kubectl
		go.etcd.io/etcd/server/v3 helm.sh/helm/v4/cmd/helm"
	target=programs
fi
staged=$(sed -n 's#^\t\(k8s.io/[^ ]*\) v0\.0\.0\( .*\)*$#\1#p' "$upstream")
{
	echo "// Made by bump.sh; said here only: which versions."
	echo "module sallyport.dev/$target"
	grep -E '^(go|godebug) ' "$upstream"
	echo "require ("
	echo "k8s.io/kubernetes $kubernetes"
	if [ -n "$helm" ]; then
		echo "helm.sh/helm/v4 $helm"
		echo "go.etcd.io/etcd/server/v3 $etcd"
		echo "sallyport.dev/sallyport v0.0.0"
	fi
	for module in $staged; do
		case $module in k8s.io/sample-*) ;; *) echo "$module $published" ;; esac
	done
	echo ")"
	echo "replace ("
	if [ -n "$helm" ]; then echo "sallyport.dev/sallyport => $ours"; fi
	for module in $staged; do echo "$module v0.0.0 => $module $published"; done
	echo ")"
} > go.mod
{
	echo "package tools"
	for package in $packages; do echo "import _ \"$package\""; done
} > tools.go

# versions FILE lists what a go.mod requires: a module and its version a line.
versions() { awk '$1 == "require" && NF > 2 { print $2, $3 } /^\t[^ ]+ v[^ ]+( \/\/ indirect)?$/ { print $1, $2 }' "$1" | sort; }

if [ -n "$helm" ]; then
	echo 'import _ "sallyport.dev/sallyport/cmd/sallyport"' >> tools.go
	go mod tidy
	while
		versions go.mod > ./theirs
		raised=$(versions "$ours/go.mod" | join - ./theirs | awk '$2 != $3 { print $1 "@" $3 }')
		[ -n "$raised" ]
	do
		# shellcheck disable=SC2086 # one word for each module
		(cd "$ours" && go get $raised && go mod tidy)
		go mod tidy
	done
	go mod edit -droprequire sallyport.dev/sallyport -dropreplace sallyport.dev/sallyport
	sed -i '/sallyport/d' tools.go
fi
go mod tidy
cp go.mod "$here/$target.mod"
cp go.sum "$here/$target.sum"
echo "$target.mod: Kubernetes $kubernetes${helm:+, Helm $helm, etcd $etcd}"
