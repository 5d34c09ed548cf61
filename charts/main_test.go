package charts_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/env"
)

// The controller manager puts the roles for people together.
func TestMain(m *testing.M) { env.Main(m, env.Options{ControllerManager: true}) }

const (
	release   = "sallyport"
	namespace = "sallyport-system"
)

// chart gives the folder of a copy of the chart, as the binary carries it.
func chart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, charts.Files); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "sallyport")
}

// values writes values into a file, for helm -f.
func values(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// helmProgram gives the path of Helm.
func helmProgram(t *testing.T) string {
	t.Helper()
	program, err := env.Helm(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// template gives what `helm template` prints, or what it says against it.
func template(t *testing.T, name, dir, text string) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	command := exec.CommandContext(t.Context(), helmProgram(t), "template", name, dir, "-n", namespace, "-f", values(t, text))
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		return "", errors.New(errOut.String())
	}
	return out.String(), nil
}

// render gives the objects that the chart makes with values.
func render(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	return renderAs(t, release, text)
}

// prints is what Helm printed, by the name of the release and the values: many tests look at the same.
var prints = map[[2]string]string{}

// renderAs does so for a release of another name.
func renderAs(t *testing.T, name, text string) []*unstructured.Unstructured {
	t.Helper()
	key := [2]string{name, text}
	out, known := prints[key]
	if !known {
		var err error
		if out, err = template(t, name, chart(t), text); err != nil {
			t.Fatal(err)
		}
		prints[key] = out
	}
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLToJSONDecoder(strings.NewReader(out))
	for {
		object := map[string]any{}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(object) > 0 {
			all = append(all, &unstructured.Unstructured{Object: object})
		}
	}
}

// find gives the one object of a kind that has a name, or nil.
func find(all []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, o := range all {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	return nil
}

// definitions are those of the chart.
func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	return crds
}

// definitionOf gives the definition of a kind.
func definitionOf(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	for _, crd := range definitions(t) {
		if crd.Spec.Names.Kind == kind {
			return crd
		}
	}
	t.Fatalf("no kind %s", kind)
	return nil
}

// configurations are those of the chart's own webhooks.
func configurations(t *testing.T) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	mutating, validating, err := charts.Webhooks()
	if err != nil {
		t.Fatal(err)
	}
	return mutating, validating
}

// managerArgs are those of the manager.
func managerArgs(t *testing.T, all []*unstructured.Unstructured) []string {
	t.Helper()
	return rendered[appsv1.Deployment](t, all, "Deployment", "sallyport").Spec.Template.Spec.Containers[0].Args
}

// rendered gives one of the objects as its type.
func rendered[T any](t *testing.T, all []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	o := find(all, kind, name)
	if o == nil {
		t.Fatalf("the chart makes no %s %s", kind, name)
	}
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
	return typed
}
