#!/usr/bin/env bash
# Prints how to run the tests that look at more in depth or are left to a run without the race detector, of each package only these, a
# command a line: deep.sh go test -count=1 ... A test is one of them if it asks the package depth, or names a function that does; where
# that is asked outside functions, all tests of the package are. Of the packages of the variable WHOLE all tests are run. In any case
# SALLYPORT_TEST_DEEP is the expression for the tests that are in depth, for again.sh, and SALLYPORT_TEST_DAY the day of the year, which
# a second run then has too.
set -euo pipefail
day=$(date -u +%-j)

grep -rl --include='*_test.go' 'depth\.\(Checks\|Deep\|Every\|Of\|OneDayIn\|Only\|Unraced\)(' . | xargs -n1 dirname | sort -u | while read -r package; do
	tests=$(cat "$package"/*_test.go | awk '
		/^\/\// { next }
		/^(var|const|type) / { name = "" }
		/^func / { name = $0; sub(/^func (\([^)]*\) )?/, "", name); sub(/[^A-Za-z0-9_].*/, "", name); order[++n] = name }
		/depth\.(Checks|Deep|Every|Of|OneDayIn|Only|Unraced)\(/ { if (name == "") all = 1; else deep[name] = 1 }
		{ words = $0; gsub(/[^A-Za-z0-9_]+/, " ", words); body[name] = body[name] " " words }
		END {
			do {
				more = 0
				for (i = 1; i <= n; i++) {
					if (order[i] in deep) continue
					m = split(body[order[i]], named, " ")
					for (j = 1; j <= m; j++) if (named[j] in deep) { more = deep[order[i]] = 1; break }
				}
			} while (more)
			for (i = 1; i <= n; i++)
				if (order[i] in deep && order[i] ~ /^(Test|Fuzz)/ && order[i] != "TestMain") tests = tests (tests ? "|" : "") order[i]
			print all ? "." : "^(" tests ")$"
		}')
	case " ${WHOLE:-} " in
	*" sallyport.dev/sallyport/${package#./} "*) run=. ;;
	*) run=$tests ;;
	esac
	echo "SALLYPORT_TEST_DEEP=$tests" "SALLYPORT_TEST_DAY=$day" "$@" "-run=$run" "$package"
done
