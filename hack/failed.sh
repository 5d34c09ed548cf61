#!/usr/bin/env bash
# Shows once more which tests failed, and the first lines of what each said, from what `go test` said: failed.sh FILE. It stands at the
# end, after the output of everything that ran beside them: what a manager logged is often longer than what a reader gets to see.
set -euo pipefail

awk -v lines=12 '
	/^(ok|FAIL|\?)[ \t]/ || /^FAIL$/ { left = 0 }
	/^FAIL[ \t]/ || /^ *--- FAIL/ || /^panic: / || /^WARNING: DATA RACE/ { if (!said++) print "what failed:"; left = lines }
	/^ *--- (PASS|SKIP)/ { left = 0 }
	left-- > 0 { print "  " substr($0, 1, 400) }
' "$1"
