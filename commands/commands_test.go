package commands_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "sallyport.dev/sallyport/commands"
)

// A shell gets the words back, whatever is in them, and runs nothing.
func TestShellsReadTheWords(t *testing.T) {
	dir := t.TempDir()
	for _, hostile := range []string{
		"", "web-1", "system:serviceaccount:ci:runner", "CN=Alice,O=Example Inc", "a b", "w'$(touch${IFS}x)'", "`touch x`", "$(touch x)",
		`"; touch x; "`, `\`, `'`, `''`, "!!", "~", "*", "{a,b}", "a&touch x", "a|touch x", "a>x", "#", "é", "日本", "a=b", "--all",
	} {
		// #nosec G204 -- what a user does who pastes the command
		run := exec.Command("sh", "-c", Line("printf", "%s\\n", "first", hostile, "last"))
		run.Dir = dir
		out, err := run.Output()
		if want := "first\n" + hostile + "\nlast\n"; err != nil || string(out) != want {
			t.Errorf("%q: the shell read %q, %v", hostile, out, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("a command left %v, %v", left, err)
	}
	if got, want := Line("kubectl", "get", "svm", "a\x1b[2K\nb\u202e"), "kubectl get svm 'a[2Kb'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestObject(t *testing.T) {
	if got := Line(Object("nodes", "", "a")...); got != "nodes/a" {
		t.Error(got)
	}
	if got := Line(Object("svm", "team", "a")...); got != "svm/a -n team" {
		t.Error(got)
	}
}

// A command in a text, and what a format or a sum puts into it.
var (
	command  = regexp.MustCompile(`\b(kubectl|helm) [^\n]*$`)
	inserted = regexp.MustCompile(`\b(kubectl|helm) [^\n]*%[^%]`)
)

// Every command that has a value in it is written by Line: no format and no sum of texts makes one.
func TestCommandsAreWrittenByLine(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{"../test", "../hack", "../docs", "../cmd/demo", "../.git"}, path) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sum, is := n.(*ast.BinaryExpr); is && sum.Op == token.ADD && command.MatchString(last(sum.X)) && !constant(sum.Y) {
				t.Errorf("%s: a command is put together from texts: use commands.Line", files.Position(sum.Pos()))
			}
			if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING && inserted.MatchString(text(literal)) {
				t.Errorf("%s: a format puts a value into a command: use commands.Line", files.Position(literal.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// last is the text that an expression ends with, if it is one.
func last(e ast.Expr) string {
	switch is := e.(type) {
	case *ast.BasicLit:
		return text(is)
	case *ast.BinaryExpr:
		return last(is.Y)
	}
	return ""
}

func constant(e ast.Expr) bool {
	_, is := e.(*ast.BasicLit)
	return is
}

func text(literal *ast.BasicLit) string {
	if literal.Kind != token.STRING {
		return ""
	}
	is, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return is
}
