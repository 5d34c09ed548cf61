package tools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
)

type formatOptions struct {
	list, diff, write bool
	out               io.Writer
	// different counts the files that are not formatted.
	different int
}

func newPolicyFmtCommand() *cobra.Command {
	o := &formatOptions{}
	command := &cobra.Command{
		Use:   "fmt [FILE|DIR...]",
		Short: "Format Rego files in the style of opa fmt",
		Long: "Formats Rego files, and all Rego files in folders, in the style of opa fmt. Without arguments, it formats standard input.\n" +
			"Without flags, it prints the result and does not change any file.\n\n" +
			"Exit codes: 0 on success, 1 if -l or -d is given without -w and a file is not formatted, 2 if a file cannot be read,\n" +
			"parsed or written.",
		Example: `  # Format all policies before a commit
  sallyport policy fmt -w policies

  # In CI: list files that are not formatted, and fail if there are any
  sallyport policy fmt -l policies`,
		RunE: func(command *cobra.Command, args []string) error {
			o.out = command.OutOrStdout()
			if len(args) == 0 {
				return o.standardInput(command.InOrStdin())
			}
			return o.run(args)
		},
	}
	f := command.Flags()
	f.BoolVarP(&o.list, "list", "l", false, "list files that are not formatted")
	f.BoolVarP(&o.diff, "diff", "d", false, "print a unified diff of the changes")
	f.BoolVarP(&o.write, "write", "w", false, "write the result to the files instead of standard output")
	return command
}

func (o *formatOptions) standardInput(in io.Reader) error {
	if o.write {
		return errors.New("--write requires file arguments: standard input cannot be overwritten")
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading standard input: %w", err)
	}
	if err := o.text("<stdin>", text); err != nil {
		return err
	}
	return o.verdict()
}

func (o *formatOptions) run(paths []string) error {
	var errs []error
	for _, path := range paths {
		files, err := regoFiles(path)
		errs = append(errs, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil {
				err = o.text(file, text)
			}
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return o.verdict()
}

// regoFiles returns a file, or the files below a folder that end in .rego. Hidden folders are skipped, as when policies are read.
func regoFiles(path string) (files []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != path && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && filepath.Ext(file) == ".rego":
			files = append(files, file)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no .rego file found", path)
	}
	return files, err
}

func (o *formatOptions) text(file string, text []byte) error {
	formatted, err := format.Source(file, text)
	if err != nil {
		return regoError(err)
	}
	changed := !bytes.Equal(text, formatted)
	if changed {
		o.different++
	}
	if changed && o.list {
		fmt.Fprintln(o.out, file)
	}
	if changed && o.diff {
		if err := o.show(file, text, formatted); err != nil {
			return err
		}
	}
	if changed && o.write {
		return replaceFile(file, formatted, 0o644)
	}
	if !o.list && !o.diff && !o.write {
		_, err = o.out.Write(formatted)
	}
	return err
}

func (o *formatOptions) show(file string, before, after []byte) error {
	return difflib.WriteUnifiedDiff(o.out, difflib.UnifiedDiff{
		A: linesOf(string(before)), B: linesOf(string(after)), FromFile: file, ToFile: file + " (formatted)", Context: 3,
	})
}

func linesOf(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		return lines[:last]
	}
	lines[len(lines)-1] += "\n\\ No newline at end of file\n"
	return lines
}

// regoError formats errors of OPA's parser in the same way as errors of the compiler.
func regoError(err error) error {
	var located ast.Errors
	if !errors.As(err, &located) {
		return err
	}
	told := make([]error, len(located))
	for i, e := range located {
		told[i] = fmt.Errorf("%s:%d:%d: %s", e.Location.File, e.Location.Row, e.Location.Col, e.Message)
	}
	return errors.Join(told...)
}

func (o *formatOptions) verdict() error {
	if o.different == 0 || o.write || !o.list && !o.diff {
		return nil
	}
	return &verdictError{fmt.Sprintf("%s not formatted; to format: sallyport policy fmt -w", plural(o.different, "file is", "files are"))}
}
