#!/usr/bin/env bash
# Leaves out of a list of packages those that would only be linked for `make test`: all of their tests begin with depth.Only, or are
# skipped by the expression that is given: shallow.sh [EXPRESSION] <PACKAGES
set -euo pipefail
skipped=${1:-^$}

while read -r package; do
	folder=./${package#sallyport.dev/sallyport/}
	if ! ls "$folder"/*_test.go >/dev/null 2>&1 || cat "$folder"/*_test.go | awk -v skipped="$skipped" '
		/^func (Test|Fuzz|Example)/ && !/^func TestMain\(/ {
			tests++; at = NR; name = $2; sub(/\(.*/, "", name)
			if (name ~ skipped) { deep++; at = -1 }
		}
		/^\tdepth\.Only\(t\)$/ && NR == at + 1 { deep++ }
		END { exit !(tests > deep) }'; then
		echo "$package"
	fi
done
