package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	builtin "sallyport.dev/sallyport/cmd/sallyport/asked"
	"sallyport.dev/sallyport/policies"
)

// scaffold is what a policy begins as.
//
//go:embed scaffold
var scaffold embed.FS

// packageRoot is what packages of policies that are begun here are below. The shipped ones are below sallyport.
const packageRoot = "policies"

// draft is a policy that is to be begun.
type draft struct {
	// Name of the RegoPolicy, and the Package of its Rego.
	Name, Package string
	// folder of its files, below the one for all policies, and stem of the names of those with Rego.
	folder, stem string
	// Resource and what belongs to it.
	Group, Version, Resource, Kind string
	Namespaced                     bool
	Operations                     []string
}

// OperationList is the operations as YAML has them in a line.
func (d *draft) OperationList() string { return strings.Join(d.Operations, ", ") }

// Update tells whether the policy is asked about changes, of which the end of a deletion is one.
func (d *draft) Update() bool { return slices.Contains(d.Operations, string(v1alpha1.MatchUpdate)) }

func newPolicyNewCommand() *cobra.Command {
	var dir, resource string
	var operations []string
	command := &cobra.Command{
		Use:   "new NAME",
		Short: "Begin a policy: one that works, with its tests, to be made into yours",
		Long: "Writes a policy that refuses objects without the label owner: policy.yaml, the Rego, and tests that pass and evaluate\n" +
			"every line of it. Comments say what stands where. It is in mode Warn, so that it refuses nothing yet.\n\n" +
			"NAME is the name of the RegoPolicy, such as no-latest-tag, and of a folder below --dir, which is the package: there -\n" +
			"becomes _. A name in several parts, such as workloads/owner, is a folder in a folder. Nothing is overwritten.\n\n" +
			"Exit code 0 if it was written, 2 if not.",
		Example: `  sallyport policy new owner
  sallyport policy new claims/size --resource persistentvolumeclaims --operation CREATE`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			d, err := newDraft(args[0])
			if err == nil {
				err = errors.Join(d.about(resource), d.asked(operations))
			}
			if err != nil {
				return err
			}
			folder, err := d.write(dir)
			if err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), `%[1]s is begun. Next:

  sallyport policy test %[1]s --coverage 100
  sallyport review -f OBJECTS --add-policies %[1]s
  sallyport policy manifest %[1]s | kubectl apply -f -
`, folder)
			return nil
		},
	}
	f := command.Flags()
	f.StringVar(&dir, "dir", packageRoot, "`folder` of all policies")
	f.StringVar(&resource, "resource", "deployments.apps", "`resource` that the policy is about, in the plural and with its group, as kubectl api-resources tells")
	f.StringSliceVar(&operations, "operation", []string{string(v1alpha1.MatchCreate), string(v1alpha1.MatchUpdate)}, "`what` is done to it: CREATE, UPDATE or both")
	return command
}

var draftName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

func newDraft(name string) (*draft, error) {
	parts := strings.Split(name, "/")
	folders := make([]string, len(parts))
	for i, part := range parts {
		folders[i] = strings.ReplaceAll(part, "-", "_")
		switch {
		case !draftName.MatchString(part):
			return nil, fmt.Errorf("invalid policy name %q: use lowercase letters, digits and '-', with a letter first; '/' makes folders", name)
		case ast.IsKeyword(folders[i]):
			return nil, fmt.Errorf("invalid policy name %q: %s is a word of Rego", name, folders[i])
		}
	}
	d := &draft{
		Name: strings.Join(parts, "-"), Package: packageRoot + "." + strings.Join(folders, "."),
		folder: filepath.Join(folders...), stem: folders[len(folders)-1],
	}
	switch {
	case len(d.Package) > 253 || len(validation.IsDNS1123Subdomain(d.Name)) > 0:
		return nil, fmt.Errorf("invalid policy name %q: it is too long", name)
	case strings.HasSuffix(d.stem, "_test"):
		return nil, fmt.Errorf("invalid policy name %q: files that end in _test.rego are tests", name)
	}
	return d, nil
}

// about has the policy be about a resource.
func (d *draft) about(resource string) error {
	gr := schema.ParseGroupResource(resource)
	if strings.Contains(resource, "/") || len(validation.IsDNS1035Label(gr.Resource)) > 0 {
		return fmt.Errorf("--resource %q is no resource: it needs the plural with its group, as in deployments.apps, without a subresource", resource)
	}
	kind, err := builtin.KindOf(gr)
	if err != nil {
		return fmt.Errorf("--resource %q: %w", resource, err)
	}
	d.Group, d.Resource, d.Version, d.Kind, d.Namespaced = gr.Group, gr.Resource, kind.Version, kind.Kind, kind.Namespaced
	return nil
}

// asked has the policy be asked about operations.
func (d *draft) asked(operations []string) error {
	known := []string{string(v1alpha1.MatchCreate), string(v1alpha1.MatchUpdate)}
	for _, o := range operations {
		o = strings.ToUpper(o)
		switch {
		case o == string(v1alpha1.MatchDelete):
			return errors.New("--operation DELETE: the policy that is begun here is about what objects are like; " +
				"begin with CREATE, then write DELETE into policy.yaml, and input.request.oldObject for input.request.object")
		case !slices.Contains(known, o):
			return fmt.Errorf("--operation %q is not %s", o, choice.Either(known))
		case !slices.Contains(d.Operations, o):
			d.Operations = append(d.Operations, o)
		}
	}
	if len(d.Operations) == 0 {
		return fmt.Errorf("--operation needs %s", choice.Either(known))
	}
	return nil
}

// write writes all files at once: there is a whole policy afterwards, or nothing.
func (d *draft) write(dir string) (folder string, err error) {
	folder = filepath.Join(dir, d.folder)
	if _, err := os.Lstat(folder); err == nil {
		return "", fmt.Errorf("%s is there already: choose another name, or remove it", folder)
	}
	above := filepath.Dir(folder)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return "", err
	}
	unfinished, err := os.MkdirTemp(above, ".new-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished)) }()
	for file, name := range map[string]string{
		policies.ManifestFile: "policy.yaml", d.stem + ".rego": "policy.rego", d.stem + "_test.rego": "policy_test.rego",
	} {
		text, err := d.filled(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(unfinished, file), text, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return "", err
	}
	return folder, os.Rename(unfinished, folder)
}

// filled is a file of the scaffold with the policy in it.
func (d *draft) filled(name string) ([]byte, error) {
	parsed, err := template.ParseFS(scaffold, "scaffold/"+name+".tmpl")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, d)
	return text.Bytes(), err
}
