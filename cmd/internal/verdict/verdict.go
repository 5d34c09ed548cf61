// Package verdict has the error of a command that completed and found problems: its exit code is 1, that of a failure 2.
package verdict

// Bad is the text of a summary that is not good.
type Bad string

// Error returns the summary.
func (b Bad) Error() string { return string(b) }
