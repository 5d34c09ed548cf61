// Package docs_test holds the documentation against what it tells of.
package docs_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/pages"
)

const root = ".."

func TestLinks(t *testing.T) {
	all := pages.All(t, root)
	anchors := map[string]map[string]bool{}
	for _, p := range all {
		anchors[p.Path] = p.Anchors
	}
	linked := map[string]bool{"README.md": true}
	for _, p := range all {
		for _, l := range p.Links {
			if strings.Contains(l.Text, "://") {
				continue
			}
			target, anchor, hasAnchor := strings.Cut(l.Text, "#")
			file := p.Path
			if target != "" {
				file = path.Join(path.Dir(p.Path), target)
				linked[file] = true
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: nothing is at %s", l.Where, l.Text)
			} else if hasAnchor && !anchors[file][anchor] {
				t.Errorf("%s: %s has no heading #%s", l.Where, file, anchor)
			}
		}
	}
	for _, p := range all {
		if strings.HasPrefix(p.Path, "docs/") && !linked[p.Path] {
			t.Errorf("no page has a link to %s", p.Path)
		}
	}
}

// Targets and variables of make, and the packages that go is to run, build or test.
func TestCommands(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	isIn := func(pattern, name string) bool {
		return regexp.MustCompile(fmt.Sprintf(pattern, regexp.QuoteMeta(name))).Match(makefile)
	}
	for _, p := range pages.All(t, root) {
		for _, c := range p.Commands() {
			for _, word := range c.Words[1:] {
				variable, _, sets := strings.Cut(word, "=")
				folder, ours := strings.CutPrefix(word, "./")
				switch {
				case c.Words[0] == "make" && sets && !isIn(`\$\(%s\)`, variable):
					t.Errorf("%s: the Makefile has no variable %s", c.Where, variable)
				case c.Words[0] == "make" && !sets && !isIn(`(?m)^%s:`, word):
					t.Errorf("%s: the Makefile has no target %s", c.Where, word)
				case c.Words[0] == "go" && ours:
					if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(folder, "..."))); err != nil {
						t.Errorf("%s: there is no package %s", c.Where, word)
					}
				}
			}
		}
	}
}

// others are the resources of Kubernetes that pages have kubectl do something with.
var others = []string{
	"certificates", "clusterreports.openreports.io", "crd", "datavolumes", "deployments", "endpointslice", "events", "events.events.k8s.io", "issuers", "leases", "mutatingwebhookconfiguration", "namespace", "namespaces", "node", "persistentvolumeclaims", "pod", "reports.openreports.io",
	"secret", "service", "validatingwebhookconfiguration", "virtualmachinepools.pool.kubevirt.io", "virtualmachines.kubevirt.io", "vmrestore", "vmsnapshot", "volumesnapshots",
	"storageprofile",
}

// verbs are the commands of kubectl that are followed by a resource.
var verbs = []string{"get", "edit", "delete", "describe", "annotate", "label", "patch", "explain", "wait"}

// alsoOfKubeVirt are names of ours that KubeVirt has, too: where it is installed, kubectl may take its kinds. Commands have our short names.
var alsoOfKubeVirt = []string{"virtualmachine", "virtualmachines", "virtualmachinepool", "virtualmachinepools"}

// Resources in commands of kubectl, and fields by which ours are selected.
func TestCommandsOfKubectl(t *testing.T) {
	names, selectable := slices.Clone(others), []string{"reason", "regarding.kind", "regarding.name", "type"}
	for _, crd := range definitions(t) {
		n := crd.Spec.Names
		names = slices.Concat(names, []string{n.Plural, n.Singular}, n.ShortNames, n.Categories)
		for _, field := range crd.Spec.Versions[0].SelectableFields {
			selectable = append(selectable, strings.TrimPrefix(field.JSONPath, "."))
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(alsoOfKubeVirt, name) })
	for _, p := range pages.All(t, root) {
		for _, c := range p.Commands() {
			words, is := c.Below("kubectl")
			if !is {
				continue
			}
			words, flags := apart(words)
			field, _, _ := strings.Cut(flags["--field-selector"], "=")
			if field != "" && !slices.Contains(selectable, field) {
				t.Errorf("%s: nothing is selected by the field %s", c.Where, field)
			}
			if len(words) < 2 || !slices.Contains(verbs, words[0]) {
				continue
			}
			kinds, _, _ := strings.Cut(words[1], "/")
			for kind := range strings.SplitSeq(kinds, ",") {
				if !slices.Contains(names, kind) {
					t.Errorf("%s: kubectl knows no %s", c.Where, kind)
				}
			}
		}
	}
}

// writers are the commands of kubectl that change an object, which is in some namespace.
var writers = []string{"annotate", "create", "delete", "edit", "label", "patch", "scale"}

// nowhere are the resources that are in no namespace.
var nowhere = []string{
	"clusterrole", "clusterrolebinding", "crd", "mutatingwebhookconfiguration", "namespace", "namespaces", "node", "rego", "regopolicies", "svsrv", "validatingwebhookconfiguration",
	"validatingwebhookconfiguration,mutatingwebhookconfiguration",
	"storageprofile",
}

// Commands that are copied have the namespace that they are for, and can be repeated.
func TestCommandsHaveTheirNamespace(t *testing.T) {
	for _, p := range pages.All(t, root) {
		for _, c := range p.Commands() {
			words, flags := apart(c.Words[1:])
			if c.Words[0] != "helm" && c.Words[0] != "kubectl" || len(words) < 2 || c.Mentioned && len(words) == 2 && words[0] != "upgrade" && !strings.Contains(words[1], "/") {
				continue
			}
			_, short := flags["-n"]
			_, long := flags["--namespace"]
			_, all := flags["--all-namespaces"]
			named := short || long || all
			resource, _, _ := strings.Cut(words[1], "/")
			switch {
			case c.Words[0] == "helm":
				if !named && !slices.Contains([]string{"lint", "template", "repo"}, words[0]) {
					t.Errorf("%s: helm %s has no --namespace", c.Where, words[0])
				}
			case !slices.Contains(writers, words[0]) || slices.Contains(nowhere, resource):
			case !named:
				t.Errorf("%s: kubectl %s %s has no --namespace", c.Where, words[0], words[1])
			case words[0] == "annotate" && slices.ContainsFunc(words[2:], func(word string) bool { return strings.Contains(word, "=") }):
				if _, overwrites := flags["--overwrite"]; !overwrites {
					t.Errorf("%s: kubectl annotate has no --overwrite: it fails once there is another value", c.Where)
				}
			}
		}
	}
}

// apart takes flags out of words, of which some are followed by their values.
func apart(words []string) (left []string, flags map[string]string) {
	flags = map[string]string{}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		switch {
		case !strings.HasPrefix(word, "-"):
			left = append(left, word)
		case slices.Contains([]string{"-n", "--namespace", "-l", "-o", "-f", "--field-selector"}, word) && len(words) > 0:
			flags[word], words = words[0], words[1:]
		default:
			name, value, _ := strings.Cut(word, "=")
			flags[name] = value
		}
	}
	return left, flags
}

func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	return crds
}
