package tools

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
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/policies"
)

// scaffold has the files of a new policy.
//
//go:embed scaffold
var scaffold embed.FS

// packageRoot is the parent of the packages of new policies. Those of shipped policies are below sallyport.
const packageRoot = "policies"

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

// OperationList returns the operations as the content of a YAML flow sequence.
func (d *draft) OperationList() string { return strings.Join(d.Operations, ", ") }

// Update reports whether the policy evaluates updates, which include the removal of the last finalizer.
func (d *draft) Update() bool { return slices.Contains(d.Operations, string(v1alpha1.MatchUpdate)) }

func newPolicyNewCommand() *cobra.Command {
	var dir, resource string
	var operations []string
	command := &cobra.Command{
		Use:   "new NAME",
		Short: "Create a working policy with tests as a starting point",
		Long: "Creates a policy that requires the label owner: policy.yaml, the Rego, and tests that pass with full coverage. Comments\n" +
			"explain each part. The policy is in mode Warn, so it does not deny requests yet.\n\n" +
			"NAME is the name of the RegoPolicy, such as no-latest-tag. The files are written to a folder of that name below --dir.\n" +
			"In the folder and package names, - becomes _. A NAME with slashes, such as workloads/owner, creates nested folders.\n" +
			"Existing files are not overwritten.\n\n" +
			"Exit codes: 0 on success, 2 on failure.",
		Example: `  # Create a policy for Deployments in policies/owner
  sallyport policy new owner

  # Create a policy for new PersistentVolumeClaims in policies/claims/size
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
			fmt.Fprintf(command.OutOrStdout(), `%[1]s created. Next steps:

  sallyport policy test %[1]s --coverage 100
  sallyport review -f OBJECTS --add-policies %[1]s
  sallyport policy manifest %[1]s | kubectl apply -f -
`, folder)
			return nil
		},
	}
	f := command.Flags()
	f.StringVar(&dir, "dir", packageRoot, "`folder` to create the policy in")
	f.StringVar(&resource, "resource", "deployments.apps", "`resource` that the policy matches: plural name and group, as listed by kubectl api-resources")
	f.StringSliceVar(&operations, "operation", []string{string(v1alpha1.MatchCreate), string(v1alpha1.MatchUpdate)}, "`operations` that the policy matches: CREATE, UPDATE or both")
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
			return nil, fmt.Errorf("invalid policy name %q: use lowercase letters, digits and '-', beginning with a letter; '/' separates folders", name)
		case ast.IsKeyword(folders[i]):
			return nil, fmt.Errorf("invalid policy name %q: %s is a Rego keyword", name, folders[i])
		}
	}
	d := &draft{
		Name: strings.Join(parts, "-"), Package: packageRoot + "." + strings.Join(folders, "."),
		folder: filepath.Join(folders...), stem: folders[len(folders)-1],
	}
	switch {
	case len(d.Package) > 253 || len(validation.IsDNS1123Subdomain(d.Name)) > 0:
		return nil, fmt.Errorf("invalid policy name %q: too long", name)
	case strings.HasSuffix(d.stem, "_test"):
		return nil, fmt.Errorf("invalid policy name %q: the suffix _test is reserved for tests", name)
	}
	return d, nil
}

// about sets the resource that the policy matches.
func (d *draft) about(resource string) error {
	gr := schema.ParseGroupResource(resource)
	if strings.Contains(resource, "/") || len(validation.IsDNS1035Label(gr.Resource)) > 0 {
		return fmt.Errorf("invalid --resource %q: use the plural name with its group and without a subresource, such as deployments.apps", resource)
	}
	kind, err := bundled.KindOf(gr)
	if err != nil {
		return fmt.Errorf("--resource %q: %w", resource, err)
	}
	d.Group, d.Resource, d.Version, d.Kind, d.Namespaced = gr.Group, gr.Resource, kind.Version, kind.Kind, kind.Namespaced
	return nil
}

func (d *draft) asked(operations []string) error {
	known := []string{string(v1alpha1.MatchCreate), string(v1alpha1.MatchUpdate)}
	for _, o := range operations {
		o = strings.ToUpper(o)
		switch {
		case o == string(v1alpha1.MatchDelete):
			return errors.New("--operation DELETE is not supported: the created policy reads input.request.object, which is empty for a deletion; " +
				"use CREATE, then change policy.yaml to DELETE and the Rego to input.request.oldObject")
		case !slices.Contains(known, o):
			return fmt.Errorf("invalid --operation %q: must be %s", o, choice.Either(known))
		case !slices.Contains(d.Operations, o):
			d.Operations = append(d.Operations, o)
		}
	}
	if len(d.Operations) == 0 {
		return fmt.Errorf("--operation is required: %s", choice.Either(known))
	}
	return nil
}

// write writes all files or none.
func (d *draft) write(dir string) (folder string, err error) {
	folder = filepath.Join(dir, d.folder)
	if _, err := os.Lstat(folder); err == nil {
		return "", fmt.Errorf("%s already exists: choose another name, or remove it", folder)
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

// filled returns a file of the scaffold, filled in for the policy.
func (d *draft) filled(name string) ([]byte, error) {
	parsed, err := template.ParseFS(scaffold, "scaffold/"+name+".tmpl")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, d)
	return text.Bytes(), err
}
