#!/usr/bin/env bash
# Shows which packages' tests took longest, and which took longer than they should, from what `go test` said: slowest.sh FILE COLUMN.
# It fails for nothing: machines differ.
set -euo pipefail
said=$1 column=$2 budgets=$(dirname "${BASH_SOURCE[0]}")/budgets.txt

times() { awk '$1 == "ok" || $1 == "FAIL" {sub(/^sallyport.dev\/sallyport\//, "", $2); if (sub(/s$/, "", $3)) print $3, $2}' "$said"; }

echo "the slowest packages, in seconds:"
times | sort -rn | head -10 | awk '{printf "  %8.1f  %s\n", $1, $2}'
awk -v column="$column" '
	FNR == NR { if (/^#/ || !NF) next; budget[$1] = column == "deep" && NF > 2 ? $3 : $2; next }
	{ most = ($2 in budget) ? budget[$2] : budget["*"]
	  if ($1 > most) printf "over its budget of %s s: %s took %.1f s\n", most, $2, $1 }
' "$budgets" <(times)
