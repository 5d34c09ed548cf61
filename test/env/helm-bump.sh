#!/bin/sh
# Rewrites helm.mod and helm.sum for another version of Helm:  ./helm-bump.sh v4.X.Y
set -eu
version=${1:?usage: helm-bump.sh v4.X.Y}
here=$(cd "$(dirname "$0")" && pwd)
go=$(sed -n 's/^go //p' "$here/helm.mod")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOWORK=off GOFLAGS=-mod=mod CGO_ENABLED=0
cd "$work"
cat > go.mod <<MOD
// Made by helm-bump.sh; the build list of the Helm program. Said here only: which Helm.
module sallyport.dev/helm

go $go

require helm.sh/helm/v4 $version
MOD
cat > tools.go <<'GO'
package tools

import _ "helm.sh/helm/v4/cmd/helm"
GO
go mod tidy
cp go.mod "$here/helm.mod"
cp go.sum "$here/helm.sum"
echo "Helm $version"
