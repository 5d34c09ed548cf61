// Command generate writes the reference of the API: go run ./docs/generate FILE, in the root of the repository. What fields
// are and may hold comes from the custom resource definitions of the chart; what values, conditions and reasons mean, from
// the comments of api/v1alpha1.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sallyport.dev/sallyport/charts"
)

// apiFolder holds the Go types of the API, seen from the root of the repository.
const apiFolder = "api/v1alpha1"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate FILE")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func generate(file string) error {
	constants, err := readConstants(apiFolder)
	if err != nil {
		return err
	}
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	text, err := reference(crds, constants)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
