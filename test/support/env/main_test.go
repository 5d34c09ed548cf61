package env

import (
	"context"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// known is there before the controller manager, so that it collects garbage among its objects from the start.
var known = definition("knowns", "Known")

func TestMain(m *testing.M) {
	Main(m, Options{ControllerManager: true, CRDs: []*apiextensionsv1.CustomResourceDefinition{known}})
}

// definition returns a CRD of the group test.sallyport.dev that has a scale and no schema to speak of.
func definition(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".test.sallyport.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "test.sallyport.dev",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Scale: &apiextensionsv1.CustomResourceSubresourceScale{
						SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
					},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve,
				}},
			}},
		},
	}
}

// eventually waits for a condition; the error of the last look says what was wrong.
func eventually(t *testing.T, what string, look func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 25*time.Millisecond, 90*time.Second, true,
		func(ctx context.Context) (bool, error) {
			last = look(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("waiting for %s: %v; last: %v", what, err, last)
	}
}

// kubectl runs a command that has to succeed and returns its output.
func kubectl(t *testing.T, cp *ControlPlane, args ...string) string {
	t.Helper()
	stdout, stderr, code := cp.Kubectl(t.Context(), args...)
	if code != 0 {
		t.Fatalf("kubectl %v: exit code %d\n%s", args, code, stderr)
	}
	return stdout
}

// create makes an object out of its manifest.
func create(t *testing.T, cp *ControlPlane, manifest string) {
	t.Helper()
	_, stderr, code := cp.KubectlAs(t.Context(), cp.Kubeconfig(), strings.NewReader(manifest), "create", "-f", "-")
	if code != 0 {
		t.Fatalf("kubectl create: exit code %d\n%s", code, stderr)
	}
}
