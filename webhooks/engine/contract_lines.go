package engine

import "strings"

// mostCopied limits the sum of the squares of the lengths of a text's lines, in bytes: a line may have 16 KiB, and 120 KiB may be in lines
// of 2 KiB. Each error of OPA's parser has a copy of its line, and a line may have an error at each of its characters: 120 KB in a line took
// 5 GB of memory.
const mostCopied = (16 << 10) * (16 << 10)

// tooLong returns the number and the length of the longest line if the lines of a text are too long, or 0.
func tooLong(text string) (line, length int) {
	sum, at := 0, 0
	for next := range strings.SplitSeq(text, "\n") {
		at++
		sum += len(next) * len(next)
		if len(next) > length {
			line, length = at, len(next)
		}
	}
	if sum <= mostCopied {
		return 0, 0
	}
	return line, length
}
