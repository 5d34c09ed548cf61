// Command generate writes the shipped policies into the chart, a file for each: go run ./charts/generate FOLDER. Files of
// policies that are not shipped any more are removed.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
)

// indent stands for a tab at the beginning of a line of Rego.
const indent = "  "

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate FOLDER")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func generate(folder string) error {
	shipped, err := policies.Shipped()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var written []string
	for i := range shipped {
		untab(&shipped[i].Spec)
		text, err := yaml.Marshal(&shipped[i])
		if err != nil {
			return fmt.Errorf("encoding policy %s: %w", shipped[i].Name, err)
		}
		file := filepath.Join(folder, shipped[i].Name+".yaml")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
		written = append(written, file)
	}
	return remove(folder, written)
}

// untab indents Rego by spaces. YAML has no tabs in blocks of text: with them, kubectl edit would show a policy as one long line
// with escapes. Nothing else of Rego depends on it; a test of the chart holds the result against the source.
func untab(spec *v1alpha1.RegoPolicySpec) {
	for i := range spec.Modules {
		spec.Modules[i].Source = untabbed(spec.Modules[i].Source)
	}
	for i := range spec.Tests {
		spec.Tests[i].Source = untabbed(spec.Tests[i].Source)
	}
}

func untabbed(source string) string {
	lines := strings.Split(source, "\n")
	for i, line := range lines {
		text := strings.TrimLeft(line, "\t")
		lines[i] = strings.Repeat(indent, len(line)-len(text)) + text
	}
	return strings.Join(lines, "\n")
}

// remove removes the files of a folder but for some.
func remove(folder string, kept []string) error {
	present, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range present {
		if !slices.Contains(kept, file) {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}
