package tools

import (
	"os"
	"strings"
	"testing"
)

const (
	untidy = "package a\nx   := 1\n"
	tidy   = "package a\n\nx := 1\n"
)

func TestPolicyFmt(t *testing.T) {
	const diff = "--- bad.rego\n+++ bad.rego (formatted)\n@@ -1,2 +1,3 @@\n package a\n-x   := 1\n+\n+x := 1\n"
	for name, tc := range map[string]struct {
		args, stdin string
		code        int
		out, errs   string
		written     bool
	}{
		"print":             {"bad.rego", "", 0, tidy, "", false},
		"print a folder":    {"dir", "", 0, tidy + tidy, "", false},
		"standard input":    {"", untidy, 0, tidy, "", false},
		"list":              {"-l bad.rego good.rego dir", "", 1, "bad.rego\ndir/below/bad.rego\n", "2 files are not formatted; to format: sallyport policy fmt -w\n", false},
		"list nothing":      {"-l good.rego", "", 0, "", "", false},
		"list input":        {"-l", untidy, 1, "<stdin>\n", "1 file is not formatted; to format: sallyport policy fmt -w\n", false},
		"diff":              {"-d bad.rego good.rego", "", 1, diff, "1 file is not formatted; to format: sallyport policy fmt -w\n", false},
		"diff without end":  {"-d", "package a", 1, "--- <stdin>\n+++ <stdin> (formatted)\n@@ -1 +1 @@\n-package a\n\\ No newline at end of file\n+package a\n", "1 file is not formatted; to format: sallyport policy fmt -w\n", false},
		"write":             {"-w bad.rego good.rego", "", 0, "", "", true},
		"write and list":    {"-w -l bad.rego good.rego", "", 0, "bad.rego\n", "", true},
		"write and show":    {"-w -d bad.rego good.rego", "", 0, diff, "", true},
		"write input":       {"-w", untidy, 2, "", "Error: --write requires file arguments: standard input cannot be overwritten\n", false},
		"no Rego":           {"-l no.rego bad.rego", "", 2, "bad.rego\n", "Error: no.rego:4:0: ", false},
		"no such file":      {"-l missing.rego bad.rego", "", 2, "bad.rego\n", "Error: stat missing.rego: no such file", false},
		"nothing to format": {"-l empty", "", 2, "", "Error: empty: no .rego file found\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			folder(t, map[string]string{
				"bad.rego": untidy, "good.rego": tidy, "no.rego": "package a\n\nx if {{\n", "empty/a.txt": "",
				"dir/good.rego": tidy, "dir/below/bad.rego": untidy, "dir/.hidden/bad.rego": untidy, "dir/text.txt": untidy,
			})
			out, errs, code := executeWith(t, tc.stdin, append([]string{"policy", "fmt"}, strings.Fields(tc.args)...)...)
			if code != tc.code || out != tc.out || !strings.HasPrefix(errs, tc.errs) || tc.errs == "" && errs != "" {
				t.Errorf("exit %d, want %d:\n%s%s\nwant\n%s%s", code, tc.code, out, errs, tc.out, tc.errs)
			}
			text, err := os.ReadFile("bad.rego")
			if is := string(text) == tidy; err != nil || is != tc.written {
				t.Errorf("it was written: %v, %v", is, err)
			}
		})
	}
}

// The policies of this repository are formatted.
func TestShippedPoliciesAreFormatted(t *testing.T) {
	if out, errs, code := execute(t, "policy", "fmt", "-d", "../../../policies"); code != 0 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
