// Command generate writes the references: go run ./docs/generate FOLDER, in the root of the repository.
//
// api.md is that of the API. What fields are and may hold comes from the custom resource definitions of the chart; what values,
// conditions and reasons mean, from the comments of api/v1alpha1. policy-catalogue.md is that of the shipped policies, from their
// RegoPolicies and the METADATA of their Rego. pods-moves.md is the table of moves by hibernation. zz_generated.known.go, in api/v1alpha1
// beside the folder, has the types and reasons of conditions.
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
		fmt.Fprintln(os.Stderr, "usage: generate FOLDER")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func generate(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, page := range map[string]func() (string, error){
		"api.md": apiReference, "policy-catalogue.md": policyCatalogue, "pods-moves.md": moves,
		"../" + apiFolder + "/zz_generated.known.go": known,
	} {
		text, err := page()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func apiReference() (string, error) {
	constants, err := readConstants(apiFolder)
	if err != nil {
		return "", err
	}
	crds, err := charts.CRDs()
	if err != nil {
		return "", err
	}
	return reference(crds, constants)
}
