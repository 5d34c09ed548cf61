package tools

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/test/support/pages"
	"sallyport.dev/sallyport/test/support/step"
)

// fleets is the definition of the kind that docs/scaling-guard.md has as one of its reader's own.
const fleets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.example.com}
spec:
  group: example.com
  names: {kind: Fleet, plural: fleets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {scale: {specReplicasPath: .spec.workers.count, statusReplicasPath: .status.count}}
`

// What docs/scaling-guard.md shows is what its reader sees: after each heading with the objects as the page has them and the policy
// as it is shipped, on a night in May. -update writes it anew.
func TestDocsShowWhatScalingGuardSays(t *testing.T) {
	stopClock(t)
	text := page(t, "scaling-guard.md")
	t.Chdir(t.TempDir())
	c := &reader{T: step.T{T: t}, objects: map[string]map[string]any{}}
	c.begin()
	heading, block := regexp.MustCompile(`(?m)\A#+ .*$`), regexp.MustCompile("(?s)\\A```(\\w*)\n(.*?)```\n")
	var is strings.Builder
	shown := 0
	for left := text; left != ""; {
		found := block.FindStringSubmatch(left)
		switch {
		case found == nil:
			if heading.MatchString(left) {
				c.begin()
			}
			line, rest, _ := strings.Cut(left, "\n")
			is.WriteString(line + "\n")
			left = rest
			continue
		case found[1] == "yaml":
			c.object(found[2])
			is.WriteString(found[0])
		case found[1] == "console":
			shown++
			is.WriteString("```console\n" + c.session(found[2]) + "```\n")
		default:
			is.WriteString(found[0])
		}
		left = left[len(found[0]):]
	}
	if shown == 0 {
		t.Error("docs/scaling-guard.md shows nothing")
	}
	pages.Golden(t, *update, filepath.Join(repository, "docs", "scaling-guard.md"), is.String())
}

// reader answers the commands of kubectl that the page shows, as far as review can tell what a cluster would say.
type reader struct {
	step.T
	objects map[string]map[string]any // by name
	policy  []byte
	changed map[string]map[string]any
}

// begin has everything be as it was.
func (c *reader) begin() {
	c.changed = maps.Clone(c.objects)
	all, err := policies.Shipped()
	c.Must(err)
	for i := range all {
		if all[i].Name == "scaling-guard" {
			c.policy, err = json.Marshal(&all[i])
			c.Must(err)
		}
	}
	c.write("shipped.yaml", c.policy)
}

func (c *reader) object(text string) {
	object := map[string]any{}
	c.Must(yaml.Unmarshal([]byte(text), &object))
	u := unstructured.Unstructured{Object: object}
	c.objects[u.GetName()], c.changed[u.GetName()] = object, object
}

// session gives commands with what is said to each in place of what is shown.
func (c *reader) session(text string) string {
	var said strings.Builder
	for one := range strings.SplitSeq("\n"+strings.TrimSuffix(text, "\n"), "\n$ ") {
		if one == "" {
			continue
		}
		typed, _, _ := strings.Cut(one, "\n")
		if before, patch, is := strings.Cut(one, " -p '"); is {
			patch, _, _ = strings.Cut(patch, "'")
			typed = before + " -p '" + patch + "'"
			said.WriteString("$ " + typed + "\n" + c.patch(patch))
			continue
		}
		said.WriteString("$ " + typed + "\n" + c.typed(strings.Fields(typed)))
	}
	return said.String()
}

func (c *reader) patch(text string) string {
	patch, err := yaml.YAMLToJSON([]byte(text))
	c.Must(err)
	c.policy, err = jsonpatch.MergePatch(c.policy, patch)
	c.Must(err)
	return c.review(c.policy, "--state", "shipped.yaml")
}

func (c *reader) typed(words []string) string {
	if len(words) < 4 || words[0] != "kubectl" {
		c.Fatalf("nobody knows what %q does", words)
	}
	resource, name, _ := strings.Cut(words[2], "/")
	object := unstructured.Unstructured{Object: c.changed[name]}
	if object.Object == nil {
		c.Fatalf("there is no %s", words[2])
	}
	object = *object.DeepCopy()
	c.state()
	switch words[1] {
	case "annotate":
		key, value, _ := strings.Cut(words[3], "=")
		annotations := object.GetAnnotations()
		annotations[key] = value
		object.SetAnnotations(annotations)
		said := c.review(c.json(object.Object), "--state", "state.yaml", "--policies", "policy.yaml")
		if said == "" {
			c.changed[name] = object.Object
		}
		return said
	case "scale":
		replicas, err := strconv.ParseInt(strings.TrimPrefix(words[3], "--replicas="), 10, 64)
		c.Must(err)
		c.Must(unstructured.SetNestedField(object.Object, replicas, c.path(resource)...))
		arguments := []string{"--subresource", "scale", "--state", "state.yaml", "--policies", "policy.yaml"}
		said := c.review(c.json(object.Object), append(arguments, words[4:]...)...)
		if said == "" {
			said = strings.ToLower(object.GetKind()) + "." + object.GroupVersionKind().Group + "/" + name + " scaled\n"
		}
		return said
	}
	c.Fatalf("nobody knows what %q does", words)
	return ""
}

// path is where a resource has its replicas, as the policy knows it.
func (c *reader) path(resource string) []string {
	policy := map[string]any{}
	c.Must(json.Unmarshal(c.policy, &policy))
	for _, name := range []string{resource, resource + ".apps"} {
		if path, found, err := unstructured.NestedStringSlice(policy, "spec", "parameters", "kinds", name, "replicas"); found && err == nil {
			return path
		}
	}
	c.Fatalf("the policy does not know %s", resource)
	return nil
}

// state writes the world and the policy down.
func (c *reader) state() {
	world := fleets
	for _, name := range slices.Sorted(maps.Keys(c.changed)) {
		world += "\n---\n" + string(c.json(c.changed[name]))
	}
	c.write("state.yaml", []byte(world))
	c.write("policy.yaml", c.policy)
}

// review gives what kubectl would print of a refusal, nothing if the request is admitted.
func (c *reader) review(request []byte, arguments ...string) string {
	c.Helper()
	out, errs, code := executeWith(c.T.T, string(request), append([]string{"review", "-f", "-"}, arguments...)...)
	if code == 0 {
		return ""
	}
	_, said, found := strings.Cut(out, "    Error from server")
	if !found {
		c.Fatalf("exit %d: %s%s", code, out, errs)
	}
	said, _, _ = strings.Cut(said, "\n    Note:")
	return "Error from server" + strings.TrimRight(said, "\n") + "\n"
}

func (c *reader) json(object any) []byte {
	text, err := json.Marshal(object)
	c.Must(err)
	return text
}

func (c *reader) write(name string, text []byte) { c.Must(os.WriteFile(name, text, 0o600)) }
