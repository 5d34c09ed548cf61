#!/usr/bin/env bash
# Sorts lines that end in a package, such as those of `go list`, so that what may take longest by hack/budgets.txt comes first, and little
# is waited for in the end: longest.sh test, or longest.sh deep.
set -euo pipefail

awk -v column="$1" '
	FNR == NR { if (!/^#/ && NF) most[$1] = column == "deep" ? $NF : $2; next }
	{ package = $NF; sub(/^(\.|sallyport\.dev\/sallyport)\//, "", package); print (package in most ? most[package] : most["*"]), $0 }
' "$(dirname "${BASH_SOURCE[0]}")/budgets.txt" - | sort -k 1,1nr -s | cut -d ' ' -f 2-
