#!/usr/bin/env bash
# Runs commands, three at a time, or two if there are no more processors, and prints the output of each when it ends, whole: each.sh DIR
# <COMMANDS, one a line. It fails if one of them does, after all. Of the Nth command DIR/N.run is the line, DIR/N.out the output; DIR/N.ok
# exists if it succeeded.
set -euf -o pipefail
dir=$1

one() {
	# shellcheck disable=SC2046 # words, none of which has a space
	if env $(<"$dir/$1.run") >"$dir/$1.out" 2>&1 </dev/null; then touch "$dir/$1.ok"; fi
	echo "$1"
}
export -f one
export dir

rm -rf "$dir"
mkdir -p "$dir"
n=0
while read -r line; do
	n=$((n + 1))
	echo "$line" >"$dir/$n.run"
done
seq 1 "$n" | xargs -P "$(($(nproc) > 2 ? 3 : 2))" -I {} bash -f -c 'one {}' | while read -r ended; do cat "$dir/$ended.out"; done
for i in $(seq 1 "$n"); do [ -e "$dir/$i.ok" ] || exit 1; done
