#!/usr/bin/env bash
# Leaves out of a list of packages those that would only be linked for `make test`, because all of their tests begin with depth.Only or
# depth.OneDayIn: shallow.sh <PACKAGES
set -euo pipefail

while read -r package; do
	folder=./${package#sallyport.dev/sallyport/}
	if ! ls "$folder"/*_test.go >/dev/null 2>&1 || cat "$folder"/*_test.go | awk '
		/^func (Test|Fuzz|Example)/ && !/^func TestMain\(/ { tests++; at = NR }
		/^\tdepth\.(Only\(t\)|OneDayIn\(t, .*\))$/ && NR == at + 1 { deep++ }
		END { exit !(tests > deep) }'; then
		echo "$package"
	fi
done
