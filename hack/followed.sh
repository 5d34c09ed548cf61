#!/usr/bin/env bash
# Prints, as an expression for `go test -skip`, the tests that make test-deep runs again and closer, for a CI that runs both. A name that
# another package has for a test of which that is not so is left out.
set -euo pipefail

tests() { grep -hoE '^func (Test|Fuzz|Example)[A-Za-z0-9_]*\(' "$1"/*_test.go | sed 's/^func //; s/($//' | grep -vx TestMain | sort -u; }

"$(dirname "${BASH_SOURCE[0]}")/deep.sh" | while read -r line; do
	run=${line##*-run=}
	tests "${line##* }" | grep -E -- "${run% *}"
done | sort | uniq -c | while read -r deep name; do
	[ "$(grep -rlE --include='*_test.go' "^func $name\(" . | xargs -n1 dirname | sort -u | wc -l)" != "$deep" ] || echo "$name"
done | paste -sd '|' - | sed 's/.*/^(&)$/'
