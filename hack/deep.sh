#!/usr/bin/env bash
# Says how to run the tests that look at more in depth, of each package only these, a command a line: deep.sh go test -count=1 ... A test
# is one of them if it asks the package depth itself; where it is asked outside a test, all tests of the package are.
set -euo pipefail

grep -rl --include='*_test.go' 'depth\.[A-Z][A-Za-z]*(' . | xargs -n1 dirname | sort -u | while read -r package; do
	tests=$(cat "$package"/*_test.go | awk '
		/^[a-z]/ { test = "" }
		/^func (Test|Fuzz)/ { test = $2; sub(/\(.*/, "", test) }
		/depth\.[A-Z][A-Za-z]*\(/ { if (test == "") all = 1; else if (!seen[test]++) tests = tests (tests ? "|" : "") test }
		END { print all ? "." : "^(" tests ")$" }')
	echo SALLYPORT_TEST_DEEP=1 "$@" "-run=$tests" "$package"
done
