// Command generate writes into a folder, charts/sallyport/files, what the chart is made of: the webhooks and roles of Sallyport's own
// kinds, a dashboard for Grafana, and the shipped policies, a file for each, which refers to their Rego in the program. Files of policies that are not shipped any more are removed. The custom resource
// definitions that controller-gen wrote there get bounds for the types of Kubernetes.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

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

func generate(files string) error {
	if err := bound(filepath.Join(files, "crds")); err != nil {
		return err
	}
	folder := filepath.Join(files, "policies")
	shipped, err := bundled.Shipped()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var written []string
	for i := range shipped {
		shipping.Refer(&shipped[i])
		text, err := yaml.Marshal(&shipped[i])
		if err != nil {
			return err
		}
		file := filepath.Join(folder, shipped[i].Name+".yaml")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
		written = append(written, file)
	}
	for name, make := range map[string]func() ([]byte, error){"webhooks.yaml": webhooks, "kinds.yaml": roles, "dashboard.json": dashboard} {
		text, err := make()
		if err != nil {
			return err
		}
		if filepath.Ext(name) == ".yaml" {
			text = append([]byte(preface), text...)
		}
		if err := os.WriteFile(filepath.Join(files, name), text, 0o644); err != nil {
			return err
		}
	}
	return remove(folder, written)
}

const preface = "# Written by charts/generate, from Kinds in api/v1alpha1: edit these, then run \"make generate\".\n"

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
