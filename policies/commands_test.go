package policies

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// The part of a line of Rego that is a command, or goes on with one.
	commandPart  = regexp.MustCompile(`(\b(kubectl|helm) [a-z]| --?[a-z-]+[= ]\{).*$`)
	interpolated = regexp.MustCompile(`\{([^{}]+)\}`)
)

// Users paste commands of messages into a shell, so every value in one goes through lib-shell, whoever wrote it.
func TestCommandsOfPoliciesAreQuoted(t *testing.T) {
	quoted := []string{"_target", "_scale_down", "_lowest", "_flag", "_way_out", "_label"} // made by shell.word, or ours
	found := 0
	err := fs.WalkDir(shipped, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".rego") || strings.HasSuffix(path, "_test.rego") {
			return err
		}
		text, err := fs.ReadFile(shipped, path)
		if err != nil {
			return err
		}
		for number, line := range strings.Split(string(text), "\n") {
			if !strings.Contains(line, `$"`) {
				continue
			}
			for _, value := range interpolated.FindAllStringSubmatch(commandPart.FindString(line), -1) {
				found++
				if !strings.HasPrefix(value[1], "shell.word(") && !slices.Contains(quoted, value[1]) {
					t.Errorf("%s:%d: {%s} is not a word for a shell: use shell.word", path, number+1, value[1])
				}
			}
		}
		return nil
	})
	if err != nil || found < 30 {
		t.Fatalf("found %d values in commands, %v", found, err)
	}
}
