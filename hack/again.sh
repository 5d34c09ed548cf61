#!/usr/bin/env bash
# Runs what failed under each.sh once more, one after another, and of a package only the tests that failed: again.sh DIR. If all pass
# now, it succeeds, and its last lines name them as FLAKY, with both outputs. A data race, a lost or doubled effect (depth.Effect), and a
# test that is not in depth (one of make test) are failures whatever a second run says: they are not run again.
set -euf -o pipefail
hack=$(dirname "${BASH_SOURCE[0]}") dir=$1

# failing names the tests that failed, or were running when the time was over.
failing() {
	awk '/^--- FAIL: / { print $3 }
		/^\trunning tests:/ { running = 1; next }
		running && /^\t\t/ { sub(/\/.*/, "", $1); print $1; next }
		{ running = 0 }' "$1" | sort -u
}

# second prints the command of the second run. After a panic, some tests have not run at all: it is the whole command then.
second() {
	local tests=
	grep -qE '^(panic|fatal error|signal): ' "$1.out" || tests=$(failing "$1.out" | paste -sd '|' -)
	awk -v tests="$tests" '{
		if (tests != "") { sub(/ -run=[^ ]+/, ""); $NF = "-run=^(" tests ")$ " $NF }
		print
	}' "$1.run"
}

# shallow names the tests that failed and are not in depth.
shallow() {
	local deep
	deep=$(sed -n 's/.*SALLYPORT_TEST_DEEP=\([^ ]*\).*/\1/p; t; s/.*/./p' "$1.run")
	failing "$1.out" | awk -v deep="$deep" '$0 !~ deep' | paste -sd ' ' -
}

tried=0 failed=0 flaky=
for i in $(cd "$dir" && set +f && ls -- *.run | sort -n); do
	run=$dir/${i%.run}
	[ ! -e "$run.ok" ] || continue
	package=$(awk '{ print $NF }' "$run.run")
	if grep -qE 'WARNING: DATA RACE|race detected during execution|^fatal error: concurrent map|EFFECT: ' "$run.out"; then
		echo "not run again, because of a data race or a wrong effect: $package"
		failed=1
		continue
	fi
	others=$(shallow "$run")
	if [ -n "$others" ]; then
		echo "not run again, because make test has them: $package $others"
		failed=1
		continue
	fi
	again=$(second "$run")
	echo "once more, alone: $again"
	tried=$((tried + 1))
	# shellcheck disable=SC2086 # words
	if env $again >"$run.again" 2>&1 </dev/null && ! grep -q 'no tests to run' "$run.again"; then
		flaky="$flaky $run"
	else
		cat "$run.again"
		failed=1
	fi
done
[ "$tried" != 0 ] && [ "$failed" = 0 ] || exit 1
for run in $flaky; do
	echo "FLAKY: $(awk '{ print $NF }' "$run.run") $(failing "$run.out" | paste -sd ' ' -)"
	echo "the first output, of $run.out:"
	"$hack/failed.sh" "$run.out"
	echo "the second output:"
	sed 's/^/  /' "$run.again"
done
