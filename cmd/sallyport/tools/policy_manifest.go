package tools

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
	"sallyport.dev/sallyport/cmd/internal/verdict"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/policyfiles"
)

func newPolicyManifestCommand() *cobra.Command {
	to := outputFile("")
	command := &cobra.Command{
		Use:   "manifest PATH...",
		Short: "Package policies as RegoPolicies for kubectl apply",
		Long: "Packages policies as RegoPolicies in one YAML file, libraries first. Each RegoPolicy contains the Rego and the tests that\n" +
			"are in the same folder as its policy.yaml. The Rego is indented with spaces, so that kubectl edit shows it as a block of text.\n\n" +
			"Exit codes: 0 on success, 1 if the Rego of a policy does not parse, 2 if policies cannot be read or the file cannot be\n" +
			"written.",
		Example: `  # Apply one policy
  sallyport policy manifest policies/owner | kubectl apply -f -

  # Write all policies of a folder to a file for a deployment tool
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

// manifests returns the policies as YAML, libraries first.
func manifests(collection *policyfiles.Collection) ([]byte, error) {
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

// parses returns the errors that do not depend on a cluster's libraries.
func parses(collection *policyfiles.Collection) error {
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
		return verdict.Bad(strings.Join(problems, "\n"))
	}
	return nil
}

// outputFile is the path of the file that a command writes; "" means standard output.
type outputFile string

func (o *outputFile) addFlag(command *cobra.Command) {
	command.Flags().StringVarP((*string)(o), "output", "o", "", "`file` to write to instead of standard output")
}

func (o *outputFile) write(command *cobra.Command, text []byte) error {
	if *o != "" {
		return replaceFile(string(*o), text, 0o644)
	}
	_, err := command.OutOrStdout().Write(text)
	return err
}

// replaceFile writes a file atomically: it contains either the old or the new text. An existing file keeps its mode, and a symbolic
// link stays a link.
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
