package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/load"
)

func newPolicyManifestCommand() *cobra.Command {
	to := outputFile("")
	command := &cobra.Command{
		Use:   "manifest PATH...",
		Short: "Pack policies as RegoPolicies, for kubectl apply",
		Long: "Packs the policies of the paths, each with the Rego and the tests beside its policy.yaml, as RegoPolicies: libraries\n" +
			"first, in one file of YAML. The Rego is indented by spaces, so that kubectl edit shows it as it was written.\n\n" +
			"Exit code 0 if it was written, 1 if the Rego of a policy does not parse, 2 if the policies cannot be read or the file\n" +
			"cannot be written.",
		Example: `  sallyport policy manifest policies/owner | kubectl apply -f -

  # All of a folder, into a file for the tool that deploys them
  sallyport policy manifest policies -o policies.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			collection, err := policiesOf(command, args)
			if err != nil {
				return err
			}
			text, err := manifests(collection)
			if err != nil {
				return err
			}
			return to.write(command, text)
		},
	}
	to.addFlag(command)
	return command
}

// manifests gives the policies as YAML, those first that others import.
func manifests(collection *load.Collection) ([]byte, error) {
	if err := parses(collection); err != nil {
		return nil, err
	}
	var documents [][]byte
	for _, libraries := range []bool{true, false} {
		for i := range collection.Objects {
			o := &collection.Objects[i]
			if o.Spec.Library != libraries {
				continue
			}
			text, err := catalog.Manifest(&v1alpha1.RegoPolicy{ // without what only a cluster sets
				TypeMeta: o.TypeMeta, Spec: o.Spec,
				ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels, Annotations: o.Annotations},
			})
			if err != nil {
				return nil, err
			}
			documents = append(documents, text)
		}
	}
	return bytes.Join(documents, []byte("---\n")), nil
}

// parses tells what no cluster would take, whatever libraries it has.
func parses(collection *load.Collection) error {
	var problems []string
	for _, source := range collection.Sources() {
		for _, modules := range [][]engine.Module{source.Modules, source.Tests} {
			for _, m := range modules {
				if _, err := engine.ParseOutline(m); err != nil {
					problems = append(problems, collection.Explain(source, err)...)
				}
			}
		}
	}
	if len(problems) > 0 {
		return &verdictError{strings.Join(problems, "\n")}
	}
	return nil
}

// outputFile is the file that a command writes, "" for standard output.
type outputFile string

func (o *outputFile) addFlag(command *cobra.Command) {
	command.Flags().StringVarP((*string)(o), "output", "o", "", "`file` to write, in place of standard output")
}

func (o *outputFile) write(command *cobra.Command, text []byte) error {
	if *o != "" {
		return replaceFile(string(*o), text, 0o644)
	}
	_, err := command.OutOrStdout().Write(text)
	return err
}

// replaceFile writes a file so that it has the old text or the new one, whatever happens meanwhile. One that is there keeps its
// mode, and stays a link if it is one.
func replaceFile(path string, text []byte, mode os.FileMode) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return os.WriteFile(path, text, mode) // a pipe or a terminal has no old text
		}
		mode = info.Mode().Perm()
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(temporary.Name()))
	}
	return nil
}
